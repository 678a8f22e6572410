"""A step on 1 to 512 GPUs, computed from measured constants: what takes how long, and what limits it first.

    python -m benchmarks.step_model                                       the paper's setting on H100s
    python -m benchmarks.step_model --model qwen3-4b --gpus 8 64 --problems 256 --card h200
    python -m benchmarks.step_model --model PATH/config.json --tp 2 --cache 30
    python -m benchmarks.step_model --check RUN --model qwen2.5-1.5b      a run's pair records and metrics beside it

docs/large_runs.md has the equations in words, where each constant was measured, and how far the model is from what was
measured. In short:

    generation  every vLLM replica is played through, token by token: a challenge starts when its draft ends, a step of
                the engine takes a fixed time, reads the weights and all cached keys and values, and computes one token
                per sequence. Sequences that do not fit into the cache wait. The slowest replica decides.
    update      per micro-batch a fixed time and the collectives of FSDP2, per token its arithmetic
    transfer    rows through TransferQueue, and the trainer's own work on them, one after the other
    sync        both adapters to every replica
"""

import argparse
import json
import math
import random
import statistics
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from agon_verl.trainer.memory import GIB, DecoderShape
from examples.gpu_settings import cached_token

SHAPES = {  # from the models' own config.json
    "qwen3-0.6b": DecoderShape(1024, 28, 16, 8, 128, 3072, 151_936, tied=True),
    "qwen2.5-1.5b": DecoderShape(1536, 28, 12, 2, 128, 8960, 151_936, tied=True),
    "qwen3-1.7b": DecoderShape(2048, 28, 16, 8, 128, 6144, 151_936, tied=True),
    "qwen3-4b": DecoderShape(2560, 36, 32, 8, 128, 9728, 151_936, tied=True),
    "qwen3-8b": DecoderShape(4096, 36, 32, 8, 128, 12_288, 151_936, tied=False),
}


@dataclass(frozen=True)
class Card:
    """By the maker's data sheet."""

    gib: float
    flops: float  # per second, bfloat16, dense
    bandwidth: float  # bytes of GPU memory per second
    node: float = 450e9  # bytes per second to the other GPUs of its node: NVLink, one direction
    network: float = 50e9  # bytes per second to other nodes: one port of 400 Gbit per GPU


CARDS = {"h100": Card(80, 989e12, 3.35e12), "h200": Card(141, 989e12, 4.8e12)}
NODE = 8  # GPUs


@dataclass(frozen=True)
class Engine:
    """vLLM with two adapters."""

    fixed: float = 2.5e-3  # seconds per step: kernels that wait for each other, scheduling. Fitted
    per_sequence: float = 0.0  # seconds per sequence and step on the host: 0.033e-3 where every token is a message
    bandwidth: float = 0.87  # share of the card's that reading weights and cache reaches. Fitted
    prefill: float = 0.4  # share of the card's arithmetic for prompts. Assumed
    sampler: float = 60.0  # bytes read or written per logit and token: 15 passes in float32 (docs/speed.md)
    collective: float = 15e-6  # seconds of one all-reduce of tensor parallelism, two per layer. Assumed


@dataclass(frozen=True)
class Trainer:
    """An update of one adapter."""

    micro_batch: int = 32_768  # tokens: actor.ppo_max_token_len_per_gpu
    checkpointing: bool = True
    fixed: float = 0.075  # seconds per micro-batch. Measured: micro-batches of 8,192 and 16,384 tokens
    fsdp: float = 0.061  # seconds per micro-batch that FSDP2 adds before any network. Measured
    efficiency: float = 0.25  # share of the card's arithmetic besides these. Measured at 1.5B
    weight_bytes: int = 2  # in which FSDP2 gathers the base
    shards: int | None = None  # GPUs that share the base: actor.fsdp_config.fsdp_size; None: all


@dataclass(frozen=True)
class Host:
    """What is done row by row in one process, and the sync."""

    per_row: float = 1.35e-3  # seconds in the trainer: advantages, metrics, rows read back. Measured
    controller: float = 0.9e-3  # seconds per row in TransferQueue's controller. Measured
    sync: float = 0.24  # seconds, one GPU without FSDP2. Measured
    sharded_sync: float = 0.80  # with FSDP2. Measured on one GPU
    hop: float = 20e-6  # seconds per collective and doubling of the ranks. Assumed


@dataclass(frozen=True)
class PairLengths:
    """Tokens of one pair."""

    draft_prompt: int
    draft: int
    challenge_prompt: int
    challenge: int


@dataclass(frozen=True)
class Setting:
    """One step. The defaults are the paper's, with the recipe's choices where the paper gives none."""

    shape: DecoderShape = SHAPES["qwen3-0.6b"]
    card: Card = CARDS["h100"]
    gpus: int = 8
    tp: int = 1
    problems: int = 32
    n: int = 8
    cap: int = 15_360
    mean: float = 4500  # of the geometric distribution, before it is cut at the cap
    problem: int = 150  # tokens of a prompt
    summary: int = 550  # tokens that a challenge's prompt has more
    max_num_seqs: int = 1024  # verl's default
    cache: float | None = None  # bytes per GPU; None: half of the card (verl's default share) less the weights
    live: float = 1.0  # share of the groups whose rewards differ; the others are not trained on
    rank: int = 16
    engine: Engine = field(default_factory=Engine)
    trainer: Trainer = field(default_factory=Trainer)
    host: Host = field(default_factory=Host)

    def __post_init__(self) -> None:
        if self.gpus % self.tp:
            raise ValueError(f"tp={self.tp} does not divide gpus={self.gpus}: choose a divisor")
        if self.cache_tokens < self.problem + self.summary + self.cap:
            raise ValueError(
                f"the cache of a replica has room for {self.cache_tokens:,.0f} tokens, less than one row of "
                f"{self.problem + self.summary + self.cap:,}: raise --cache, --tp or lower --cap"
            )

    @property
    def replicas(self) -> int:
        return self.gpus // self.tp

    @property
    def cache_tokens(self) -> float:
        """Of a replica."""
        weights = 2 * self.shape.parameters / self.tp
        per_gpu = self.cache if self.cache is not None else 0.5 * self.card.gib * GIB - weights - 3.5 * GIB
        return self.tp * per_gpu / cached_token(self.shape)

    def lengths(self, seed: int) -> list[PairLengths]:
        """Geometric: every token ends the completion with the same probability, and the cap ends it in any case."""
        chance = random.Random(seed)

        def length() -> int:
            return min(self.cap, 1 + int(-self.mean * math.log(1 - chance.random())))

        return [
            PairLengths(self.problem, length(), self.problem + self.summary, length())
            for _ in range(self.problems * self.n)
        ]


# Generation


@dataclass(eq=False)
class _Running:
    context: int
    left: int
    pair: PairLengths
    drafting: bool


@dataclass(frozen=True)
class Generation:
    """Of the slowest replica, in seconds; `fixed`, `reads` (memory) and `computes` are its parts."""

    seconds: float
    first_draft: float  # when the first draft has ended
    drafts: float  # when the last has
    fixed: float
    reads: float
    computes: float
    preempted: int


def token_flops(shape: DecoderShape, context: float) -> float:
    """Forward, of one token with that many before it. Embeddings are looked up; the output layer is computed."""
    products = shape.layers * shape.block + shape.vocabulary * shape.hidden
    return 2 * products + 4 * shape.layers * shape.heads * shape.head * context


def generate(pairs: Sequence[PairLengths], setting: Setting) -> Generation:
    """One replica. First come, first served: where the cache is full, the latest sequence waits and starts anew."""
    shape, card, engine, tp = setting.shape, setting.card, setting.engine, setting.tp
    bandwidth, capacity = engine.bandwidth * card.bandwidth * tp, setting.cache_tokens
    step = engine.fixed + (2 * shape.layers * engine.collective if tp > 1 else 0.0)
    weights = 2 * shape.parameters / bandwidth
    per_token = token_flops(shape, 0) / (engine.prefill * card.flops * tp)
    sampled = per_token + engine.sampler * shape.vocabulary / bandwidth + engine.per_sequence

    waiting = deque(_Running(pair.draft_prompt, pair.draft, pair, drafting=True) for pair in pairs)
    running: list[_Running] = []
    fixed = reads = computes = first = drafts = 0.0
    cached = preempted = 0
    while running or waiting:
        while waiting and len(running) < setting.max_num_seqs:
            if running and cached + waiting[0].context + len(running) + 1 > capacity:
                break
            running.append(waiting.popleft())
            cached += running[-1].context
            computes += running[-1].context * per_token
        count = len(running)
        steps = min(min(each.left for each in running), int(capacity - cached) // count)
        if steps < 1:
            last = running.pop()
            cached -= last.context
            preempted += 1
            waiting.appendleft(last)
            continue
        fixed += steps * step
        reads += steps * (weights + cached_token(shape) * (cached + count * (steps + 1) / 2) / bandwidth)
        computes += steps * count * sampled
        cached += steps * count
        for each in running:
            each.context += steps
            each.left -= steps
        now = fixed + reads + computes
        for each in [each for each in running if each.left == 0]:
            running.remove(each)
            cached -= each.context
            if each.drafting:
                first, drafts = first or now, now
                waiting.append(_Running(each.pair.challenge_prompt, each.pair.challenge, each.pair, drafting=False))
    return Generation(fixed + reads + computes, first, drafts, fixed, reads, computes, preempted)


# The other parts


def update_seconds(rows: Sequence[int], setting: Setting) -> float:
    """One adapter's update. Ranks get rows of about the same number of tokens; one row is never split."""
    if not rows:
        return 0.0
    trainer, shape, gpus = setting.trainer, setting.shape, setting.gpus
    ranks: list[list[int]] = [[] for _ in range(min(gpus, len(rows)))]
    loads = [0] * len(ranks)
    for row in sorted(rows, reverse=True):
        lightest = loads.index(min(loads))
        ranks[lightest].append(row)
        loads[lightest] += row
    flops = max(sum(row * _train_flops(shape, row, trainer.checkpointing) for row in own) for own in ranks)
    batches = math.ceil(max(loads) / trainer.micro_batch)
    fixed = trainer.fixed + (trainer.fsdp + 2 * gather_seconds(setting) if gpus > 1 else 0.0)
    return batches * fixed + flops / (trainer.efficiency * setting.card.flops) + reduce_seconds(setting)


def _train_flops(shape: DecoderShape, row: int, checkpointing: bool) -> float:
    """Per token: forward, gradients of activations (the base is frozen), and each block's forward again."""
    head = 2 * shape.vocabulary * shape.hidden
    blocks = token_flops(shape, row / 2) - head
    return 2 * head + (3 if checkpointing else 2) * blocks


def gather_seconds(setting: Setting) -> float:
    """The base of one forward or backward pass, where `shards` GPUs have a part each."""
    shards = min(setting.gpus, setting.trainer.shards or setting.gpus)
    wire = setting.card.node if shards <= NODE else setting.card.network
    latency = setting.shape.layers * setting.host.hop * math.log2(shards) if shards > 1 else 0.0
    size = setting.trainer.weight_bytes * setting.shape.parameters
    return size * (shards - 1) / shards / wire + latency


def reduce_seconds(setting: Setting) -> float:
    """The gradients of one adapter in float32, at the end of its update."""
    if setting.gpus == 1:
        return 0.0
    wire = setting.card.node if setting.gpus <= NODE else setting.card.network
    size = 4 * setting.shape.adapter(setting.rank)
    return 2 * size / wire + 2 * setting.shape.layers * setting.host.hop * math.log2(setting.gpus)


def sync_seconds(setting: Setting) -> float:
    """Ranks gather both adapters, two matrices per linear layer, and each hands them to the vLLM process beside it."""
    if setting.gpus == 1:
        return setting.host.sync
    tensors = 2 * 2 * len(setting.shape.linears) * setting.shape.layers
    wire = setting.card.node if setting.gpus <= NODE else setting.card.network
    size = 2 * 4 * setting.shape.adapter(setting.rank)
    return setting.host.sharded_sync + size / wire + tensors * setting.host.hop * math.log2(setting.gpus)


@dataclass(frozen=True)
class Step:
    """Seconds."""

    generation: Generation
    update: tuple[float, float]  # of the drafts' adapter and of the challenges'
    rows: float  # in the trainer, one after the other
    controller: float  # of TransferQueue, while pairs are sampled
    sync: float
    tokens: int  # generated

    @property
    def plain(self) -> float:
        return max(self.generation.seconds, self.controller) + sum(self.update) + self.rows + self.sync

    @property
    def streamed(self) -> float:
        """At best: the drafts' update takes nothing from the challenges that are sampled beside it."""
        sampled = max(self.generation.seconds, self.generation.drafts + self.update[0], self.controller)
        return sampled + self.update[1] + self.rows + self.sync

    @property
    def limit(self) -> str:
        """The largest part of the plain step."""
        parts = {
            "fixed time per token": self.generation.fixed,
            "cache and weights read": self.generation.reads,
            "arithmetic of sampling": self.generation.computes,
            "update": sum(self.update),
            "rows in one process": self.rows + max(0.0, self.controller - self.generation.seconds),
            "sync": self.sync,
        }
        return max(parts, key=lambda name: parts[name])


def step_of(pairs: Sequence[PairLengths], setting: Setting) -> Step:
    """Replicas get the pairs in turn; a live share below 1 leaves the last rows out of the updates."""
    replicas = [generate(own, setting) for r in range(setting.replicas) if (own := pairs[r :: setting.replicas])]
    trained = pairs[: round(setting.live * len(pairs))]
    return Step(
        generation=max(replicas, key=lambda each: each.seconds),
        update=(
            update_seconds([pair.draft_prompt + pair.draft for pair in trained], setting),
            update_seconds([pair.challenge_prompt + pair.challenge for pair in trained], setting),
        ),
        rows=2 * len(pairs) * setting.host.per_row,
        controller=2 * len(pairs) * setting.host.controller,
        sync=sync_seconds(setting),
        tokens=sum(pair.draft + pair.challenge for pair in pairs),
    )


def steps_of(setting: Setting, draws: int) -> list[Step]:
    return [step_of(setting.lengths(seed), setting) for seed in range(draws)]


def table(settings: Iterable[Setting], draws: int) -> str:
    """Medians over draws of the lengths."""
    lines = [
        "| GPUs | problems | pairs per replica | generation, s | of which fixed | reads | drafts' update "
        "| challenges' update | rows | sync | **step, s** | streamed at best | tokens/s per GPU | largest part |",
        "|" + "---|" * 14,
    ]
    for setting in settings:
        steps = steps_of(setting, draws)

        def middle(read: Callable[[Step], float], steps: list[Step] = steps) -> float:
            return statistics.median(map(read, steps))

        per_gpu = middle(lambda step: step.tokens / step.plain) / setting.gpus
        cells = [
            f"{setting.gpus}",
            f"{setting.problems}",
            f"{setting.problems * setting.n / setting.replicas:.3g}",
            f"{middle(lambda step: step.generation.seconds):.0f}",
            f"{middle(lambda step: step.generation.fixed):.0f}",
            f"{middle(lambda step: step.generation.reads):.0f}",
            f"{middle(lambda step: step.update[0]):.1f}",
            f"{middle(lambda step: step.update[1]):.1f}",
            f"{middle(lambda step: step.rows):.1f}",
            f"{middle(lambda step: step.sync):.1f}",
            f"**{middle(lambda step: step.plain):.0f}**",
            f"{middle(lambda step: step.streamed):.0f}",
            f"{per_gpu:,.0f}",
            statistics.mode(step.limit for step in steps),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


# A run beside the model


@dataclass(frozen=True)
class MeasuredStep:
    """Of a run that was not streamed: its pair records and metrics."""

    pairs: list[PairLengths]
    trained: tuple[list[int], list[int]]  # tokens of the rows of live groups, of either stream
    generation: float
    update: float

    @classmethod
    def read(cls, records: Path, metrics: Mapping[str, float]) -> "MeasuredStep":
        rows = [json.loads(line) for line in records.read_text(encoding="utf-8").splitlines()]
        trained = []
        for stream in ("draft", "challenge"):
            rewards: dict[str, set[float]] = {}
            for row in rows:
                rewards.setdefault(row["uid"], set()).add(row["pair"][f"{stream}_reward"])
            trained.append(
                [
                    row["pair"][f"{stream}_prompt_tokens"] + row["pair"][stream]["length"]
                    for row in rows
                    if len(rewards[row["uid"]]) > 1
                ]
            )
        pairs = [
            PairLengths(
                draft_prompt=pair["draft_prompt_tokens"],
                draft=pair["draft"]["length"],
                challenge_prompt=pair["challenge_prompt_tokens"],
                challenge=pair["challenge"]["length"],
            )
            for pair in (row["pair"] for row in rows)
        ]
        return cls(pairs, (trained[0], trained[1]), metrics["timing_s/gen"], metrics["timing_s/update_actor"])


def read_run(run: Path) -> dict[int, MeasuredStep]:
    """`metrics.jsonl` and `pairs/<step>.jsonl` of a run's folder."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    files = {line["step"]: run / "pairs" / f"{line['step']}.jsonl" for line in lines}
    return {
        line["step"]: MeasuredStep.read(files[line["step"]], line["data"])
        for line in lines
        if files[line["step"]].exists()
    }


def comparison(run: Mapping[int, MeasuredStep], setting: Setting) -> str:
    lines = [
        "| step | generation, s | computed | error | update, s | computed | error |",
        "|---|---|---|---|---|---|---|",
    ]
    errors: tuple[list[float], list[float]] = [], []
    for number, measured in sorted(run.items()):
        step = step_of(measured.pairs, setting)
        update = sum(update_seconds(rows, setting) for rows in measured.trained)
        cells = []
        for column, (seen, computed) in enumerate(
            ((measured.generation, step.generation.seconds), (measured.update, update))
        ):
            errors[column].append(computed / seen - 1)
            cells += [f"{seen:.2f}", f"{computed:.2f}", f"{computed / seen - 1:+.0%}"]
        lines.append(f"| {number} | {' | '.join(cells)} |")
    means = [f"{statistics.mean(map(abs, each)):.0%}" for each in errors]
    lines.append(f"| mean of the errors' sizes | | | {means[0]} | | | {means[1]} |")
    return "\n".join(lines)


def shape_of(name: str) -> DecoderShape:
    """A named shape, or the config.json of a model."""
    if name in SHAPES:
        return SHAPES[name]
    path = Path(name)
    config = path / "config.json" if path.is_dir() else path
    if not config.exists():
        raise SystemExit(f"--model {name}: neither a config.json nor one of {', '.join(SHAPES)}")
    shape = DecoderShape.of(json.loads(config.read_text(encoding="utf-8")))
    if shape is None:
        raise SystemExit(f"--model {name}: not a dense decoder (experts, recurrent layers or a missing field)")
    return shape


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default, engine, trainer = Setting(), Engine(), Trainer()
    parser.add_argument("--model", default="qwen3-0.6b", help=f"a config.json, or one of {', '.join(SHAPES)}")
    parser.add_argument("--card", choices=CARDS, default="h100")
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, 8, 64, 512])
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--problems", type=int, default=default.problems)
    parser.add_argument("--problems-per-gpu", type=int, metavar="N", help="a batch that grows with the GPUs")
    parser.add_argument("--n", type=int, default=default.n)
    parser.add_argument("--cap", type=int, default=default.cap)
    parser.add_argument("--mean", type=float, default=default.mean, help="tokens of a completion, before the cap")
    parser.add_argument("--summary", type=int, default=default.summary, help="tokens of a challenge's prompt more")
    parser.add_argument("--max-num-seqs", type=int, default=default.max_num_seqs)
    parser.add_argument("--cache", type=float, metavar="GIB", help="vLLM's, per GPU; half of the card less the weights")
    parser.add_argument("--live", type=float, default=1.0, help="share of the groups that are trained on")
    parser.add_argument("--shards", type=int, help="actor.fsdp_config.fsdp_size; all GPUs")
    parser.add_argument("--micro-batch", type=int, default=trainer.micro_batch)
    parser.add_argument("--no-checkpointing", action="store_true")
    parser.add_argument("--batch-ms", type=float, default=1e3 * trainer.fixed, help="fixed, per micro-batch")
    parser.add_argument("--step-ms", type=float, default=1e3 * engine.fixed, help="fixed, per step of vLLM's engine")
    parser.add_argument("--sequence-ms", type=float, default=1e3 * engine.per_sequence, help="per sequence and step")
    parser.add_argument("--draws", type=int, default=5, help="of the lengths")
    parser.add_argument("--check", type=Path, metavar="RUN", help="a folder with metrics.jsonl and pairs/, one GPU")
    args = parser.parse_args()
    setting = Setting(
        shape=shape_of(args.model),
        card=CARDS[args.card],
        gpus=args.tp,
        tp=args.tp,
        problems=args.problems,
        n=args.n,
        cap=args.cap,
        mean=args.mean,
        summary=args.summary,
        max_num_seqs=args.max_num_seqs,
        cache=args.cache and args.cache * GIB,
        live=args.live,
        engine=replace(engine, fixed=args.step_ms / 1e3, per_sequence=args.sequence_ms / 1e3),
        trainer=replace(
            trainer,
            micro_batch=args.micro_batch,
            checkpointing=not args.no_checkpointing,
            fixed=args.batch_ms / 1e3,
            shards=args.shards,
        ),
    )
    if args.check:
        print(comparison(read_run(args.check), setting))
        return
    per_gpu = args.problems_per_gpu
    settings = [
        replace(setting, gpus=gpus, problems=per_gpu * gpus if per_gpu else args.problems) for gpus in args.gpus
    ]
    print(table(settings, args.draws))


if __name__ == "__main__":
    main()
