"""Runs inside vLLM's worker processes: takes the adapters out of one weight transfer."""

from typing import Any

import torch
from verl.utils.vllm import TensorLoRARequest
from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension

from agon_verl.cpu.platform import cpu_only
from agon_verl.rollout.wire import SYNC_SEPARATOR, lora_id

if cpu_only():
    import agon_verl.cpu.lora  # noqa: F401


class PairWorkerExtension(vLLMColocateWorkerExtension):
    """The only change: a LoRA transfer holds several adapters, each bound for the slot of its own."""

    def _update_weights(
        self, weights: list[tuple[str, torch.Tensor]], peft_config: dict[str, Any], base_sync_done: bool
    ) -> None:
        adapters: dict[str, dict[str, torch.Tensor]] = {}
        for name, tensor in weights:
            adapter, parameter = name.split(SYNC_SEPARATOR, 1)
            adapters.setdefault(adapter, {})[parameter] = tensor
        for adapter, tensors in adapters.items():
            slot = lora_id(adapter)
            self.remove_lora(slot)
            self.add_lora(
                TensorLoRARequest(
                    lora_name=adapter,
                    lora_int_id=slot,
                    lora_path=adapter,
                    peft_config=peft_config,
                    lora_tensors=tensors,
                )
            )
