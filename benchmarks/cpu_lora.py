"""LoRA in vLLM's CPU build: the kernel for a handful of adapters compared with vLLM's own, on one core.

    python benchmarks/cpu_lora.py

One linear layer with two adapters of rank 16, alternating tokens; medians of 15 calls.
"""

import statistics
import time
from types import SimpleNamespace

import torch
from vllm.lora.layers import LoRAMapping
from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU

from agon_verl.cpu.lora import FewAdapters

RANK, IDS, CALLS = 16, [1, 2], 15


def milliseconds(kind: type[PunicaWrapperCPU], tokens: int, width: int, out: int) -> float:
    lora = SimpleNamespace(fully_sharded_loras=False, max_loras=len(IDS), specialize_active_lora=False)
    wrapper = kind(tokens, max_batches=tokens, device="cpu", lora_config=lora)
    of_tokens = tuple(IDS[i % 2] for i in range(tokens))
    wrapper.update_metadata(LoRAMapping(of_tokens, of_tokens, is_prefill=False), IDS, len(IDS) + 1, 100)
    a, b = torch.randn(len(IDS), 1, RANK, width), torch.randn(len(IDS), 1, out, RANK)
    x, y = torch.randn(tokens, width), torch.zeros(tokens, out)
    taken = []
    for _ in range(CALLS + 1):
        begun = time.perf_counter()
        wrapper.add_lora_linear(y, x, (a,), (b,), 1.0, (out,))
        taken.append(1000 * (time.perf_counter() - begun))
    return statistics.median(taken[1:])


if __name__ == "__main__":
    torch.set_num_threads(1)
    print("| tokens | layer | vLLM's, ms | ours, ms | ratio |\n|---|---|---|---|---|")
    for tokens in (16, 64, 128, 1024):
        for width, out in ((128, 512), (576, 1536)):
            theirs, ours = (milliseconds(kind, tokens, width, out) for kind in (PunicaWrapperCPU, FewAdapters))
            print(f"| {tokens:,} | {width} to {out} | {theirs:.2f} | {ours:.2f} | {theirs / ours:.1f} |")
