"""vLLM's scheduler, except that the tokens of a request leave the engine once, when it ends.

verl reads only the last output. vLLM sends one output per token and sequence all the same, and with log-probs each has
three arrays. For 256 sequences that is 3 ms per token in the engine's process, which has to schedule the next step with
the same interpreter, and 6 ms in the server's (one Neoverse-N1 core); without log-probs it would be 0.2 and 0.4.

Requests that stream, or that end at a string, are answered token by token as before: the server looks for the string.
A request that is aborted loses the tokens that were not sent; only complete ones are trained on.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from vllm.sampling_params import RequestOutputKind
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import EngineCoreEvent, EngineCoreOutput, EngineCoreOutputs
from vllm.v1.outputs import LogprobsLists


@dataclass(slots=True)
class UnsentTokens:
    """Of one request. The rows of the log-probs are kept as bytes: an array per token would be an object per token.

    vLLM's arrays are as wide as the request of the batch with the most log-probs needs; `width` is this request's own.
    """

    width: int
    tokens: list[int] = field(default_factory=list)
    rows: tuple[bytearray, bytearray, bytearray] = field(
        default_factory=lambda: (bytearray(), bytearray(), bytearray())
    )
    events: list[EngineCoreEvent] = field(default_factory=list)  # such as a preemption, for vLLM's own metrics

    def add(self, output: EngineCoreOutput) -> None:
        self.tokens += output.new_token_ids
        self.events += output.events or ()
        for rows, new in zip(self.rows, self._own(output), strict=False):
            rows += new.tobytes()

    def put_before(self, output: EngineCoreOutput) -> None:
        output.new_token_ids = [*self.tokens, *output.new_token_ids]
        output.events = [*self.events, *(output.events or ())] or None
        if output.new_logprobs is not None:
            columns = (
                np.concatenate((np.frombuffer(rows, new.dtype).reshape(-1, *new.shape[1:]), new))
                for rows, new in zip(self.rows, self._own(output), strict=True)
            )
            output.new_logprobs = LogprobsLists(*columns)

    def _own(self, output: EngineCoreOutput) -> list[np.ndarray]:
        """Ids, log-probs and ranks; the fourth field is not of a request."""
        ids, logprobs, ranks = (output.new_logprobs or [np.empty((0, 0))] * 3)[:3]
        return [ids[:, : self.width], logprobs[:, : self.width], ranks]


class _SendsOnce:
    requests: dict[str, Any]  # vLLM's, of those that have not ended

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._unsent: dict[str, UnsentTokens] = {}

    def update_from_output(self, *args: Any, **kwargs: Any) -> dict[int, EngineCoreOutputs]:
        by_client: dict[int, EngineCoreOutputs] = super().update_from_output(*args, **kwargs)  # type: ignore[misc]
        for client in by_client.values():
            client.outputs = [output for output in client.outputs if not self._kept(output)]
        if len(self._unsent) > len(self.requests):  # some were aborted
            self._unsent = {name: unsent for name, unsent in self._unsent.items() if name in self.requests}
        return by_client

    def _kept(self, output: EngineCoreOutput) -> bool:
        """The first output of a request says how much of its prompt was cached, and is sent as well."""
        unsent = self._unsent.get(output.request_id)
        plain = output.prefill_stats is output.new_prompt_logprobs_tensors is output.routed_experts is None
        if output.finished or not plain:
            if unsent is not None:
                del self._unsent[output.request_id]
                unsent.put_before(output)
            return False
        if unsent is None:
            if not self._is_read_at_the_end(output.request_id):
                return False
            width = 1 + (self.requests[output.request_id].sampling_params.logprobs or 0)
            unsent = self._unsent[output.request_id] = UnsentTokens(width)
        unsent.add(output)
        return True

    def _is_read_at_the_end(self, request_id: str) -> bool:
        sampling = self.requests[request_id].sampling_params
        if sampling is None or sampling.stop or sampling.logprobs == -1:  # of a pooling model, or all log-probs
            return False
        return sampling.output_kind == RequestOutputKind.FINAL_ONLY


class SendsOnceAsync(_SendsOnce, AsyncScheduler):
    pass


class SendsOnceInTurn(_SendsOnce, Scheduler):
    pass


def sends_once(vllm_config: Any, **kwargs: Any) -> Scheduler:
    """vLLM decides only after it has read `scheduler_cls` whether it schedules ahead of the model."""
    ahead = vllm_config.scheduler_config.async_scheduling
    return (SendsOnceAsync if ahead else SendsOnceInTurn)(vllm_config=vllm_config, **kwargs)
