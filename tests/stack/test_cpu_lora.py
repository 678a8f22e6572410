"""The kernel for a handful of adapters against the sum written out, and against vLLM's own where that one is right."""

from types import SimpleNamespace

import pytest
import torch
from vllm.lora.layers import LoRAMapping
from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU

from agon_verl.cpu.lora import FewAdapters

HIDDEN, RANK, SLICES = 24, 4, (10, 6, 6)
IDS = [1, 2, None]  # of the adapters in the slots


def weights() -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    a = tuple(torch.randn(len(IDS), 1, RANK, HIDDEN, generator=generator) for _ in SLICES)
    b = tuple(torch.randn(len(IDS), 1, size, RANK, generator=generator) for size in SLICES)
    return a, b


def added(kind: type[PunicaWrapperCPU], of_tokens: list[int], prefill: bool) -> torch.Tensor:
    lora = SimpleNamespace(fully_sharded_loras=False, max_loras=len(IDS), specialize_active_lora=False)
    wrapper = kind(64, max_batches=64, device="cpu", lora_config=lora)
    mapping = LoRAMapping(tuple(of_tokens), tuple(of_tokens), is_prefill=prefill)
    wrapper.update_metadata(mapping, IDS, len(IDS) + 1, 100)
    x = torch.randn(len(of_tokens), HIDDEN, generator=torch.Generator().manual_seed(1))
    y = torch.ones(len(of_tokens), sum(SLICES))
    wrapper.add_lora_linear(y, x, *weights(), 0.5, SLICES)
    return y


def by_hand(of_tokens: list[int]) -> torch.Tensor:
    x = torch.randn(len(of_tokens), HIDDEN, generator=torch.Generator().manual_seed(1))
    rows = []
    for row, adapter in zip(x, of_tokens, strict=True):
        slot = IDS.index(adapter) if adapter else 0
        parts = [0.5 * bool(adapter) * b[slot, 0] @ (a[slot, 0] @ row) for a, b in zip(*weights(), strict=True)]
        rows.append(1 + torch.cat(parts))
    return torch.stack(rows)


@pytest.mark.parametrize("prefill", [False, True])
@pytest.mark.parametrize("of_tokens", [[1, 1, 1], [1, 2, 2, 1, 2], [2], [1, 0, 2, 0], [0, 0]])
def test_each_token_gets_its_own_adapter_and_one_without_gets_none(of_tokens: list[int], prefill: bool) -> None:
    torch.testing.assert_close(added(FewAdapters, of_tokens, prefill), by_hand(of_tokens), atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("prefill", [False, True])
def test_it_agrees_with_vllms_where_every_token_has_an_adapter(prefill: bool) -> None:
    tokens = [1, 2, 2, 1, 1, 2]
    ours, theirs = (added(kind, tokens, prefill) for kind in (FewAdapters, PunicaWrapperCPU))
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-5)
