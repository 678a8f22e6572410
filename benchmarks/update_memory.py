"""Peak memory and time of one stream's update, by model shape, response cap and layout of the rows.

    PYTHONPATH=. python benchmarks/update_memory.py --out outputs/update_memory.jsonl
    PYTHONPATH=. python benchmarks/update_memory.py --shapes tiny --caps 64 256 --rows 8   (a CPU)
    PYTHONPATH=. python benchmarks/update_memory.py --shapes 0.6b --caps 15360 --layouts packed --rows 256

The engine alone: no vLLM, no Ray. The weights are random. Lengths are log-normal with a mean of a third of the cap.
Layouts: `packed`; `rows`, packed with a kernel per row in place of the fused one; `padded`, whose micro-batches count
the padding; `verl`, padded as verl cuts them. One JSON line per cell, written as soon as it is measured. A cell that
runs out of memory says so, and the next one starts with a new engine.
"""

import argparse
import gc
import json
import math
import random
import shutil
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, Qwen3Config
from verl.utils import tensordict_utils as tu
from verl.workers.engine.fsdp import transformer_impl
from verl.workers.engine.utils import prepare_micro_batches

from agon_verl.actor import packed_attention
from agon_verl.actor.engine import MultiAdapterEngine, micro_batches
from agon_verl.actor.minibatches import padded_parts
from agon_verl.actor.on_policy import ONLY_UPDATE
from agon_verl.cpu.platform import cpu_only
from benchmarks.random_model import COMMON
from benchmarks.random_model import SHAPES as QWEN3
from tests.packed_against_padded import make_engine, make_rows, one_rank
from tests.tiny import make_model

SHAPES = {
    "tiny": dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=8, intermediate_size=128, vocab_size=512),
    **{name.removeprefix("qwen3-"): shape for name, shape in QWEN3.items()},
}
LAYOUTS = ("packed", "rows", "padded", "verl")
FUSED = packed_attention.fused


@dataclass(frozen=True)
class Cell:
    shape: str
    cap: int  # of a response
    layout: str
    rows: int
    tokens: int  # without padding
    computed: int  # with padding
    micro_batch: int  # tokens allowed in one
    resident_gb: float | None = None  # before the update: weights, adapters, moments
    peak_gb: float | None = None
    reserved_gb: float | None = None
    seconds: float | None = None
    tokens_per_second: float | None = None
    error: str | None = None


def lengths_of(rows: int, cap: int, prompt: int) -> list[int]:
    """Prompt and response; the same for all shapes and layouts."""
    draw = random.Random(0)
    median, sigma = 0.28 * cap, 0.7
    return [prompt + min(cap, max(8, round(draw.lognormvariate(math.log(median), sigma)))) for _ in range(rows)]


def save_shape(name: str, folder: Path) -> Path:
    make_model(folder)  # for its tokenizer
    config = Qwen3Config(**{**COMMON, **SHAPES[name]}, eos_token_id=1, pad_token_id=0)
    with torch.device("cpu" if cpu_only() else "cuda"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    return folder


def use_layout(engine: MultiAdapterEngine, layout: str) -> None:
    name = packed_attention.PACKED_SDPA if layout in ("packed", "rows") else "sdpa"
    engine.module.get_base_model().set_attn_implementation(name)
    engine.model_config.hf_config._attn_implementation = name
    packed_attention.fused = None if layout == "rows" else FUSED
    transformer_impl.prepare_micro_batches = prepare_micro_batches if layout == "verl" else micro_batches


def update(engine: MultiAdapterEngine, loss: Any, lengths: list[int], layout: str, cap: int, prompt: int) -> None:
    use_layout(engine, layout)
    packed, vocabulary = layout in ("packed", "rows"), engine.model_config.hf_config.vocab_size
    data = make_rows(lengths, vocabulary, packed=packed, cap=cap, prompt=prompt)
    tu.assign_non_tensor(data, **{ONLY_UPDATE: True}, use_fused_kernels=engine.model_config.use_fused_kernels)
    with engine.train_mode():
        engine.train_batch(data, loss_function=loss)


def measured(engine: MultiAdapterEngine, loss: Any, cell: Cell, lengths: list[int], prompt: int) -> dict[str, Any]:
    gpu = not cpu_only()
    if gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    resident = torch.cuda.memory_allocated() if gpu else 0
    started = time.perf_counter()
    update(engine, loss, lengths, cell.layout, cell.micro_batch, prompt)
    if gpu:
        torch.cuda.synchronize()
    seconds = time.perf_counter() - started
    memory: dict[str, Any] = {}
    if gpu:
        peak, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
        memory = {"resident_gb": _gb(resident), "peak_gb": _gb(peak), "reserved_gb": _gb(reserved)}
    return {**memory, "seconds": round(seconds, 2), "tokens_per_second": round(cell.tokens / seconds)}


def _gb(size: int) -> float:
    return round(size / 2**30, 2)


def computed_tokens(lengths: list[int], layout: str, micro_batch: int) -> int:
    """For `verl`, at least this many: its micro-batches are not known before they are cut."""
    if layout in ("packed", "rows"):
        return sum(lengths)
    return sum(len(part) * max(lengths[row] for row in part) for part in padded_parts(lengths, micro_batch))


def start(folder: Path, args: argparse.Namespace) -> tuple[MultiAdapterEngine, Any]:
    recipe = "agon_cpu" if cpu_only() else "agon"
    engine, loss = make_engine(folder, recipe, "agon.init_noise=0.05", *args.override, packed=True)
    update(engine, loss, [args.prompt + 64] * 2, "packed", args.micro_batch, args.prompt)  # warm-up: moments, kernels
    return engine, loss


def run_shape(shape: str, args: argparse.Namespace) -> None:
    folder = Path(tempfile.mkdtemp(prefix=f"{shape}_", dir=args.folder))
    engine: MultiAdapterEngine | None = None
    try:
        started = time.perf_counter()
        save_shape(shape, folder)
        for cap in args.caps:
            lengths = lengths_of(args.rows, cap, args.prompt)
            for layout in args.layouts:
                if engine is None:
                    engine, loss = start(folder, args)
                    print(f"{shape}: started in {time.perf_counter() - started:.0f} s", flush=True)
                computed = computed_tokens(lengths, layout, args.micro_batch)
                cell = Cell(shape, cap, layout, args.rows, sum(lengths), computed, args.micro_batch)
                try:
                    result = measured(engine, loss, cell, lengths, args.prompt)
                except torch.OutOfMemoryError as error:
                    result = {"error": f"out of memory: {str(error).splitlines()[0][:160]}"}
                    engine = None
                write({**asdict(cell), **result}, args.out)
                if engine is None:  # here, where the exception no longer refers to its tensors
                    loss = None
                    gc.collect()
                    torch.cuda.empty_cache()
    finally:
        shutil.rmtree(folder)


def write(record: dict[str, Any], out: Path) -> None:
    line = json.dumps(record)
    print(line, flush=True)
    with out.open("a") as file:
        file.write(line + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=["0.6b", "1.7b", "4b"])
    parser.add_argument("--caps", nargs="+", type=int, default=[1024, 4096, 15360], help="of a response, in tokens")
    parser.add_argument("--layouts", nargs="+", choices=LAYOUTS, default=["packed", "padded"])
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--prompt", type=int, default=256, help="tokens of each prompt")
    parser.add_argument("--micro-batch", type=int, default=32768, help="tokens in a micro-batch at most")
    parser.add_argument("--override", nargs="*", default=[], help="of the recipe, as on verl's command line")
    parser.add_argument("--folder", type=Path, default=None, help="for the weights, up to 8 GB; /dev/shm is quick")
    parser.add_argument("--out", type=Path, default=Path("outputs/update_memory.jsonl"))
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as store, one_rank(Path(store), "gloo" if cpu_only() else "cpu:gloo,cuda:nccl"):
        for shape in args.shapes:
            run_shape(shape, args)
            gc.collect()


if __name__ == "__main__":
    main()
