"""What vLLM's kernels for adapters read, recorded by this package and by vLLM itself."""

from typing import Any

import pytest
import torch
from vllm.lora.layers import LoRAMapping
from vllm.lora.ops.triton_ops.lora_kernel_metadata import LoRAKernelMeta
from vllm.lora.punica_wrapper.punica_base import PunicaWrapperBase
from vllm.lora.punica_wrapper.punica_gpu import PunicaWrapperGPU

from agon_verl.rollout import adapter_rows
from agon_verl.rollout.adapter_rows import SortsOnCpu, record

SLOTS, TOKENS = 3, 64
BATCHES = (
    [0] * 10,
    [2, 0, 1, 1, 0, 2, -1, -1, 0],
    [1],
    [-1] * 5,
    [-1, 1],
    [2, 2, -1, 0, 1] * 12,
    [0, 1] * 7,
)


def read(meta: LoRAKernelMeta, tokens: int) -> list[list[int]]:
    """All that a kernel gets, in both ways in which it can be launched."""
    return [part.tolist() for all_graphs in (True, False) for part in meta.meta_args(tokens, all_graphs)]


@pytest.mark.parametrize("captured", [[], [1, 2, 4], [2]])
def test_the_kernels_read_the_same_whoever_recorded_it(captured: list[int]) -> None:
    ours, theirs = (LoRAKernelMeta.make(SLOTS, TOKENS, "cpu", captured) for _ in range(2))
    for slots in BATCHES:  # in the same tensors: nothing of an earlier batch is left
        record(ours, slots)
        theirs.prepare_tensors(torch.tensor(slots))
        assert ours.no_lora_flag_cpu == theirs.no_lora_flag_cpu == (set(slots) == {-1})
        assert read(ours, len(slots)) == read(theirs, len(slots))


def wrapper(kind: type) -> Any:
    """vLLM's constructor needs Triton."""
    made: Any = object.__new__(kind)
    PunicaWrapperBase.__init__(made, TOKENS, 16, "cpu")
    made.token_mapping_meta, made.prompt_mapping_meta = (LoRAKernelMeta.make(SLOTS, TOKENS, "cpu") for _ in range(2))
    return made


def test_adapters_are_found_in_their_slots() -> None:
    ours, theirs = wrapper(SortsOnCpu), wrapper(PunicaWrapperGPU)
    mapping = LoRAMapping((7, 7, 0, 4, 4, 4, 7), (7, 0, 4, 7), is_prefill=True)
    for each in (ours, theirs):
        each.update_metadata(mapping, [4, None, 7], SLOTS + 1, 100)
    for meta, tokens in (("token_mapping_meta", 7), ("prompt_mapping_meta", 4)):
        assert read(getattr(ours, meta), tokens) == read(getattr(theirs, meta), tokens)
    assert ours.token_mapping_meta.token_lora_mapping[:7].tolist() == [2, 2, -1, 0, 0, 0, 2]
    assert ours.token_lora_indices.tolist() == theirs.token_lora_indices.tolist()
    assert ours.is_prefill


def test_it_takes_the_place_of_vllms_own_and_of_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    class Cuda:
        @classmethod
        def get_punica_wrapper(cls) -> str:
            return "vllm.lora.punica_wrapper.punica_gpu.PunicaWrapperGPU"

    class Other:
        @classmethod
        def get_punica_wrapper(cls) -> str:
            return "vllm.lora.punica_wrapper.punica_xpu.PunicaWrapperXPU"

    for platform in (Cuda(), Other()):
        monkeypatch.setattr(adapter_rows, "current_platform", platform)
        adapter_rows.install()
        adapter_rows.install()  # a worker may import it twice
    assert Cuda.get_punica_wrapper() == "agon_verl.rollout.adapter_rows.SortsOnCpu"
    assert Other.get_punica_wrapper().endswith("PunicaWrapperXPU")
