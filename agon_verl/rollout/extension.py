"""Runs inside vLLM's worker processes: takes several adapters out of one weight transfer."""

import os
from collections.abc import Sequence
from typing import Any

import torch
from verl.utils.vllm import TensorLoRARequest
from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension

from agon_verl.cpu.platform import cpu_only
from agon_verl.rollout.wire import NODE, parse_sync_name, socket_of_run

if cpu_only():
    import agon_verl.cpu.lora  # noqa: F401
else:
    from agon_verl.rollout import adapter_rows

    adapter_rows.install()


class MultiAdapterWorkerExtension(vLLMColocateWorkerExtension):
    """The only changes: a LoRA transfer contains several adapters, each with an id of its own, ends before vLLM takes
    them, and has a socket that no other run uses.

    During the transfer the trainer waits for an answer to each bucket. An error there would leave it without one, and
    the receiver's clean-up would replace the error by one of its own: shared memory that the traceback still refers to.
    """

    _received: Sequence[tuple[str, torch.Tensor]] = ()

    def _get_zmq_handle(self) -> str:
        return socket_of_run(super()._get_zmq_handle(), os.environ[NODE])

    def update_weights_from_ipc(self, peft_config: dict[str, Any], **kwargs: Any) -> None:
        super().update_weights_from_ipc(peft_config=peft_config, **kwargs)
        received, self._received = self._received, ()
        self._put_adapters(received, peft_config)

    def _update_weights(
        self, weights: list[tuple[str, torch.Tensor]], peft_config: dict[str, Any], base_sync_done: bool
    ) -> None:
        """verl calls it once with all tensors, and they are copies."""
        self._received = weights

    def _name_layers_as_peft_does(self) -> None:
        """From vLLM 0.25 on, a model's mapper renames `q_proj` to the fused `qkv_proj`, for which PEFT has no adapter.

        verl 0.9.0 reads adapters with that mapper, later versions with this one. The base is never loaded again.
        """
        model = self.model_runner.model
        mapper: Any = getattr(model, "hf_to_vllm_mapper", None)
        if hasattr(mapper, "get_unstacked_mapper"):
            model.hf_to_vllm_mapper = mapper.get_unstacked_mapper()

    def _put_adapters(self, weights: Sequence[tuple[str, torch.Tensor]], peft_config: dict[str, Any]) -> None:
        self._name_layers_as_peft_does()
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
