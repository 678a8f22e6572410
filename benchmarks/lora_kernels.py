"""Choose the block sizes of vLLM's two kernels for adapters, for one GPU and the shape of one model.

    python -m benchmarks.lora_kernels --model MODEL --out FOLDER
    VLLM_TUNED_CONFIG_FOLDER=FOLDER python -m verl.trainer.main_ppo +recipe=agon …

vLLM ships no files with settings and then has two choices, for less than 128 tokens and for more. It reads the files
that this writes (`FOLDER/GPU_SHRINK.json` and `GPU_EXPAND_TRUE.json`), by the number of slots, the slices of a layer,
tokens and sizes; what is not there exactly gets the nearest. A kernel's time is that of one call for each of the
model's layers in a CUDA graph, with weights of their own and an empty cache of the GPU, as in a run. Tokens are shared
equally between the adapters. A setting whose result differs from that of vLLM's own is an error; one that needs more
memory than a processor of the GPU has is left out. There is a process per layer and kernel; they take turns to measure.
One GPU per engine: tensor parallelism divides the widths.
"""

import argparse
import fcntl
import itertools
import json
import os
import statistics
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest import mock

REPLAYS = 7
CACHE = 256 * 2**20  # bytes, more than the cache of a GPU
OPS = "vllm.lora.ops.triton_ops"
SHRINK = {
    "block_m": (16, 32),
    "block_n": (16,),
    "block_k": (64, 128, 256),
    "split_k": (4, 8, 16, 32),
    "num_warps": (4, 8),
}
EXPAND = {"block_m": (16, 32, 64), "block_n": (32, 64, 128, 256), "block_k": (16,), "num_warps": (2, 4, 8)}
COMMON = {"num_stages": (2, 4), "num_ctas": (1,), "max_nreg": (None,)}


@dataclass(frozen=True)
class Layer:
    name: str
    width: int  # of its input
    slices: tuple[int, ...]  # widths of its outputs, which vLLM computes together


@dataclass(frozen=True)
class Best:
    kernel: str
    layer: Layer
    tokens: int
    default: float  # µs per call
    best: float
    setting: dict[str, int | None]


def layers_of(config: Any) -> list[Layer]:
    """Of a decoder with gated feed-forward layers, as Qwen and Llama have them."""
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    queries, keys = head * config.num_attention_heads, head * config.num_key_value_heads
    return [
        Layer("qkv", config.hidden_size, (queries, keys, keys)),
        Layer("o", queries, (config.hidden_size,)),
        Layer("gate_up", config.hidden_size, (config.intermediate_size,) * 2),
        Layer("down", config.intermediate_size, (config.hidden_size,)),
    ]


def jobs_of(config: Any) -> list[tuple[str, Layer]]:
    """The kernels for which vLLM can have a setting: it tells two of equal sizes not apart."""
    jobs: dict[tuple[str, int, int], tuple[str, Layer]] = {}
    for layer in layers_of(config):
        jobs.setdefault(("shrink", layer.width, len(layer.slices)), ("shrink", layer))
        jobs.setdefault(("expand", max(layer.slices), len(layer.slices)), ("expand", layer))
    return [*jobs.values()]


def settings(kernel: str) -> Iterator[dict[str, int | None]]:
    ranges = {**(SHRINK if kernel == "shrink" else EXPAND), **COMMON}
    more = {"group_size_m": 8} if kernel == "shrink" else {}
    for values in itertools.product(*ranges.values()):
        yield {**dict(zip(ranges, values, strict=True)), **more}


@contextmanager
def turn(file: Path) -> Iterator[None]:
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def using(kernel: str, setting: dict[str, int | None]) -> Any:
    return mock.patch(f"{OPS}.lora_{kernel}_op.get_lora_op_configs", return_value=setting)


def calls(
    kernel: str, layer: Layer, tokens: int, options: argparse.Namespace, depth: int
) -> tuple[Callable[[], None], Any]:
    """What launches the kernel once per layer of the model, and the tensor that the last of them writes."""
    import torch
    from vllm.lora.ops.triton_ops import LoRAKernelMeta, lora_expand, lora_shrink

    rank, slots = options.rank, options.adapters
    draw = torch.Generator("cuda").manual_seed(0)

    def normal(*size: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        return torch.randn(*size, device="cuda", generator=draw).to(dtype)

    meta = LoRAKernelMeta.make(slots, tokens, device="cuda")
    meta.prepare_tensors(torch.arange(tokens, device="cuda", dtype=torch.int32) % slots)
    mapping = meta.meta_args(tokens, False)
    if kernel == "shrink":
        inputs = normal(tokens, layer.width)
        weights = [[normal(slots, 1, rank, layer.width) for _ in layer.slices] for _ in range(depth)]
        out = torch.empty(len(layer.slices), tokens, rank, device="cuda")

        def launch() -> None:
            for own in weights:
                lora_shrink(inputs, own, out, *mapping, 2.0)
    else:
        inputs = normal(len(layer.slices), tokens, rank, dtype=torch.float32)
        weights = [[normal(slots, 1, width, rank) for width in layer.slices] for _ in range(depth)]
        out = torch.zeros(tokens, sum(layer.slices), device="cuda", dtype=torch.bfloat16)

        def launch() -> None:
            for own in weights:
                lora_expand(inputs, own, out, *mapping, offset_start=0, add_inputs=True)

    return launch, out


def microseconds(launch: Callable[[], None], depth: int) -> float:
    """The median of several replays of a graph, per call."""
    import torch

    graph, times = torch.cuda.CUDAGraph(), []
    with torch.cuda.stream(torch.cuda.Stream()):  # `torch.cuda.graph` would collect garbage each time
        graph.capture_begin()
        launch()
        graph.capture_end()
    other = torch.empty(CACHE, dtype=torch.int8, device="cuda")
    for _ in range(REPLAYS + 1):
        other.zero_()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(1000 * start.elapsed_time(end) / depth)
    return statistics.median(times[1:])


def tune(kernel: str, layer: Layer, depth: int, options: argparse.Namespace) -> list[Best]:
    import torch
    from triton.runtime.errors import OutOfResources
    from vllm.lora.ops.triton_ops.utils import get_lora_op_configs

    lock, found = options.out / "turn", []
    for tokens in options.tokens:
        launch, out = calls(kernel, layer, tokens, options, depth)
        out.zero_()
        launch()  # vLLM's own choice
        expected = out.clone()
        times: list[tuple[float, dict[str, int | None]]] = []
        for setting in settings(kernel):
            with using(kernel, setting):
                try:
                    launch()  # compiles, while others measure
                except OutOfResources:
                    continue
                with turn(lock):
                    out.zero_()
                    launch()
                    torch.testing.assert_close(out, expected, rtol=0.05, atol=0.05 * float(expected.abs().max()))
                    times.append((microseconds(launch, depth), setting))
        chosen = min(times, key=lambda each: each[0])[1]
        with turn(lock):  # once more: the least of many times is too small
            with using(kernel, chosen):
                best = microseconds(launch, depth)
            default = microseconds(launch, depth)
        width, rank = (layer.width if kernel == "shrink" else max(layer.slices)), options.rank
        adds = None if kernel == "shrink" else True
        own = get_lora_op_configs(kernel, options.adapters + 1, tokens, width, rank, len(layer.slices), adds)
        found.append(Best(kernel, layer, tokens, default, min(best, default), chosen if best < default else own))
    return found


def configuration(found: list[Best], options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """By kernel: [slots + 1][slices][tokens][inner width][outer width], as vLLM looks settings up."""
    files: dict[str, dict[str, Any]] = {"shrink": {}, "expand": {}}
    for each in found:
        slices, widths = len(each.layer.slices), (each.layer.width, options.rank)
        inner, outer = widths if each.kernel == "shrink" else (options.rank, max(each.layer.slices))
        level = files[each.kernel]
        for key in (options.adapters + 1, slices, each.tokens, inner):
            level = level.setdefault(str(key), {})
        level[str(outer)] = each.setting
    return files


def write(found: list[Best], options: argparse.Namespace) -> None:
    import torch

    gpu = torch.cuda.get_device_name().replace(" ", "_").replace("-", "_")
    files = {"shrink": "SHRINK", "expand": "EXPAND_TRUE"}
    for kernel, content in configuration(found, options).items():
        (options.out / f"{gpu}_{files[kernel]}.json").write_text(json.dumps(content, indent=1))


def table(found: list[Best]) -> str:
    lines = ["| kernel | layer | tokens | vLLM's choice, µs | best, µs | setting |", "|---|---|---|---|---|---|"]
    for each in found:
        text = " ".join(f"{name}={value}" for name, value in each.setting.items() if value is not None)
        lines.append(
            f"| {each.kernel} | {each.layer.name} | {each.tokens} | {each.default:.1f} | {each.best:.1f} | {text} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a folder or hub name; only its shape is read")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--adapters", type=int, default=2, help="slots of the engine (2)")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--tokens", type=int, nargs="+", default=[16, 64, 128, 256, 512, 1024], help="in a batch")
    options = parser.parse_args()
    from transformers import AutoConfig

    os.environ.pop("VLLM_TUNED_CONFIG_FOLDER", None)  # an earlier result is not vLLM's own choice
    config = AutoConfig.from_pretrained(options.model)
    options.out.mkdir(parents=True, exist_ok=True)
    jobs = jobs_of(config)
    with ProcessPoolExecutor(len(jobs), get_context("spawn")) as pool:
        ends = [pool.submit(tune, kernel, layer, config.num_hidden_layers, options) for kernel, layer in jobs]
        found = [best for end in ends for best in end.result()]
    write(found, options)
    (options.out / "turn").unlink()
    (options.out / "table.md").write_text(table(found) + "\n")
    print(table(found))


if __name__ == "__main__":
    main()
