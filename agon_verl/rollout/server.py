"""The vLLM server of a pair: a slot for each adapter, and the adapter of each request chosen by its caller."""

import argparse
from contextvars import ContextVar
from typing import Any

import ray
from verl.workers.rollout.replica import TokenOutput
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer, vLLMReplica
from vllm import SamplingParams
from vllm.lora.request import LoRARequest
from vllm.sampling_params import RequestOutputKind

from agon_verl.config import Opponent
from agon_verl.cpu.platform import ONE_PROCESS, cpu_only
from agon_verl.game.roles import ADAPTERS
from agon_verl.rollout.wire import BASE, SERVED, lora_id

_adapter: ContextVar[str] = ContextVar("adapter")


class _AdapterEngine:
    """vLLM's engine with the request's adapter put in. verl's server asks it for the one adapter it knows of."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def list_loras(self) -> set[int]:
        """verl's server asks before each request whether its own adapter is there: a round trip that we can spare."""
        return set()

    def generate(self, *, sampling_params: SamplingParams, **kwargs: Any) -> Any:
        """verl reads the last output, and only its tokens: none is made for each token, and none is put into words."""
        adapter = _adapter.get()
        kwargs["lora_request"] = (
            None if adapter == BASE else LoRARequest(lora_name=adapter, lora_int_id=lora_id(adapter), lora_path=adapter)
        )
        sampling_params.output_kind = RequestOutputKind.FINAL_ONLY
        sampling_params.detokenize = bool(sampling_params.stop)
        return self._engine.generate(sampling_params=sampling_params, **kwargs)


class AgonServer(vLLMHttpServer):
    @property
    def _slots(self) -> int:
        """A slot for each adapter: what was synced as tensors could not be loaded again after an eviction."""
        return len(SERVED if Opponent(**self.model_config.lora["opponent"]).snapshots else ADAPTERS)

    async def run_headless(self, args: argparse.Namespace) -> None:
        """The further nodes of a replica that spans several."""
        args.max_loras = self._slots
        await super().run_headless(args)

    async def run_server(self, args: argparse.Namespace) -> None:
        args.max_loras = self._slots
        if cpu_only() and args.tensor_parallel_size == 1:
            args.distributed_executor_backend = ONE_PROCESS
        await super().run_server(args)
        self.engine: Any = _AdapterEngine(self.engine)

    def _get_worker_extension_cls(self) -> str:
        return "agon_verl.rollout.extension.PairWorkerExtension"

    async def ping(self) -> None:
        """Raises if vLLM's engine has died."""
        if self.engine.errored:
            raise self.engine.dead_error

    async def generate(self, *args: Any, adapter: str, **kwargs: Any) -> TokenOutput:
        _adapter.set(adapter)
        output = await super().generate(*args, **kwargs)
        output.extra_fields["adapter"] = adapter
        return output


class AgonReplica(vLLMReplica):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.server_class = ray.remote(AgonServer)
