"""Runs inside vLLM's worker processes: takes several adapters out of one weight transfer."""

from typing import Any

import torch
from verl.utils.vllm import TensorLoRARequest
from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension

from agon_verl.cpu.platform import cpu_only
from agon_verl.rollout.wire import parse_sync_name

if cpu_only():
    import agon_verl.cpu.lora  # noqa: F401


class MultiAdapterWorkerExtension(vLLMColocateWorkerExtension):
    """The only change: a LoRA transfer contains several adapters, each with an id of its own."""

    def _update_weights(
        self, weights: list[tuple[str, torch.Tensor]], peft_config: dict[str, Any], base_sync_done: bool
    ) -> None:
        adapters: dict[tuple[str, int], dict[str, torch.Tensor]] = {}
        for name, tensor in weights:
            adapter, lora_id, parameter = parse_sync_name(name)
            adapters.setdefault((adapter, lora_id), {})[parameter] = tensor
        for (adapter, lora_id), tensors in adapters.items():
            self.remove_lora(lora_id)
            self.add_lora(
                TensorLoRARequest(
                    lora_name=adapter,
                    lora_int_id=lora_id,
                    lora_path=adapter,
                    peft_config=peft_config,
                    lora_tensors=tensors,
                )
            )
