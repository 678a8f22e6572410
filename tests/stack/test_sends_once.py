"""What the pair's scheduler does with vLLM's outputs; tests/real/test_last_output.py runs it inside vLLM."""

from types import SimpleNamespace
from typing import Any

import numpy as np
from vllm import SamplingParams
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine import EngineCoreEvent, EngineCoreEventType, EngineCoreOutput, EngineCoreOutputs, FinishReason
from vllm.v1.outputs import LogprobsLists

from agon_verl.rollout.scheduler import _SendsOnce

AT_THE_END = SamplingParams(output_kind=RequestOutputKind.FINAL_ONLY, logprobs=1)


class Outputs:
    """In place of vLLM's scheduler: these outputs come out of a step, and these requests have not ended."""

    def __init__(self) -> None:
        self.requests: dict[str, Any] = {}

    def update_from_output(self, *outputs: EngineCoreOutput) -> dict[int, EngineCoreOutputs]:
        return {0: EngineCoreOutputs(outputs=[*outputs])}


class Subject(_SendsOnce, Outputs):
    pass


def output(name: str, *tokens: int, **fields: Any) -> EngineCoreOutput:
    ids = np.array([[token, token + 1] for token in tokens], np.int32).reshape(-1, 2)
    logprobs = LogprobsLists(ids, ids.astype(np.float32) / -8, ids[:, 0].astype(np.int64))
    return EngineCoreOutput(name, [*tokens], new_logprobs=logprobs, **fields)


def test_tokens_and_log_probs_arrive_in_order_with_the_last_output() -> None:
    subject = Subject()
    subject.requests = {name: SimpleNamespace(sampling_params=AT_THE_END) for name in "ab"}
    assert subject.update_from_output(output("a", 1), output("b", 11))[0].outputs == []
    assert subject.update_from_output(output("a", 2, 3), output("b", 12))[0].outputs == []
    (last,) = subject.update_from_output(output("a", 4, finish_reason=FinishReason.STOP), output("b", 13))[0].outputs
    assert (last.request_id, last.new_token_ids, last.finish_reason) == ("a", [1, 2, 3, 4], FinishReason.STOP)
    expected = output("a", 1, 2, 3, 4).new_logprobs
    assert expected is not None and last.new_logprobs is not None
    for column, right in zip(last.new_logprobs[:3], expected[:3], strict=True):
        assert column.dtype == right.dtype and column.tolist() == right.tolist()
    assert [*subject._unsent] == ["b"]


def test_events_arrive_with_the_last_output() -> None:
    subject = Subject()
    subject.requests = {"a": SimpleNamespace(sampling_params=AT_THE_END)}
    preempted, scheduled = (
        EngineCoreEvent.new_event(kind) for kind in (EngineCoreEventType.PREEMPTED, EngineCoreEventType.SCHEDULED)
    )
    subject.update_from_output(output("a", 1, events=[preempted]))
    subject.update_from_output(output("a", 2))
    (last,) = subject.update_from_output(output("a", 3, events=[scheduled], finish_reason=FinishReason.STOP))[0].outputs
    assert last.events == [preempted, scheduled]


def test_another_request_that_needs_more_log_probs_changes_nothing() -> None:
    subject = Subject()
    subject.requests = {
        "a": SimpleNamespace(sampling_params=SamplingParams(output_kind=AT_THE_END.output_kind, logprobs=0))
    }
    for token in (1, 2):  # the arrays are two wide in this step, and one wide at the end
        subject.update_from_output(output("a", token))
    last = output("a", 3, finish_reason=FinishReason.STOP)
    ids, logprobs, ranks, _ = last.new_logprobs
    last.new_logprobs = LogprobsLists(ids[:, :1], logprobs[:, :1], ranks)
    (sent,) = subject.update_from_output(last)[0].outputs
    assert sent.new_token_ids == [1, 2, 3] and sent.new_logprobs.logprob_token_ids.tolist() == [[1], [2], [3]]


def test_what_an_aborted_request_had_is_forgotten() -> None:
    subject = Subject()
    subject.requests = {"gone": SimpleNamespace(sampling_params=AT_THE_END)}
    subject.update_from_output(output("gone", 1))
    subject.requests.clear()
    subject.update_from_output()
    assert subject._unsent == {}
