"""LoRA in vLLM's CPU build, for a handful of adapters.

vLLM's CPU kernels gather an adapter's weights for every token, which takes most of the time of generation. They also
treat index -1, a token without an adapter, as the last slot: in a batch with adapters, requests to the base are
silently answered by one of them (0.28; vllm-project/vllm#48421). With few slots it is cheaper to multiply by the
weights of all slots at once and to mask those that are not the token's.
"""

from typing import Any

import torch
from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU
from vllm.platforms.cpu import CpuPlatform


class FewAdapters(PunicaWrapperCPU):
    _own: torch.Tensor  # (tokens, slots, 1): 1 at the slot of each token

    def update_metadata(
        self, mapping: Any, lora_index_to_id: list[int | None], max_loras: int, vocab_size: int, **kwargs: Any
    ) -> None:
        super().update_metadata(mapping, lora_index_to_id, max_loras, vocab_size, **kwargs)
        slots = torch.arange(len(lora_index_to_id))
        self._own = (self.token_lora_indices.unsqueeze(1) == slots).unsqueeze(2).float()

    def add_lora_linear(
        self,
        y: torch.Tensor,
        x: torch.Tensor,
        lora_a_stacked: tuple[torch.Tensor, ...],
        lora_b_stacked: tuple[torch.Tensor, ...],
        scale: float,
        output_slices: tuple[int, ...],
        **_: Any,
    ) -> None:
        """y += scale * B A x, with the matrices of each token's own adapter; one pair of matrices per slice of y."""
        own, begin = scale * self._own, 0
        for a, b, size in zip(lora_a_stacked, lora_b_stacked, output_slices, strict=True):
            slots, rank = a.shape[0], a.shape[2]
            inner = x @ a.view(slots * rank, -1).T
            inner = inner.view(-1, slots, rank).mul_(own).view(-1, slots * rank)
            y[:, begin : begin + size].addmm_(inner, b.squeeze(1).transpose(1, 2).reshape(slots * rank, -1))
            begin += size


class LoraOnCpu:
    """A worker extension without a method: vLLM imports this module in each of its workers before it loads a model."""


CpuPlatform.get_punica_wrapper = classmethod(lambda cls: f"{FewAdapters.__module__}.{FewAdapters.__name__}")
