"""vLLM's record of which token uses which adapter, made without waiting for the GPU.

The kernels for adapters read tokens sorted by adapter. vLLM sorts and counts them anew whenever a request begins or
ends, on the GPU, and waits for the result. By then the GPU has finished what it had to do, and it idles until the next
batch is prepared. A step of Agon with 128 pairs has up to 384 such batches. The numbers are few, and known on the CPU:
here they are sorted there. The other index tensors of vLLM, which layers without a kernel read, are made as before.
"""

import bisect
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from vllm.lora.ops.triton_ops.lora_kernel_metadata import LoRAKernelMeta
from vllm.lora.punica_wrapper.punica_gpu import PunicaWrapperGPU
from vllm.platforms import current_platform


class SortsOnCpu(PunicaWrapperGPU):
    def update_metadata(
        self, mapping: Any, lora_index_to_id: list[int | None], max_loras: int, vocab_size: int, **kwargs: Any
    ) -> None:
        self.is_prefill = mapping.is_prefill
        self._update_base_metadata(mapping, lora_index_to_id, max_loras, vocab_size)
        slots = {lora_id: slot for slot, lora_id in enumerate(lora_index_to_id) if lora_id is not None}
        record(self.token_mapping_meta, [slots.get(lora_id, -1) for lora_id in mapping.index_mapping])
        record(self.prompt_mapping_meta, [slots.get(lora_id, -1) for lora_id in mapping.prompt_mapping])


def record(meta: LoRAKernelMeta, slots: Sequence[int]) -> None:
    """What `LoRAKernelMeta.prepare_tensors` records; -1 is the slot of a token without an adapter."""
    own = np.asarray(slots, dtype=np.int32)
    active, counts = np.unique(own, return_counts=True)
    if active.tolist() == [-1]:  # the kernels are not launched, and where a graph holds them they find no adapter
        own, active, counts = own[:0], active[:0], counts[:0]
    meta.no_lora_flag_cpu[0] = not len(active)
    meta.num_active_loras_cpu[0] = _captured(meta, len(active)) if len(active) else 0
    for tensor, values, filling in (
        (meta.token_lora_mapping[: len(own)], own, 0),
        (meta.token_indices_sorted_by_lora_ids[: len(own)], np.argsort(own, kind="stable"), 0),
        (meta.active_lora_ids, active, -1),
        (meta.num_tokens_per_lora, counts, 0),
        (meta.lora_token_start_loc, np.concatenate(([0], counts.cumsum())), 0),
    ):
        _copy(tensor, values, filling)


def _captured(meta: LoRAKernelMeta, active: int) -> int:
    """Graphs are captured for some numbers of adapters: the next larger one."""
    place = bisect.bisect_left(meta.captured_lora_counts, active)
    return meta.captured_lora_counts[place] if place < len(meta.captured_lora_counts) else active


def _copy(tensor: torch.Tensor, values: np.ndarray, filling: int) -> None:
    """Without waiting: PyTorch does not use a pinned buffer again before it has been read."""
    buffer = torch.full(tensor.shape, filling, dtype=tensor.dtype, device="cpu", pin_memory=tensor.is_cuda)
    buffer[: len(values)] = torch.from_numpy(values)
    tensor.copy_(buffer, non_blocking=True)


def install() -> None:
    """In a worker of vLLM, before it loads a model."""
    platform: Any = type(current_platform)
    if platform.get_punica_wrapper() == f"{PunicaWrapperGPU.__module__}.{PunicaWrapperGPU.__name__}":
        platform.get_punica_wrapper = classmethod(lambda cls: f"{SortsOnCpu.__module__}.{SortsOnCpu.__name__}")
