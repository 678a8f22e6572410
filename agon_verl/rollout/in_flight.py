"""vLLM's engine with three batches in flight, where it has two.

With two, the engine hands batch k + 1 to its worker while the GPU computes batch k, waits for k's tokens, and only then
schedules k + 2. Reading the tokens, scheduling and the worker's preparation follow each other, and the GPU waits where
together they take longer than a batch. With three, engine, worker and GPU work at the same time, and a token takes as
long as the slowest of them. The price: a request that ends leaves one more batch that is computed in vain, and a new
one waits for one more.
"""

from typing import Any

from vllm.config import VllmConfig
from vllm.platforms import current_platform
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.output import SchedulerOutput

from agon_verl.rollout.wire import WORKER_EXTENSION

BATCHES = 3
_vllm_property: Any = VllmConfig.max_concurrent_batches


def install() -> None:
    """In the engine's process before it makes its queue, in a worker's before it makes its buffers."""
    VllmConfig.max_concurrent_batches = property(_batches)


def _batches(config: VllmConfig) -> int:
    """vLLM has one without asynchronous scheduling, and its own number with pipeline stages: both stay."""
    batches: int = _vllm_property.fget(config)
    return BATCHES if batches == 2 and config.parallel_config.pipeline_parallel_size == 1 else batches


def worker_is_ready(config: VllmConfig) -> bool:
    """Whether the worker keeps the inputs of three batches apart.

    vLLM's first model runner waits until the GPU has copied what it is about to overwrite. The second has a buffer per
    batch: as many as it has been told (`install`), and one for all in FlashInfer, vLLM's choice on Blackwell.
    """
    if not config.use_v2_model_runner:
        return True
    chosen, device = config.attention_config.backend, current_platform.get_device_capability()
    flashinfer = chosen.name == "FLASHINFER" if chosen else device is not None and device.major >= 10
    return config.parallel_config.worker_extension_cls == WORKER_EXTENSION and not flashinfer


class ThreeInFlight:
    """Before vLLM's AsyncScheduler, of which version 0.24 expects at most one unread token per request."""

    running: list[Any]  # vLLM's requests
    prev_step_scheduled_req_ids: set[str]
    use_v2_model_runner: bool
    current_step: int
    pause_state: PauseState
    set_pause_state: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._preempted: list[Any] = []

    def schedule(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        self._hold_those_left_out()
        chosen = self.pause_state
        if chosen == PauseState.UNPAUSED and self._preempted_have_unread_tokens():
            self.set_pause_state(PauseState.PAUSED_NEW)
        try:
            output: SchedulerOutput = super().schedule(*args, **kwargs)  # type: ignore[misc]
            return output
        finally:
            self.set_pause_state(chosen)

    def _hold_those_left_out(self) -> None:
        """A request that was not in the last batch waits until its tokens are read.

        The first model runner takes a request's last token from the batch before, or else from the scheduler, which
        would not have it yet. The second keeps it on the GPU.
        """
        if self.use_v2_model_runner:
            return
        for request in self.running:
            if request.num_output_placeholders and request.request_id not in self.prev_step_scheduled_req_ids:
                request.next_decode_eligible_step = self.current_step + 2  # the coming step is current_step + 1

    def _preempt_request(self, request: Any, *args: Any, **kwargs: Any) -> None:
        super()._preempt_request(request, *args, **kwargs)  # type: ignore[misc]
        self._preempted.append(request)

    def _preempted_have_unread_tokens(self) -> bool:
        """Resumed before they are read, a preempted request would sample them a second time.

        Later versions of vLLM see to that themselves, and set the number to 0.
        """
        self._preempted = [each for each in self._preempted if each.num_output_placeholders and not each.is_finished()]
        return bool(self._preempted)
