"""vLLM's record of which token uses which adapter, made without waiting for the GPU.

The kernels for adapters read tokens sorted by adapter. vLLM sorts and counts them anew whenever a request begins or
ends, on the GPU, and waits for the result. By then the GPU has finished what it had to do, and it idles until the next
batch is prepared. A step of Agon with 128 pairs has up to 384 such batches. The numbers are few, and known on the CPU:
here vLLM's own function sorts them there, and copies the result.
"""

from typing import Any

import torch
from vllm.lora.punica_wrapper.punica_gpu import PunicaWrapperGPU
from vllm.platforms import current_platform


class SortsOnCpu(PunicaWrapperGPU):
    def update_metadata(
        self, mapping: Any, lora_index_to_id: list[int | None], max_loras: int, vocab_size: int, **kwargs: Any
    ) -> None:
        self.is_prefill = mapping.is_prefill
        self._update_base_metadata(mapping, lora_index_to_id, max_loras, vocab_size)
        slots = {lora_id: slot for slot, lora_id in enumerate(lora_index_to_id) if lora_id is not None}
        for meta, adapters in (
            (self.token_mapping_meta, mapping.index_mapping),
            (self.prompt_mapping_meta, mapping.prompt_mapping),
        ):
            meta.prepare_tensors(torch.tensor([slots.get(lora_id, -1) for lora_id in adapters], device="cpu"))


def install() -> None:
    """In a worker of vLLM, before it loads a model."""
    platform: Any = type(current_platform)
    if platform.get_punica_wrapper() == f"{PunicaWrapperGPU.__module__}.{PunicaWrapperGPU.__name__}":
        platform.get_punica_wrapper = classmethod(lambda cls: f"{SortsOnCpu.__module__}.{SortsOnCpu.__name__}")
