"""What vLLM's kernels for adapters read, recorded by this package and by vLLM itself."""

from typing import Any

import pytest
import torch
from vllm.lora.layers import LoRAMapping
from vllm.lora.ops.triton_ops.lora_kernel_metadata import LoRAKernelMeta
from vllm.lora.punica_wrapper.punica_base import PunicaWrapperBase
from vllm.lora.punica_wrapper.punica_gpu import PunicaWrapperGPU

from agon_verl.rollout import adapter_rows
from agon_verl.rollout.adapter_rows import SortsOnCpu

SLOTS, TOKENS = 3, 64
ADAPTERS = [4, None, 7]  # by slot
BATCHES = ((7, 7, 0, 4, 4, 4, 7), (4,), (0, 0, 0), (0, 7), (7, 4, 0) * 20, (4, 7, 7))


def wrapper(kind: type) -> Any:
    """vLLM's constructor needs Triton."""
    made: Any = object.__new__(kind)
    PunicaWrapperBase.__init__(made, TOKENS, 16, "cpu")
    made.token_mapping_meta, made.prompt_mapping_meta = (LoRAKernelMeta.make(SLOTS, TOKENS, "cpu") for _ in range(2))
    return made


def read(meta: LoRAKernelMeta, tokens: int) -> list[list[int]]:
    """All that a kernel gets, in both ways in which it can be launched."""
    return [part.tolist() for all_graphs in (True, False) for part in meta.meta_args(tokens, all_graphs)]


def test_the_kernels_read_the_same_whoever_recorded_it() -> None:
    ours, theirs = wrapper(SortsOnCpu), wrapper(PunicaWrapperGPU)
    for batch in BATCHES:  # in the same tensors: nothing of an earlier batch is left
        mapping = LoRAMapping(batch, batch[::2], is_prefill=True)
        for each in (ours, theirs):
            each.update_metadata(mapping, ADAPTERS, SLOTS + 1, 100)
        for meta, tokens in (("token_mapping_meta", batch), ("prompt_mapping_meta", batch[::2])):
            assert read(getattr(ours, meta), len(tokens)) == read(getattr(theirs, meta), len(tokens))
        assert ours.token_mapping_meta.no_lora_flag_cpu == (set(batch) == {0})
        assert ours.token_lora_indices.tolist() == theirs.token_lora_indices.tolist()
        assert ours.is_prefill
    assert ours.token_mapping_meta.token_lora_mapping[:3].tolist() == [0, 2, 2]


def test_tokens_are_sorted_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM's function gets a tensor of the CPU, wherever new tensors are made by default."""
    given = []
    monkeypatch.setattr(LoRAKernelMeta, "prepare_tensors", lambda _, mapping: given.append(mapping))
    ours = wrapper(SortsOnCpu)
    monkeypatch.setattr(ours, "_update_base_metadata", lambda *_: None)
    with torch.device("meta"):
        ours.update_metadata(LoRAMapping((7, 0), (4,), is_prefill=False), ADAPTERS, SLOTS + 1, 100)
    assert [(tensor.device.type, tensor.tolist()) for tensor in given] == [("cpu", [2, -1]), ("cpu", [0])]


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
