"""How long a step takes: stock verl GRPO with 2N rollouts per problem, and Agon with N drafts and N challenges.

    python benchmarks/step_time.py --model MODEL --data DATA.parquet --mean-length 520 [--fair] [--only ARM …]

    stock    verl 0.9.1 as it comes: polls of 2 s, micro-batches of rows, padded where FlashAttention is missing
    fair     stock with what its best user would have: log-probs of all tokens at once and packed rows, which need
             FlashAttention or `fair_stock.py`, dynamic batches, polls of 0.1 s, one final output per request without
             text, and every setting of the Agon recipe that is not about the pair
    bypass   fair, and the rollout's log-probs as the old ones: no pass for them, but another loss; only with `--only`
    agon     the recipe; with vLLM's memory kept, updates are streamed
    plain    the recipe with `agon.streamed=false`

Without options stock and agon run, with `--fair` also fair and plain, one after the other on one machine. `--together`
starts them up at the same time, which takes minutes, and lets them step in turn; the GPU must have room for all, and
vLLM's cache a stated size (`…engine_kwargs.vllm.kv_cache_memory_bytes`). All arms have
the same model, problems and their order, caps, schedule and reward, and with `--mean-length` the same number of tokens
in each rollout (`fixed_lengths.py`). The reward is random (`coin_reward.py`), so that every group is live unless all
its completions are equal: the worst case for Agon, which skips dead groups while stock verl trains on them.

Each arm leaves its results in --out. An arm that is complete there is not run again, unless its settings have changed;
the table has the arms that are there, also incomplete ones (`--table` runs none). The first steps are warm-up and are
left out; the table has medians with the range, from verl's own timers. Rewards are computed during generation and have
no row; there is no reference pass, because the KL term is off.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from agon_verl.matrix.processes import processes

HERE = Path(__file__).resolve().parent
RECIPE = HERE.parent / "recipes" / "recipe" / "agon.yaml"
WARM_UP = 2
GRAPH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 384, 512, 640, 768, 1024, 1536, 2048)
STOCK, AGON = ("stock", "fair", "bypass"), ("agon", "plain")
ARMS = (*STOCK, *AGON)
TITLES = {
    "stock": "stock verl",
    "fair": "stock, fair",
    "bypass": "stock, bypass",
    "agon": "Agon",
    "plain": "Agon, plain",
}
PARTS = ("gen", "old_log_prob", "adv", "update_actor", "update_weights", "step")
EARLY = "early_update"  # what streamed updates do during generation
OF_THE_PAIR = {"model": {"lora"}, "actor": {"optim"}, "rollout": {"n", "agent", "val_kwargs"}}
STAGGER = 10.0  # seconds between the starts of two arms: as long as it takes to import verl
ONE_PROCESS = "vllm.v1.executor.uniproc_executor.UniProcExecutor"


class ArmFailed(Exception):
    """An arm has fewer steps than it should; those that were logged are in its metrics."""


@dataclass(frozen=True)
class Arm:
    name: str
    rollouts: int  # per step
    ranks: int
    steps: int
    overrides: tuple[str, ...]
    loop: dict[str, Any] | None = None  # replaces verl's agent loop of the same name
    modules: tuple[str, ...] = ()  # that verl imports


def shared(args: argparse.Namespace) -> list[str]:
    """Settings of all arms, in addition to their recipes."""
    workers = 2 if args.device == "cpu" else 4
    return [
        f"actor_rollout_ref.model.path={args.model}",
        f"data.train_files={args.data}",
        f"data.val_files={args.data}",
        f"data.train_batch_size={args.prompts}",
        f"data.max_prompt_length={args.prompt_length}",
        f"data.max_response_length={args.response_length}",
        "data.filter_overlong_prompts=true",
        "data.filter_overlong_prompts_workers=null",
        "data.dataloader_num_workers=0",
        "data.seed=0",
        f"actor_rollout_ref.rollout.max_model_len={args.prompt_length + args.response_length}",
        "actor_rollout_ref.rollout.max_num_seqs=512",
        f"actor_rollout_ref.rollout.agent.num_workers={workers}",
        "actor_rollout_ref.rollout.tensor_model_parallel_size=1",
        "actor_rollout_ref.rollout.gpu_memory_utilization=0.3",
        "actor_rollout_ref.rollout.load_format=safetensors",
        "actor_rollout_ref.rollout.calculate_log_probs=true",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={args.prompts}",
        "actor_rollout_ref.actor.strategy=fsdp2",
        "actor_rollout_ref.actor.use_torch_compile=false",
        "actor_rollout_ref.actor.fsdp_config.use_torch_compile=false",
        "actor_rollout_ref.actor.optim.lr=5e-5",
        "actor_rollout_ref.actor.optim.lr_scheduler_type=constant",
        "actor_rollout_ref.actor.optim.lr_warmup_steps_ratio=0",
        "actor_rollout_ref.model.lora_rank=16",
        "actor_rollout_ref.model.lora_alpha=32",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units=2",
        "+ray_kwargs.ray_init.include_dashboard=false",
        f"reward.num_workers={workers}",
        f"reward.custom_reward_function.path={HERE / 'coin_reward.py'}",
        "+reward.custom_reward_function.reward_kwargs.ties=false",
        f"trainer.total_training_steps={args.steps}",
        "trainer.total_epochs=1000",  # total_training_steps ends the run
        f"trainer.n_gpus_per_node={args.ranks}",
        "trainer.nnodes=1",
        "trainer.logger=[console,file]",
        "trainer.val_before_train=false",
        "trainer.test_freq=-1",
        "trainer.save_freq=-1",
        "trainer.resume_mode=disable",
    ]


def on_cpu(ranks: int) -> list[str]:
    """What verl needs on a machine without an accelerator, for stock as for Agon."""
    return [
        "trainer.device=cpu",
        "ray_kwargs.ray_init.num_cpus=16",
        "+ray_kwargs.ray_init._system_config.task_events_max_num_task_in_gcs=10000",
        f"+ray_kwargs.ray_init.num_gpus={ranks}",
        "actor_rollout_ref.rollout.dtype=float32",
        "actor_rollout_ref.rollout.enforce_eager=true",
        "actor_rollout_ref.rollout.free_cache_engine=false",
        "+actor_rollout_ref.rollout.enable_sleep_mode=false",
        "actor_rollout_ref.model.enable_gradient_checkpointing=false",
        "+actor_rollout_ref.actor.fsdp_config.mixed_precision={param_dtype:fp32,reduce_dtype:fp32,buffer_dtype:fp32}",
    ]


def plain_batches(args: argparse.Namespace) -> list[str]:
    """verl's default: micro-batches of rows. As many as the tokens allow if all were as long as they may be."""
    rows = 2 * args.n * args.prompts // args.ranks
    most = max(1, args.micro_tokens // (args.prompt_length + args.response_length))
    micro = max(size for size in range(1, min(rows, most) + 1) if rows % size == 0)
    return [
        "actor_rollout_ref.actor.use_dynamic_bsz=false",
        f"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu={micro}",
        f"actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu={micro}",
    ]


def fast_batches(args: argparse.Namespace) -> list[str]:
    """Of the fair stock and of Agon: dynamic micro-batches; vLLM keeps its memory during an update; on a GPU what
    `examples/gpu_settings.py` chooses where memory allows."""
    on_gpu = [
        "actor_rollout_ref.model.enable_gradient_checkpointing=false",
        "actor_rollout_ref.actor.fsdp_config.model_dtype=bf16",
        f"actor_rollout_ref.rollout.cudagraph_capture_sizes={[*GRAPH_SIZES]}".replace(" ", ""),
    ]
    return [
        "actor_rollout_ref.actor.use_dynamic_bsz=true",
        f"actor_rollout_ref.actor.ppo_max_token_len_per_gpu={args.micro_tokens}",
        "actor_rollout_ref.rollout.free_cache_engine=false",
        *([] if args.device == "cpu" else on_gpu),
    ]


def layout(packed: bool, attention: str | None = None) -> list[str]:
    """Of the rows in training; verl's own choice of attention is FlashAttention, installed or not."""
    attention = attention if packed else "sdpa"
    chosen = [f"++actor_rollout_ref.model.override_config.attn_implementation={attention}"] if attention else []
    return [f"actor_rollout_ref.model.use_remove_padding={str(packed).lower()}", *chosen]


def of_the_recipe() -> list[str]:
    """The settings of model, training and vLLM in the Agon recipe that any user of verl can make."""
    recipe = OmegaConf.to_container(OmegaConf.load(RECIPE), resolve=False)
    assert isinstance(recipe, dict)
    sections: dict[str, dict[str, Any]] = recipe["actor_rollout_ref"]
    kept = {name: {k: v for k, v in s.items() if k not in OF_THE_PAIR[name]} for name, s in sections.items()}
    return [f"++actor_rollout_ref.{name}={value}" for name, value in _leaves(kept)]


def _leaves(tree: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{rest}", leaf) for rest, leaf in _leaves(value))
        else:
            yield name, json.dumps(value).replace('"', "")


def arms(args: argparse.Namespace) -> dict[str, Arm]:
    flash, packed = _flash_attention(), args.layout == "packed"
    polls = [
        "trainer.v1.sampler.custom_sampler.path=pkg://agon_verl.rollout.buffer",
        "trainer.v1.sampler.custom_sampler.name=PairBuffer",
    ]
    one_process = f"+actor_rollout_ref.rollout.engine_kwargs.vllm.distributed_executor_backend={ONE_PROCESS}"
    grpo = ["algorithm.adv_estimator=grpo", "actor_rollout_ref.rollout.name=vllm"]
    fair = [
        *grpo,
        *of_the_recipe(),
        *polls,
        *fast_batches(args),
        *layout(packed, None if flash else "packed_sdpa"),
        *([one_process] if args.device == "cpu" else []),
    ]
    agon = ["+recipe=agon", "agon.alarms.stop=[]", *fast_batches(args), *layout(packed)]
    own = {
        "stock": [*grpo, *plain_batches(args), *layout(flash)],
        "fair": fair,
        "bypass": [*fair, "algorithm.rollout_correction.bypass_mode=true"],
        "agon": [*agon, "agon.streamed=true"],
        "plain": [*agon, "agon.streamed=false"],
    }
    return {name: _arm(name, overrides, args) for name, overrides in own.items()}


def _arm(name: str, own: list[str], args: argparse.Namespace) -> Arm:
    turn = str(turn_of(name, args.out)) if args.together else None
    stock, lengths = name in STOCK, {"mean": args.mean_length, "seed": args.seed, "wait_for": turn}
    loop: dict[str, Any] | None = None
    if stock and (args.mean_length or turn or name != "stock"):
        target = {"name": "single_turn_agent", "_target_": "benchmarks.fixed_lengths.FixedSingleTurn"}
        loop = {**target, **lengths, "lean": name != "stock"}
    elif args.mean_length or turn:
        loop = {"name": "agon", "_target_": "benchmarks.fixed_lengths.FixedPair", **lengths}
    overrides = [
        *own,
        f"actor_rollout_ref.rollout.n={2 * args.n if stock else args.n}",
        *shared(args),
        *(on_cpu(args.ranks) if args.device == "cpu" else []),
        *_further(name, args.overrides),
    ]
    modules = [] if not stock else ["benchmarks.own_socket", *(["benchmarks.fair_stock"] if name != "stock" else [])]
    return Arm(name, 2 * args.n * args.prompts, args.ranks, args.steps, tuple(overrides), loop, tuple(modules))


def _further(arm: str, overrides: Sequence[str]) -> list[str]:
    """Those of the user; `ARM:setting=value` is for one arm."""
    others = tuple(f"{name}:" for name in ARMS if name != arm)
    return [text.removeprefix(f"{arm}:") for text in overrides if not text.startswith(others)]


def _flash_attention() -> bool:
    try:
        version("flash-attn")
    except PackageNotFoundError:
        return False
    return True


def run(name: str, arm: Arm, out: Path, watch: Callable[[str, Path], None] | None = None) -> Path:
    """`watch` is called several times per second, with a variable that marks the run's processes, and the metrics."""
    metrics = out / f"{name}.jsonl"
    for old in (metrics, out / f"{name}.first"):
        old.unlink(missing_ok=True)
    (out / f"{name}.arm.json").write_text(json.dumps(asdict(arm)))
    overrides = [*arm.overrides, f"trainer.default_local_dir={out / name}"]
    if arm.name in AGON:  # written between steps, for `timeline.py`
        overrides.append(f"trainer.rollout_data_dir={out / name / 'pairs'}")
    if arm.loop:
        loops = out / f"{name}.loop.yaml"
        loops.write_text(OmegaConf.to_yaml(OmegaConf.create([arm.loop])))
        overrides.append(f"actor_rollout_ref.rollout.agent.agent_loop_config_path={loops}")
    with (
        tempfile.TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True) as ray_dir,  # Ray ends later
        (out / f"{name}.log").open("w") as log,
    ):
        # The last one keeps the others readable in Ray's processes, which change their names.
        environment = {**os.environ, "VERL_FILE_LOGGER_PATH": str(metrics), "RAY_TMPDIR": ray_dir, "SPT_NOENV": "1"}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(HERE.parent), os.environ.get("PYTHONPATH"))))
        if arm.modules:
            environment["VERL_USE_EXTERNAL_MODULES"] = ",".join(arm.modules)
        begun, first = time.time(), 0.0
        waits = arm.loop is not None and arm.loop["wait_for"]
        process = subprocess.Popen(
            [sys.executable, "-m", "verl.trainer.main_ppo", *overrides],
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            while process.poll() is None:
                if not first and not waits and metrics.exists() and metrics.stat().st_size:
                    first = time.time() - begun
                    (out / f"{name}.first").write_text(f"{first:.1f}")
                if watch:
                    watch(f"RAY_TMPDIR={ray_dir}", metrics)
                time.sleep(0.2)
        finally:
            send(f"RAY_TMPDIR={ray_dir}", signal.SIGCONT)  # a process that is halted does not end
            process.terminate()
            process.wait()
    if process.returncode or not complete(name, arm, out):
        raise ArmFailed(f"{name} ended after {len(_logged(out, name))} steps: see {out / f'{name}.log'}")
    return metrics


def run_in_turn(chosen: Mapping[str, Arm], out: Path) -> list[str]:
    """Returns what failed; the others can still be measured."""
    problems = []
    for name, arm in chosen.items():
        try:
            run(name, arm, out)
        except ArmFailed as error:
            problems.append(str(error))
    return problems


def send(variable: str, sent: signal.Signals) -> None:
    """To all processes with this variable, also to those that are started meanwhile."""
    reached: set[int] = set()
    while new := {*processes(variable)} - reached:
        for process in new:
            with suppress(ProcessLookupError):
                os.kill(process, sent)
        reached |= new


def turn_of(name: str, out: Path) -> Path:
    """The file that an arm waits for, if several start together."""
    return out / f"{name}.turn"


def waits_at(turn: Path) -> Path:
    """What `fixed_lengths.py` writes when an arm is ready for its turn."""
    return Path(f"{turn}.waits")


def run_together(chosen: Mapping[str, Arm], out: Path) -> list[str]:
    """Start the arms up, and when all of them wait or have ended, let one after the other step. Returns what failed.

    The processes of an arm that waits are halted, so that they take nothing from the one that steps.
    """
    turns, stopped, problems = {name: turn_of(name, out) for name in chosen}, threading.Event(), []
    for turn in turns.values():
        for old in (turn, waits_at(turn)):
            old.unlink(missing_ok=True)

    def halting(turn: Path) -> Callable[[str, Path], None]:
        halted = False

        def watch(variable: str, _: Path) -> None:
            nonlocal halted
            if stopped.is_set():
                raise ArmFailed("stopped")
            waits = waits_at(turn).exists() and not turn.exists()
            if waits != halted:
                send(variable, signal.SIGSTOP if waits else signal.SIGCONT)
                halted = waits

        return watch

    with ThreadPoolExecutor(len(chosen) or 1) as pool:
        try:
            ends = {}
            for name, arm in chosen.items():
                ends[name] = pool.submit(run, name, arm, out, halting(turns[name]))
                time.sleep(STAGGER)
            while not all(ends[name].done() or waits_at(turn).exists() for name, turn in turns.items()):
                time.sleep(0.2)
            for name, turn in turns.items():
                turn.touch()
                if isinstance(error := ends[name].exception(), ArmFailed):
                    problems.append(str(error))
                elif error:
                    raise error
        except BaseException:  # also the end by a signal
            stopped.set()
            raise
    return problems


def complete(name: str, arm: Arm, out: Path) -> bool:
    """Whether all steps of this arm, with these settings, are there."""
    settings = out / f"{name}.arm.json"
    same = settings.exists() and json.loads(settings.read_text()) == json.loads(json.dumps(asdict(arm)))
    return same and len(_logged(out, name)) >= arm.steps


def _logged(out: Path, name: str) -> list[dict[str, float]]:
    """The metrics of each step; a run that was stopped may have left half a line."""
    metrics = out / f"{name}.jsonl"
    lines = metrics.read_text().split("\n")[:-1] if metrics.exists() else []
    return [json.loads(line)["data"] for line in lines]


def measured(out: Path, name: str) -> dict[str, list[float]]:
    """The values of each row of the table, one per step after warm-up."""
    arm = Arm(**json.loads((out / f"{name}.arm.json").read_text()))
    logged = _logged(out, name)
    rows: dict[str, list[float]] = {}
    for step in (s for s in logged if s.get("training/global_step", 0) > WARM_UP):
        seconds = {part: step.get(f"timing_s/{part}", 0.0) for part in (*PARTS, EARLY)}
        trained = seconds["old_log_prob"] + seconds["update_actor"] + seconds[EARLY]
        # The mean over ranks, of each stream; Agon leaves dead groups out and fills batches up.
        tokens = arm.ranks * sum(value for key, value in step.items() if key.endswith("global_seqlen/mean"))
        generated = arm.rollouts * step["response_length/mean"]
        memory = [value for key, value in step.items() if key.endswith("perf/max_memory_allocated_gb")]
        values = {
            "gen, s": seconds["gen"],
            f"of which {EARLY}, s": seconds[EARLY],
            **{f"{part}, s": seconds[part] for part in PARTS[1:-1]},
            "rest, s": seconds["step"] - sum(seconds[part] for part in PARTS[:-1]),
            "step, s": seconds["step"],
            "tokens generated": generated,
            "tokens trained on": tokens,
            "tokens generated per second of gen": generated / seconds["gen"],
            "tokens trained on per second of old_log_prob and updates": tokens / trained,
            "tokens generated per second of the step": generated / seconds["step"],
            "peak training memory, GiB": max(memory),
        }
        for row, value in values.items():
            rows.setdefault(row, []).append(value)
    if rows and (out / f"{name}.first").exists():
        rows["start-up, s"] = [float((out / f"{name}.first").read_text()) - logged[0]["timing_s/step"]]
    return rows


def table(results: Mapping[str, Mapping[str, list[float]]]) -> str:
    """One column per arm, then the ratios of the medians: each Agon arm to each stock one."""
    ratios = [(agon, stock) for agon in AGON for stock in STOCK if agon in results and stock in results]
    steps = {name: len(rows["step, s"]) for name, rows in results.items()}
    heads = [f"{TITLES[name]} ({steps[name]} steps)" for name in results]
    heads += [f"{TITLES[agon]} / {TITLES[stock]}" for agon, stock in ratios]
    lines = [f"| median (range) | {' | '.join(heads)} |", "|---|" + "---|" * len(heads)]
    for row in dict.fromkeys(row for rows in results.values() for row in rows):
        values = {name: rows.get(row, []) for name, rows in results.items()}
        if any(any(own) for own in values.values()):
            cells = [_cell(own) for own in values.values()]
            cells += [_ratio(values[agon], values[stock]) for agon, stock in ratios]
            lines.append(f"| {row} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(values: list[float]) -> str:
    if not any(values):
        return "–"
    digits = 0 if statistics.median(values) >= 1000 else 2
    low, middle, high = (f"{v:,.{digits}f}" for v in (min(values), statistics.median(values), max(values)))
    return middle if low == high else f"{middle} ({low}–{high})"


def _ratio(agon: list[float], stock: list[float]) -> str:
    return f"{statistics.median(agon) / statistics.median(stock):.2f}" if any(agon) and any(stock) else "–"


def unequal_work(results: Mapping[str, Mapping[str, list[float]]]) -> str | None:
    """Which arms generated other numbers of tokens than the first one, in a step that both have measured."""
    (first, rows), *others = results.items()
    expected = rows["tokens generated"]
    pairs = {name: list(zip(own["tokens generated"], expected, strict=False)) for name, own in others}
    wrong = [name for name, own in pairs.items() if any(round(a) != round(b) for a, b in own)]
    return f"{', '.join(wrong)} did not generate as many tokens as {first}" if wrong else None


def arguments(description: str | None, out: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--steps", type=int, default=8, help=f"the first {WARM_UP} are warm-up")
    parser.add_argument("--n", type=int, default=8)
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--prompt-length", type=int, default=512)
    parser.add_argument("--response-length", type=int, default=256)
    parser.add_argument("--mean-length", type=float, help="of the rollouts, in tokens; without it the model ends them")
    parser.add_argument("--seed", type=int, default=0, help="of the lengths")
    parser.add_argument("--micro-tokens", type=int, default=8192, help="tokens of a micro-batch in training")
    parser.add_argument("--layout", choices=("packed", "padded"), help="of rows, except in stock; padded on a CPU")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument(
        "--together",
        action="store_true",
        help="start all arms up at the same time, then step in turn; the table then has no start-up time",
    )
    parser.add_argument(
        "overrides", nargs="*", help="further settings, as verl's command takes them; ARM:setting=value for one arm"
    )
    parser.add_argument("--out", type=lambda path: Path(path).absolute(), default=Path(out).absolute())
    return parser


def parsed(parser: argparse.ArgumentParser) -> argparse.Namespace:
    args = parser.parse_args()
    args.layout = args.layout or ("padded" if args.device == "cpu" else "packed")
    if args.mean_length and not 1 < args.mean_length < args.response_length:
        parser.error(f"--mean-length {args.mean_length} must be between 1 and --response-length {args.response_length}")
    args.out.mkdir(parents=True, exist_ok=True)
    return args


def default_arm(args: argparse.Namespace) -> Arm:
    """Agon as its recipes have it: on a CPU updates are not streamed."""
    return arms(args)["plain" if args.device == "cpu" else "agon"]


def main() -> None:
    parser = arguments(__doc__, "outputs/step_time")
    parser.add_argument("--fair", action="store_true", help="also the fair stock, and Agon without streamed updates")
    parser.add_argument("--only", nargs="+", choices=ARMS, metavar="ARM", help=f"which to run, of {', '.join(ARMS)}")
    parser.add_argument("--table", action="store_true", help="run nothing")
    args = parsed(parser)
    chosen = args.only or (("stock", "fair", "agon", "plain") if args.fair else ("stock", "agon"))
    missing = {n: a for n, a in arms(args).items() if n in chosen and not args.table and not complete(n, a, args.out)}
    problems = run_together(missing, args.out) if args.together else run_in_turn(missing, args.out)
    there = {name: measured(args.out, name) for name in ARMS if (args.out / f"{name}.arm.json").exists()}
    results = {name: rows for name, rows in there.items() if rows}
    if results:
        (args.out / "table.md").write_text(table(results) + "\n")
        print(table(results))
        if args.mean_length and (unequal := unequal_work(results)):
            problems.append(f"the arms cannot be compared: {unequal}")
    if problems:
        raise SystemExit("\n".join(problems))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped: repeat the command for the other arms"))
    main()
