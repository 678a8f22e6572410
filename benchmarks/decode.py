"""Milliseconds per generated token in vLLM alone, by settings, number of sequences and adapters.

    python -m benchmarks.decode --model MODEL --out decode.jsonl                      # all variants
    python -m benchmarks.decode --model MODEL --out decode.jsonl --variants baseline uniproc v2_runner+sends_once
    python -m benchmarks.decode --model MODEL --cache 4 --together --variants baseline sends_once
    python -m benchmarks.decode --out decode.jsonl --table                            # what is measured so far
    python -m benchmarks.decode --model MODEL --variants baseline --sequences 256 --adapters 2 --profile TRACES
    python -m benchmarks.decode --model MODEL --tokens 32 400 --sequences 128 --adapters 2 --joining 40 900
    python -m benchmarks.decode --model TINY --context 32 --tokens 8 24 --sequences 1 8 --variants baseline    (a CPU)

`baseline` has the engine arguments that verl 0.9.1 passes for `examples.one_gpu` (`examples/gpu_settings.py`); each
other variant changes one thing, and `a+b` has the changes of both. Every variant is a process of its own with a time
limit; one that fails says why, and the next one starts. Each cell is written as soon as it is measured. `--together`
starts the engines of all variants first and measures round by round, each variant in turn: what disturbs the machine
for a while then disturbs all of them. The GPU must have room for all, and the cache a stated size (`--cache`).

A cell generates T1 and then T2 tokens with every sequence, after the same prompts, in turns: the difference of the two
times over T2 - T1 is the time of a token, without prompts, requests and answers. Of two adapters each has every other
sequence. Eight sequences share a prompt, as the drafts of a problem do. `cpu` has each process's processor time per
token: the server that sends requests, vLLM's engine core, its worker. What is close to the time of a token waits for
no other.

`--joining 40 900` measures instead what a prompt of 900 tokens costs that joins the sequences, as a challenge does: 40
of them begin, 20 ms apart, while T2 tokens are generated, and the time is compared with that without them.
"""

import argparse
import asyncio
import gzip
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count, pairwise
from pathlib import Path
from typing import Any

from agon_verl.rollout.wire import WORKER_EXTENSION
from examples.gpu_settings import GRAPH_SIZES, graph_sizes

RANK = 16
SHARED = 8  # sequences per prompt
TICKS = os.sysconf("SC_CLK_TCK")
JOINING = 0.02  # seconds from one prompt that joins to the next
GAP = 5.0  # µs between two kernels that count as a gap
LAUNCH = "cudaGraphLaunch"
NGRAM = {"num_speculative_tokens": 3, "prompt_lookup_max": 4, "prompt_lookup_min": 2}


@dataclass(frozen=True)
class Variant:
    """What differs from verl's settings, and the change that is expected."""

    why: str
    engine: Mapping[str, Any] = field(default_factory=dict)
    compilation: Mapping[str, Any] = field(default_factory=dict)
    sampling: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    lora: bool = True

    def __add__(self, other: "Variant") -> "Variant":
        return Variant(
            f"{self.why}; {other.why}",
            {**self.engine, **other.engine},
            {**self.compilation, **other.compilation},
            {**self.sampling, **other.sampling},
            {**self.environment, **other.environment},
            self.lora and other.lora,
        )


ONCE = {"scheduler_cls": "agon_verl.rollout.scheduler.sends_once"}
EXTENSION = {"worker_extension_cls": WORKER_EXTENSION}
VARIANTS = {
    "baseline": Variant("as verl starts vLLM"),
    "untuned": Variant(
        "the adapters' kernels as vLLM chooses them, where the shell names tuned ones (lora_kernels.py)",
        environment={"VLLM_TUNED_CONFIG_FOLDER": ""},
    ),
    "sends_once": Variant("tokens leave the engine once per request: less work in two processes", ONCE),
    "extension": Variant(
        "which token uses which adapter is recorded on the CPU: cheaper prompts (--joining)",
        EXTENSION,
    ),
    "v2_runner": Variant(
        "vLLM's second model runner: inputs prepared on the GPU", environment={"VLLM_USE_V2_MODEL_RUNNER": "1"}
    ),
    "uniproc": Variant("no hop to a worker's process, one interpreter", {"distributed_executor_backend": "uni"}),
    "dual_stream": Variant("adapters beside the base's products", environment={"VLLM_LORA_ENABLE_DUAL_STREAM": "1"}),
    "specialize": Variant("graphs by the number of adapters in the batch", {"specialize_active_lora": True}),
    "no_log_probs": Variant("lower bound: none are returned", sampling={"logprobs": None}),
    "flat_log_probs": Variant("fewer objects per token in the server", sampling={"flat_logprobs": True}),
    "raw_log_probs": Variant("before the temperature: no second softmax", {"logprobs_mode": "raw_logprobs"}),
    "no_lora": Variant("lower bound: an engine without slots for adapters", lora=False),
    "in_turn": Variant("upper bound: each step is scheduled after the one before", {"async_scheduling": False}),
    "decode_graphs": Variant(
        "no graphs of prompts: a shorter start", compilation={"cudagraph_mode": "FULL_DECODE_ONLY"}
    ),
    "lora_graphs": Variant(
        "no graphs without adapters: a shorter start", compilation={"cudagraph_specialize_lora": False}
    ),
    "prompt_graphs": Variant(
        "graphs up to a prompt that joins", compilation={"cudagraph_capture_sizes": graph_sizes(512, 1536)}
    ),
    "full_graphs": Variant(
        "one graph per batch, also with prompts, without torch.compile: a shorter start, cheaper prompts",
        compilation={"mode": 0, "cudagraph_mode": "FULL", "cudagraph_capture_sizes": graph_sizes(512, 1536)},
    ),
    "all_graphs": Variant("vLLM's own 51 sizes: less padding", compilation={"cudagraph_capture_sizes": None}),
    "no_sleep": Variant("memory that is never given back", {"enable_sleep_mode": False}),
    "no_prefix_cache": Variant("no hashes of blocks", {"enable_prefix_caching": False}),
    "ngram": Variant("three tokens guessed from the text", {"speculative_config": {"method": "ngram", **NGRAM}}),
    "ngram_gpu": Variant("the same on the GPU", {"speculative_config": {"method": "ngram_gpu", **NGRAM}}),
}


@dataclass(frozen=True)
class Cell:
    variant: str
    sequences: int
    adapters: int
    ms: float  # per token of a sequence, which is per step of the engine
    low: float  # of the rounds
    high: float
    cpu: Mapping[str, float]  # ms per token, by process
    context: int  # tokens of a prompt
    vllm: str


@dataclass(frozen=True)
class Joined:
    variant: str
    sequences: int
    adapters: int
    length: int  # of a prompt that joins
    ms: float  # that it costs
    low: float  # of the rounds
    high: float


@dataclass(frozen=True)
class Failure:
    variant: str
    error: str


@dataclass(frozen=True)
class Started:
    variant: str
    seconds: float  # from the start of the process to the first answer
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class GpuTime:
    """Of the decoding steps in a trace, in ms per step."""

    steps: int
    step: float
    busy: float
    gaps: float  # of more than GAP µs
    kernels: tuple[tuple[str, float, float], ...]  # name, ms per step, calls per step
    largest: tuple[tuple[str, float], ...]  # kernels around the gaps with the most time, ms per step


def chosen(name: str) -> Variant:
    parts = [VARIANTS[part] for part in name.split("+")]
    return sum(parts[1:], parts[0])


def engine_arguments(
    variant: Variant, model: str, rows: int, longest: int, memory: float, cpu: bool, cache: float | None = None
) -> dict[str, Any]:
    """vllm_async_server.py:286-430 of verl 0.9.1, with the recipe's values and those of examples/gpu_settings.py.

    `memory` is a share of the GPU; with `cache`, in GiB, vLLM does not measure how much is left.
    """
    sizes = [size for size in GRAPH_SIZES if size <= rows]
    graphs = {"cudagraph_mode": "FULL_AND_PIECEWISE", "cudagraph_capture_sizes": sizes, **variant.compilation}
    arguments: dict[str, Any] = {
        "model": model,
        "dtype": "float32" if cpu else "bfloat16",
        "load_format": "safetensors",
        "distributed_executor_backend": "mp",
        "max_model_len": longest,
        "max_num_seqs": rows,
        "enable_chunked_prefill": True,
        "max_num_batched_tokens": 8192,
        "enable_prefix_caching": True,
        "enable_sleep_mode": not cpu,
        "logprobs_mode": "processed_logprobs",
        "enforce_eager": cpu,
        "gpu_memory_utilization": memory,
        "disable_log_stats": True,
        "tensor_parallel_size": 1,
        "seed": 0,
        "scheduling_policy": "fcfs",
        "compilation_config": {key: value for key, value in graphs.items() if value is not None},
    }
    if cache:
        arguments["kv_cache_memory_bytes"] = int(cache * 2**30)
    if variant.lora:
        arguments |= {"enable_lora": True, "max_loras": 2, "max_lora_rank": RANK}
    if cpu:
        from agon_verl.cpu.platform import ONE_PROCESS

        arguments |= {
            "distributed_executor_backend": ONE_PROCESS,
            "worker_extension_cls": "agon_verl.cpu.lora.LoraOnCpu",
        }
        del arguments["gpu_memory_utilization"], arguments["compilation_config"]
    return arguments | dict(variant.engine)


def make_adapters(model: str, folder: Path) -> list[Path]:
    """Two of random weights for every linear layer but the output's, from the model's shape alone."""
    import torch
    from safetensors.torch import save_file
    from transformers import AutoConfig, AutoModelForCausalLM

    with torch.device("meta"):
        shape = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(model))
    layers = {
        name: module
        for name, module in shape.named_modules()
        if isinstance(module, torch.nn.Linear) and not name.endswith("lm_head")
    }
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": RANK,
        "lora_alpha": 2 * RANK,
        "target_modules": sorted({name.rsplit(".", 1)[-1] for name in layers}),
    }
    for seed, adapter in enumerate("AB"):
        torch.manual_seed(seed)
        (folder / adapter).mkdir()
        tensors = {}
        for name, layer in layers.items():
            tensors[f"base_model.model.{name}.lora_A.weight"] = 0.01 * torch.randn(RANK, layer.in_features)
            tensors[f"base_model.model.{name}.lora_B.weight"] = 0.01 * torch.randn(layer.out_features, RANK)
        save_file(tensors, folder / adapter / "adapter_model.safetensors")
        (folder / adapter / "adapter_config.json").write_text(json.dumps(config))
    return [folder / adapter for adapter in "AB"]


def cpu_seconds(root: int) -> dict[str, float]:
    """Processor time of a process and of all below it, by name; those of the same name together."""
    parents, spent, names = {}, {}, {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            text, command = (entry / "stat").read_text(), (entry / "cmdline").read_text()
        except OSError:  # it has ended
            continue
        fields = text[text.rindex(")") + 2 :].split()
        pid = int(entry.name)
        parents[pid], spent[pid] = int(fields[1]), (int(fields[11]) + int(fields[12])) / TICKS
        names[pid] = command.split("\0")[0].split("_")[0].removeprefix("VLLM::") if command.startswith("VLLM::") else ""
    own: dict[str, float] = {}
    for pid in spent:
        ancestor = pid
        while ancestor not in (root, 0):
            ancestor = parents.get(ancestor, 0)
        if ancestor == root and (pid == root or names[pid]):
            name = "server" if pid == root else names[pid]
            own[name] = own.get(name, 0.0) + spent[pid]
    return own


class Measured:
    """One variant's engine, in this process."""

    def __init__(self, name: str, options: argparse.Namespace, adapters: Sequence[Path]) -> None:
        from vllm import SamplingParams
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.lora.request import LoRARequest
        from vllm.sampling_params import RequestOutputKind
        from vllm.v1.engine.async_llm import AsyncLLM

        from agon_verl.cpu.platform import cpu_only

        self._name, self._variant, self._options = name, chosen(name), options
        longest = max(options.context + max(options.tokens), options.joining[1] if options.joining else 0) + 8
        arguments = engine_arguments(
            self._variant, options.model, max(options.sequences), longest, options.memory, cpu_only(), options.cache
        )
        if options.profile:
            folder = str((options.profile / name).resolve())
            kind = {"profiler": "torch", "torch_profiler_dir": folder, "torch_profiler_with_stack": False}
            arguments["profiler_config"] = {**kind, "ignore_frontend": True}
        self.arguments = arguments
        self._llm = AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments))
        self._sampling = lambda tokens: SamplingParams(
            **{
                "max_tokens": tokens,
                "temperature": 1.0,
                "logprobs": 0,
                "ignore_eos": True,
                "detokenize": False,
                "output_kind": RequestOutputKind.FINAL_ONLY,
                **self._variant.sampling,
            }
        )
        self._loras = [LoRARequest(path.name, number, str(path)) for number, path in enumerate(adapters, 1)]
        self._vocabulary = min(self._llm.model_config.get_vocab_size(), 10_000)
        self._numbers = count()

    def close(self) -> None:
        self._llm.shutdown()

    async def _answer(self, first: int, prompt: int, tokens: int, lora: Any) -> None:
        """A request with a prompt of that many tokens; those with the same first one are equal."""
        ids = [5 + (first + 31 * place) % (self._vocabulary - 5) for place in range(prompt)]
        async for output in self._llm.generate(
            {"prompt_token_ids": ids}, self._sampling(tokens), f"{next(self._numbers)}", lora_request=lora
        ):
            last = output
        if (length := len(last.outputs[0].token_ids)) != tokens:
            raise RuntimeError(f"a request of {tokens} tokens was answered with {length}")

    async def generate(self, sequences: int, adapters: int, tokens: int) -> float:
        loras = self._loras[:adapters] or [None]
        started = time.perf_counter()
        await asyncio.gather(
            *(
                self._answer(97 * (number // SHARED), self._options.context, tokens, loras[number % len(loras)])
                for number in range(sequences)
            )
        )
        return time.perf_counter() - started

    async def joined(self, sequences: int, adapters: int) -> Joined:
        prompts, length = self._options.joining
        lora = self._loras[adapters - 1] if adapters else None
        alone, together = [], []

        async def join() -> None:
            requests = []
            for _ in range(prompts):
                requests.append(asyncio.create_task(self._answer(next(self._numbers), length, 1, lora)))
                await asyncio.sleep(JOINING)
            await asyncio.gather(*requests)

        await self.generate(sequences, adapters, max(self._options.tokens))
        for _ in range(self._options.rounds):
            alone.append(await self.generate(sequences, adapters, max(self._options.tokens)))
            generating = asyncio.create_task(self.generate(sequences, adapters, max(self._options.tokens)))
            await join()
            together.append(await generating)
        costs = [1000 * (each - statistics.median(alone)) / prompts for each in together]
        ms, low, high = (round(f(costs), 1) for f in (statistics.median, min, max))
        return Joined(self._name, sequences, adapters, length, ms, low, high)

    async def cell(self, sequences: int, adapters: int) -> Cell:
        """The first round is warm-up: it fills the prefix cache."""
        import vllm

        few, many = self._options.tokens
        repeats = 1 if self._options.together else self._options.rounds
        rounds, spent = [], Counter[str]()
        await self.generate(sequences, adapters, few)
        await self.generate(sequences, adapters, few)
        for _ in range(repeats):
            marks, times = [cpu_seconds(os.getpid())], []
            for tokens in (few, many):
                times.append(await self.generate(sequences, adapters, tokens))
                marks.append(cpu_seconds(os.getpid()))
            rounds.append(1000 * (times[1] - times[0]) / (many - few))
            for name in marks[2]:
                short, long = (after.get(name, 0.0) - before.get(name, 0.0) for before, after in pairwise(marks))
                spent[name] += 1000 * (long - short) / (many - few) / repeats
        cpu = {name: round(ms, 2) for name, ms in spent.items()}
        ms, low, high = (round(f(rounds), 3) for f in (statistics.median, min, max))
        return Cell(self._name, sequences, adapters, ms, low, high, cpu, self._options.context, vllm.__version__)

    async def profile(self, sequences: int, adapters: int) -> None:
        tokens = max(self._options.tokens)
        await self.generate(sequences, adapters, tokens)
        await self._llm.start_profile()
        await self.generate(sequences, adapters, tokens)
        await self._llm.stop_profile()


def cells_of(variant: Variant, options: argparse.Namespace) -> list[tuple[int, int]]:
    """Numbers of sequences and of adapters, in the order in which they are measured."""
    most = 2 if variant.lora else 0
    cells = [(n, adapters) for n in options.sequences for adapters in options.adapters if adapters <= min(n, most)]
    return cells * (options.rounds if options.together else 1)


async def measure(name: str, options: argparse.Namespace) -> None:
    """Everything of one variant; the process was started for it."""
    from agon_verl.cpu.platform import cpu_only, vllm_environment

    begun, variant = time.perf_counter(), chosen(name)
    for key, value in vllm_environment().items() if cpu_only() else ():
        os.environ.setdefault(key, value)
    with tempfile.TemporaryDirectory() as folder:
        measured = Measured(name, options, make_adapters(options.model, Path(folder)) if variant.lora else ())
        try:
            await measured.generate(1, 0, 1)
            append(options.out, Started(name, round(time.perf_counter() - begun, 1), measured.arguments))
            for sequences, adapters in cells_of(variant, options):
                if options.together:
                    await asyncio.to_thread(sys.stdin.readline)  # its turn
                if options.profile:
                    await measured.profile(sequences, adapters)
                elif options.joining:
                    append(options.out, await measured.joined(sequences, adapters))
                else:
                    append(options.out, await measured.cell(sequences, adapters))
        finally:
            measured.close()


def append(out: Path, record: Cell | Joined | Failure | Started) -> None:
    with out.open("a") as lines:
        lines.write(json.dumps({"kind": type(record).__name__, **asdict(record)}, default=str) + "\n")


def start(name: str, options: argparse.Namespace, line: Sequence[str]) -> subprocess.Popen[bytes]:
    """A process group of its own. Its output is in a file beside the results."""
    environment = {"VLLM_USE_FLASHINFER_SAMPLER": "0", "VLLM_NO_USAGE_STATS": "1", **os.environ}
    # A fork would inherit the threads of `make_adapters`, and hang in its first product.
    environment |= {"PYTHONUNBUFFERED": "1", "VLLM_WORKER_MULTIPROC_METHOD": "spawn", **chosen(name).environment}
    command = [sys.executable, "-m", "benchmarks.decode", *line, "--measure", name]
    with log_of(name, options).open("wb") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )


def log_of(name: str, options: argparse.Namespace) -> Path:
    path: Path = options.out.with_suffix(f".{name}.log")
    return path


def finish(name: str, process: subprocess.Popen[bytes], seconds: float, options: argparse.Namespace) -> None:
    """Wait for a variant's end, at most that long, and say what went wrong."""
    log = log_of(name, options)
    try:
        status = process.wait(seconds)
        error = f"exit status {status}: {last_error(log)}" if status else ""
    except subprocess.TimeoutExpired:
        error = f"not finished after {options.limit} s"
    finally:
        end_group(process)
    if error:
        append(options.out, Failure(name, error))
        print(f"{name}: {error} ({log})", flush=True)


def run_in_turn(options: argparse.Namespace, line: Sequence[str]) -> None:
    for name in options.variants:
        finish(name, start(name, options, line), options.limit, options)
        if options.profile:
            print(show_profile(options.profile / name), flush=True)


def run_together(options: argparse.Namespace, line: Sequence[str]) -> None:
    """Each variant measures a cell when it gets a line, and has measured it when it has written a record."""
    before, end = len(read_results(options.out)), time.monotonic() + options.limit
    processes = {name: start(name, options, line) for name in options.variants}

    def works(name: str, records: int) -> bool:
        """Wait until it has written that many, or has ended."""
        while time.monotonic() < end and processes[name].poll() is None:
            if sum(r["variant"] == name for r in read_results(options.out)[before:]) >= records:
                return True
            time.sleep(0.1)
        return False

    try:
        left = {name: len(cells_of(chosen(name), options)) for name in options.variants if works(name, 1)}
        for measured in range(max(left.values(), default=0)):
            for name in [name for name, cells in left.items() if cells > measured]:
                stdin = processes[name].stdin
                assert stdin
                try:
                    stdin.write(b"\n")
                    stdin.flush()
                except BrokenPipeError:  # it has ended; `finish` says why
                    left[name] = 0
                    continue
                if not works(name, measured + 2):  # the first is that of its start
                    left[name] = 0
    except BaseException:  # also the end by a signal
        for process in processes.values():
            end_group(process)
        raise
    for name, process in processes.items():
        finish(name, process, max(0.0, end - time.monotonic()), options)


def end_group(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:  # all have ended
        pass
    process.wait()


def last_error(log: Path) -> str:
    """The last line that names an exception; vLLM's first one is that of the engine's process."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line and "Engine core initialization failed" not in line]
    return (errors or lines or ["no output"])[-1][-300:]


def read_results(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


def merged(cells: Iterable[Mapping[str, Any]]) -> dict[tuple[str, int, int], dict[str, Any]]:
    """A cell that was measured several times: the median of its times, the range of all, the last processor times."""
    times: dict[tuple[str, int, int], list[Mapping[str, Any]]] = {}
    for cell in cells:
        times.setdefault((cell["variant"], cell["adapters"], cell["sequences"]), []).append(cell)
    return {
        key: {
            **own[-1],
            "ms": statistics.median(cell["ms"] for cell in own),
            "low": min(cell["low"] for cell in own),
            "high": max(cell["high"] for cell in own),
        }
        for key, own in times.items()
    }


def table(records: Iterable[Mapping[str, Any]]) -> str:
    """A row per variant and number of adapters, a column per number of sequences."""
    records = [*records]
    cells = merged(record for record in records if record["kind"] == "Cell")
    sizes = sorted({size for *_, size in cells})
    lines = [
        "| variant | adapters |" + "".join(f" {size} |" for size in sizes) + " processor ms of each process, largest |",
        "|---|---|" + "---|" * (len(sizes) + 1),
    ]
    for variant, adapters in dict.fromkeys((variant, adapters) for variant, adapters, _ in cells):
        row = [cells.get((variant, adapters, size)) for size in sizes]
        numbers = [f"{c['ms']:.2f} ({c['low']:.2f}–{c['high']:.2f})" if c else "" for c in row]
        cpu = next(c["cpu"] for c in reversed(row) if c)
        lines.append(
            f"| {variant} | {adapters} | {' | '.join(numbers)} | "
            f"{', '.join(f'{name} {ms:.1f}' for name, ms in cpu.items())} |"
        )
    lines.append("")
    lines += [f"{r['variant']}: {r['seconds']:.0f} s to the first answer" for r in records if r["kind"] == "Started"]
    lines += [
        f"{r['variant']}, {r['sequences']} sequences, {r['adapters']} adapters: a prompt of {r['length']} tokens that "
        f"joins costs {r['ms']:.1f} ms ({r['low']:.1f}–{r['high']:.1f})"
        for r in records
        if r["kind"] == "Joined"
    ]
    lines += [f"{r['variant']}: FAILED, {r['error']}" for r in records if r["kind"] == "Failure"]
    return "\n".join(lines)


def gpu_time(events: Iterable[Mapping[str, Any]]) -> GpuTime:
    """Of a trace of PyTorch's profiler. The first third is left out: it has the prompts."""
    events = [event for event in events if event.get("ph") == "X" and "dur" in event]
    on_gpu = sorted(
        (float(e["ts"]), float(e["ts"]) + float(e["dur"]), str(e["name"]))
        for e in events
        if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")
    )
    if not on_gpu:
        raise ValueError("the trace has no kernels: was it made on a GPU?")
    begin, end = on_gpu[0][0], max(stop for _, stop, _ in on_gpu)
    begin += (end - begin) / 3
    on_gpu = [kernel for kernel in on_gpu if kernel[0] >= begin]
    steps = max(1, sum(1 for e in events if str(e["name"]).startswith(LAUNCH) and begin <= float(e["ts"]) <= end))
    busy = gaps = 0.0
    covered, before = on_gpu[0][0], on_gpu[0][2]
    time_of, calls, around = Counter[str](), Counter[str](), Counter[str]()
    for start, stop, name in on_gpu:
        if start - covered > GAP:
            gaps += start - covered
            around[f"{before[:40]} … {name[:40]}"] += start - covered
        if stop > covered:
            busy += stop - max(start, covered)
            covered, before = stop, name
        time_of[name] += stop - start
        calls[name] += 1
    scale = 1000 * steps
    return GpuTime(
        steps,
        (covered - on_gpu[0][0]) / scale,
        busy / scale,
        gaps / scale,
        tuple((name, total / scale, calls[name] / steps) for name, total in time_of.most_common(30)),
        tuple((names, total / scale) for names, total in around.most_common(10)),
    )


def show_profile(folder: Path) -> str:
    traces = sorted(folder.rglob("*.json.gz")) + sorted(folder.rglob("*.json"))
    if not traces:
        return f"{folder}: no trace"
    parts = []
    for trace in traces:
        data = gzip.decompress(trace.read_bytes()) if trace.suffix == ".gz" else trace.read_bytes()
        try:
            seen = gpu_time(json.loads(data)["traceEvents"])
        except ValueError as error:
            parts.append(f"{trace}: {error}")
            continue
        parts.append(
            f"{trace}\n{seen.steps} steps of {seen.step:.2f} ms: busy {seen.busy:.2f} ms "
            f"({seen.busy / seen.step:.0%}), gaps of more than {GAP:.0f} µs {seen.gaps:.2f} ms"
        )
        parts += [f"{ms:8.3f} ms {calls:7.1f} calls  {name[:110]}" for name, ms, calls in seen.kernels]
        parts += ["gaps between", *(f"{ms:8.3f} ms  {names}" for names, ms in seen.largest)]
    return "\n".join(parts)


def parse(line: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--model", help="folder of a model")
    add("--out", type=Path, default=Path("decode.jsonl"), help="results, one JSON object per line; appended to")
    add(
        "--variants", nargs="+", default=[*VARIANTS], metavar="NAME", help=f"of {', '.join(VARIANTS)}; or joined with +"
    )
    add("--sequences", nargs="+", type=int, default=[1, 64, 256, 512])
    add("--adapters", nargs="+", type=int, default=[0, 1, 2], choices=[0, 1, 2])
    add("--context", type=int, default=512, help="tokens of a prompt (512)")
    add("--tokens", nargs=2, type=int, default=[32, 160], metavar=("T1", "T2"), help="generated (32 and 160)")
    add("--rounds", type=int, default=3, help="per cell (3)")
    add("--memory", type=float, default=0.5, help="share of the GPU (0.5)")
    add("--cache", type=float, metavar="GIB", help="of keys and values; without it vLLM measures what is left")
    add("--limit", type=float, default=300, help="seconds per variant, with --together of all (300)")
    add("--together", action="store_true", help="start all variants first, and measure round by round in turn")
    add("--joining", nargs=2, type=int, metavar=("PROMPTS", "LENGTH"), help="measure what a prompt costs that joins")
    add("--profile", type=Path, metavar="FOLDER", help="trace one generation per cell in place of timing it")
    add("--table", action="store_true", help="print the results so far, and end")
    add("--measure", metavar="VARIANT", help=argparse.SUPPRESS)
    options = parser.parse_args(line)
    unknown = sorted({part for name in options.variants for part in name.split("+")} - {*VARIANTS})
    if unknown:
        parser.error(f"--variants: {', '.join(unknown)} does not exist: use {', '.join(VARIANTS)}")
    if not (options.model or options.table):
        parser.error("--model is missing")
    if options.together and (options.profile or options.joining):
        parser.error("--together is for times per token: leave --profile or --joining out")
    return options


def main(line: Sequence[str] | None = None) -> None:
    line = sys.argv[1:] if line is None else line
    options = parse(line)
    if options.measure:
        asyncio.run(measure(options.measure, options))
        return
    if not options.table:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the variant's processes end as well
        options.out.parent.mkdir(parents=True, exist_ok=True)
        (run_together if options.together else run_in_turn)(options, line)
    print(table(read_results(options.out)))


if __name__ == "__main__":
    main()
