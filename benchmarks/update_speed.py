"""Tokens trained on per second and peak memory of one stream's update, one change after the other.

    PYTHONPATH=. python benchmarks/update_speed.py --model QWEN2.5-CODER-1.5B --out outputs/update_speed.jsonl
    PYTHONPATH=. python benchmarks/update_speed.py --model TINY --rows 8 --cap 64 --prompt 32 --micro-batch 256  (a CPU)
    PYTHONPATH=. python benchmarks/update_speed.py --table outputs/update_speed.jsonl
    PYTHONPATH=. python benchmarks/update_speed.py --model PATH --variants larger --profile FOLDER     one more update

The engine alone, with adapter B: no vLLM, no Ray. Rows as in `benchmarks/update_memory.py`: log-normal lengths with a
mean of a third of the cap. Each variant has an engine of its own, one update as warm-up, then `--repeats` updates.
`liger` needs the package liger-kernel. One JSON line per variant, written as soon as it is measured.
"""

import argparse
import gc
import json
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from peft.tuners.lora.layer import Linear
from torch.profiler import profile
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

from agon_verl.actor.engine import MultiAdapterEngine
from agon_verl.actor.lora_linear import LoraLinear
from agon_verl.cpu.platform import cpu_only
from benchmarks.update_memory import lengths_of, update, write
from tests.packed_against_padded import make_engine, one_rank

GIB = 2**30


@dataclass(frozen=True)
class Variant:
    """What differs from the default of one GPU: packed rows, our LoRA layers, no FSDP2, all activations kept."""

    packed: bool = True
    fsdp: bool = False
    peft: bool = False
    checkpointing: bool = False
    fused: bool = False
    liger: bool = False
    larger: int = 1  # times the micro-batch

    @property
    def overrides(self) -> list[str]:
        return [
            f"actor_rollout_ref.model.enable_gradient_checkpointing={self.checkpointing}",
            f"actor_rollout_ref.model.use_fused_kernels={self.fused}",
            f"actor_rollout_ref.model.use_liger={self.liger}",
        ]


VARIANTS = {
    "padded": Variant(packed=False, fsdp=True, peft=True, checkpointing=True, larger=2),
    "packed": Variant(fsdp=True, peft=True, checkpointing=True, larger=2),
    "lora": Variant(fsdp=True, checkpointing=True, larger=2),
    "unsharded": Variant(checkpointing=True, larger=2),
    "default": Variant(),
    "larger": Variant(larger=2),
    "fused": Variant(fused=True),
    "liger": Variant(liger=True),
}


def measure(name: str, args: argparse.Namespace) -> dict[str, Any]:
    variant = VARIANTS[name]
    gpu = not cpu_only()
    lengths = lengths_of(args.rows, args.cap, args.prompt)
    layout, limit = "packed" if variant.packed else "padded", args.micro_batch * variant.larger
    with ExitStack() as stack:
        if variant.fsdp:
            stock = FSDPEngineWithLMHead._build_fsdp_module
            stack.enter_context(mock.patch.object(MultiAdapterEngine, "_build_fsdp_module", stock))
        if variant.peft:
            stack.enter_context(mock.patch.object(LoraLinear, "forward", Linear.forward))
        overrides = ["agon.init_noise=0.05", *variant.overrides, *args.override]
        engine, loss = make_engine(args.model, "agon_cpu" if cpu_only() else "agon", *overrides, packed=variant.packed)
        seconds = []
        for repeat in range(args.repeats + 1):
            if gpu and repeat == 1:
                torch.cuda.reset_peak_memory_stats()
            started = time.perf_counter()
            update(engine, loss, lengths, layout, limit, args.prompt)
            if gpu:
                torch.cuda.synchronize()
            seconds.append(time.perf_counter() - started)
        if args.profile:
            with profile() as profiler:
                update(engine, loss, lengths, layout, limit, args.prompt)
            write_profile(profiler, args.profile / f"{name}.txt")
    rates = sorted(sum(lengths) / each for each in seconds[1:])
    memory = {}
    if gpu:
        memory = {
            "peak_gb": torch.cuda.max_memory_allocated() / GIB,
            "reserved_gb": torch.cuda.max_memory_reserved() / GIB,
        }
    return {
        "tokens": sum(lengths),
        "micro_batch": limit,
        "tokens_per_second": round(statistics.median(rates)),
        "range": [round(rates[0]), round(rates[-1])],
        **{name: round(size, 2) for name, size in memory.items()},
    }


def write_profile(profiler: profile, path: Path) -> None:
    """The operators with the most time of their own, on the processor that matters: the GPU where there is one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    order = "self_cpu_time_total" if cpu_only() else "self_cuda_time_total"
    path.write_text(profiler.key_averages().table(sort_by=order, row_limit=60, max_name_column_width=90))


def table(path: Path) -> str:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    first = next((line["tokens_per_second"] for line in lines if "tokens_per_second" in line), 1)
    rows = ["| variant | tokens per second (range) | ratio | peak, GiB |", "|---|---|---|---|"]
    for line in lines:
        if "error" in line:
            rows.append(f"| {line['variant']} | {line['error']} | | |")
            continue
        rate, (low, high) = line["tokens_per_second"], line["range"]
        rows.append(
            f"| {line['variant']} | {rate:,} ({low:,}–{high:,}) | {rate / first:.2f} | {line.get('peak_gb', '–')} |"
        )
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a folder")
    parser.add_argument(
        "--variants", nargs="+", choices=VARIANTS, default=[name for name in VARIANTS if name != "liger"]
    )
    parser.add_argument("--rows", type=int, default=128)
    parser.add_argument("--cap", type=int, default=1024, help="of a response, in tokens")
    parser.add_argument("--prompt", type=int, default=256, help="tokens of each prompt")
    parser.add_argument(
        "--micro-batch", type=int, default=8192, help="tokens; variants with checkpointing: twice as many"
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--override", nargs="*", default=[], help="of the recipe, as on verl's command line")
    parser.add_argument("--out", type=Path, default=Path("outputs/update_speed.jsonl"))
    parser.add_argument("--profile", type=Path, metavar="FOLDER", help="profile one more update of each variant")
    parser.add_argument("--table", type=Path, metavar="FILE", help="print the table of an earlier run, and run nothing")
    args = parser.parse_args()
    if args.table:
        print(table(args.table))
        return
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as store, one_rank(Path(store), "gloo" if cpu_only() else "cpu:gloo,cuda:nccl"):
        for name in args.variants:
            try:
                result = measure(name, args)
            except torch.OutOfMemoryError as error:
                result = {"error": f"out of memory: {str(error).splitlines()[0][:120]}"}
            write({"variant": name, **asdict(VARIANTS[name]), **result}, args.out)
            gc.collect()
            if not cpu_only():
                torch.cuda.empty_cache()
    print(table(args.out))


if __name__ == "__main__":
    sys.exit(main())
