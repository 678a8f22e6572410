"""verl's vLLM server with a slot per adapter; the caller of each request names the adapter."""

import argparse
import asyncio
from collections.abc import Awaitable, Mapping
from contextvars import ContextVar
from typing import Any

from verl.workers.rollout.replica import TokenOutput
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer
from vllm import ModelRegistry, SamplingParams
from vllm.lora.request import LoRARequest
from vllm.sampling_params import RequestOutputKind

from agon_verl.config import Opponent
from agon_verl.cpu.platform import ONE_PROCESS, cpu_only
from agon_verl.game.roles import BASE
from agon_verl.rollout.wire import WORKER_EXTENSION, lora_ids

_adapter: ContextVar[str] = ContextVar("adapter")
CHECK_SECONDS = 1.0
SCHEDULER = "agon_verl.rollout.scheduler.sends_once"


def in_one_process(args: argparse.Namespace) -> bool:
    """Whether vLLM's engine and its worker share a process: on a CPU, where both would wait for the same cores.

    On a GPU the worker prepares a batch while the engine schedules the next one. With 128 sequences of a 1.5B model one
    process for both took longer per token than the GPU.
    """
    return cpu_only() and args.tensor_parallel_size * args.pipeline_parallel_size * args.data_parallel_size == 1


def load_class_here(architecture: str) -> None:
    """Load the model's class in this process, which has imported vLLM already.

    vLLM would load it in a new process, which imports PyTorch and vLLM once more. That keeps CUDA out of a process that
    forks, and in a Ray actor vLLM does not fork. It remembers what it has seen, but not in the next container.
    """
    if architecture in ModelRegistry.models:
        ModelRegistry.register_model(architecture, ModelRegistry.models[architecture].load_model_cls())


class _AdapterEngine:
    """vLLM's engine, which adds the adapter of the request. verl's server requests the one adapter that it expects."""

    def __init__(self, engine: Any, ids: Mapping[str, int]) -> None:
        self._engine, self._ids = engine, ids

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def list_loras(self) -> set[int]:
        """verl's server looks for its own adapter before each request: a round trip that is not needed here."""
        return set()

    def generate(self, *, sampling_params: SamplingParams, **kwargs: Any) -> Any:
        """verl reads only the tokens of the last output: vLLM need neither send one output per token nor detokenize."""
        adapter = _adapter.get()
        kwargs["lora_request"] = (
            None
            if adapter == BASE
            else LoRARequest(lora_name=adapter, lora_int_id=self._ids[adapter], lora_path=adapter)
        )
        sampling_params.output_kind = RequestOutputKind.FINAL_ONLY
        sampling_params.detokenize = bool(sampling_params.stop)
        sampling_params.flat_logprobs = True  # lists of numbers; otherwise two objects per token
        return self._engine.generate(sampling_params=sampling_params, **kwargs)


class MultiAdapterServer(vLLMHttpServer):
    _failure: Exception | None = None  # of a wake-up, or of a call to vLLM's workers: they did not take the adapters

    @property
    def _slots(self) -> int:
        """A slot per adapter and per snapshot: an adapter synced as tensors cannot be loaded again after an eviction.

        verl sets one (vllm_async_server.py:430), after the arguments that a user may give.
        """
        adapters = len(self.model_config.lora["adapters"])
        return 2 * adapters if Opponent(**self.model_config.lora["opponent"]).snapshots else adapters

    async def run_headless(self, args: argparse.Namespace) -> None:
        """On the other nodes of a replica that spans several."""
        args.max_loras = self._slots
        await super().run_headless(args)

    async def run_server(self, args: argparse.Namespace) -> None:
        args.max_loras = self._slots
        args.scheduler_cls = args.scheduler_cls or SCHEDULER
        load_class_here(self.model_config.architectures[0])  # verl allows one
        chosen = (self.config.engine_kwargs.get("vllm") or {}).get("distributed_executor_backend")
        if chosen is None and in_one_process(args):
            args.distributed_executor_backend = ONE_PROCESS
        await super().run_server(args)
        self.engine: Any = _AdapterEngine(self.engine, lora_ids(self.model_config.lora["adapters"]))

    def _get_worker_extension_cls(self) -> str:
        return WORKER_EXTENSION

    async def collective_rpc(self, *args: Any, **kwargs: Any) -> None:
        await self._keep_failure(super().collective_rpc(*args, **kwargs))

    async def wake_up(self, *args: Any, **kwargs: Any) -> None:
        await self._keep_failure(super().wake_up(*args, **kwargs))

    async def _keep_failure(self, call: Awaitable[None]) -> None:
        """One rank makes the call and gets the error; the others of its replica wait for vLLM, and ask `check`."""
        try:
            await call
        except Exception as error:
            self._failure = error
            raise

    async def check(self) -> None:
        """Raises if vLLM's engine has died, or failed to wake up or to take the adapters."""
        if self._failure is not None:
            raise self._failure
        if self.engine.errored:
            raise self.engine.dead_error

    async def ping(self) -> None:
        """As `check`, and waits for the engine's own loop: it may have lost a thread although its process lives.

        vLLM never answers a call during which its engine dies, so the check goes on while this waits.
        """
        answer = asyncio.ensure_future(self.engine.is_sleeping())
        try:
            while not answer.done():
                await self.check()
                await asyncio.wait([answer], timeout=CHECK_SECONDS)
        finally:
            answer.cancel()
        await answer

    async def generate(self, *args: Any, adapter: str, **kwargs: Any) -> TokenOutput:
        _adapter.set(adapter)
        output = await super().generate(*args, **kwargs)
        output.extra_fields["adapter"] = adapter
        return output
