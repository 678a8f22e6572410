"""Three batches in flight: vLLM's own engine loop and scheduler; its worker, which needs a GPU for this, is played."""

import random
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm import SamplingParams
from vllm.config import VllmConfig
from vllm.engine.arg_utils import EngineArgs
from vllm.platforms.interface import DeviceCapability
from vllm.v1.attention.backends.registry import AttentionBackendEnum
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.engine import EngineCoreRequest, core
from vllm.v1.executor.abstract import Executor
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request

from agon_verl.rollout import in_flight
from agon_verl.rollout.scheduler import SendsOnceThreeInFlight
from agon_verl.rollout.wire import WORKER_EXTENSION
from tests import tiny

BLOCK = 16
END = 3
TOKENS = 97


def next_token(prefix: Sequence[int]) -> int:
    return random.Random(repr([*prefix])).randrange(TOKENS)


def completion(prompt: Sequence[int], most: int) -> list[int]:
    tokens: list[int] = []
    while len(tokens) < most and END not in tokens:
        tokens.append(next_token([*prompt, *tokens]))
    return tokens


@dataclass
class State:
    tokens: list[int]  # that the worker knows on the CPU
    blocks: list[int]


@dataclass
class PlayedWorker:
    """Computes each batch at once, in order, from the tokens that are in the cache's blocks at that time.

    As in vLLM's first model runner, the token that a request has just sampled is at hand only in the next batch;
    as in the second (`keeps`), it stays with the request.
    """

    keeps: bool
    cache: dict[int, int] = field(default_factory=dict)
    states: dict[str, State] = field(default_factory=dict)
    sampled: dict[str, tuple[int, int]] = field(default_factory=dict)  # position and token

    def run(self, batch: SchedulerOutput) -> ModelRunnerOutput:
        for name in batch.finished_req_ids:
            self.states.pop(name, None)
        computed: dict[str, int] = {}
        for new in batch.scheduled_new_reqs:
            tokens = new.prefill_token_ids if self.keeps else new.prompt_token_ids
            self.states[new.req_id] = State([*(tokens or [])], [*new.block_ids[0]])
            computed[new.req_id] = new.num_computed_tokens
        old = batch.scheduled_cached_reqs
        for name, blocks, done in zip(old.req_ids, old.new_block_ids, old.num_computed_tokens, strict=True):
            state, computed[name] = self.states[name], done
            if name in old.resumed_req_ids:
                state.blocks = []
            state.blocks += blocks[0] if blocks else []
            state.tokens = old.all_token_ids.get(name, state.tokens)
        before = dict(self.sampled) if self.keeps else self.sampled
        self.sampled = before if self.keeps else {}
        names = [*batch.num_scheduled_tokens]
        rows = [self._row(name, computed[name], batch.num_scheduled_tokens[name], before) for name in names]
        return ModelRunnerOutput(names, {name: row for row, name in enumerate(names)}, rows)

    def _row(self, name: str, start: int, count: int, before: dict[str, tuple[int, int]]) -> list[int]:
        state, end = self.states[name], start + count
        slots = [state.blocks[place // BLOCK] * BLOCK + place % BLOCK for place in range(end)]
        for place in range(start, end):
            if place < len(state.tokens):
                self.cache[slots[place]] = state.tokens[place]
            else:
                known, self.cache[slots[place]] = before.get(name, (None, -1))
                assert known == place, f"{name} needs its token {place}, and the worker has {known}"
        if end < len(state.tokens):  # a part of a prompt
            return []
        token = next_token([self.cache[slot] for slot in slots])
        self.sampled[name] = (end, token)
        return [token]


class PlayedExecutor(Executor):
    def _init_executor(self) -> None:
        self.worker = PlayedWorker(self.vllm_config.use_v2_model_runner)

    def get_kv_cache_specs(self) -> list[dict[str, Any]]:
        return [{"layer": FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=8, dtype=torch.float32)}]

    def determine_available_memory(self) -> list[int]:
        return [1 << 30]

    def collective_rpc(self, *_: Any, **__: Any) -> list[Any]:  # type: ignore[override]
        return []

    def check_health(self) -> None:
        pass

    def execute_model(self, batch: SchedulerOutput, non_block: bool = False) -> Any:
        self._output = self.worker.run(batch)
        return done(None if batch.total_num_scheduled_tokens else self._output)

    def sample_tokens(self, grammar: Any, non_block: bool = False) -> Any:
        return done(self._output)


def done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.make_model(tmp_path_factory.mktemp("model"))


def engine(model: Path, scheduler: str, second_runner: bool, blocks: int, batch_tokens: int) -> core.EngineCore:
    arguments = EngineArgs(
        model=str(model),
        max_model_len=256,
        max_num_seqs=32,
        max_num_batched_tokens=batch_tokens,
        block_size=BLOCK,
        num_gpu_blocks_override=blocks,
        scheduler_cls=f"agon_verl.rollout.scheduler.{scheduler}",
        worker_extension_cls=WORKER_EXTENSION,
    )
    config = arguments.create_engine_config()
    config.scheduler_config.async_scheduling = True  # vLLM has it on a GPU, and switches it off on a CPU
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(VllmConfig, "use_v2_model_runner", second_runner)
        # install() changes it for the process
        patch.setattr(VllmConfig, "max_concurrent_batches", in_flight._vllm_property)
        for name in ("enable_envs_cache", "freeze_gc_heap"):  # they would outlast this test
            patch.setattr(core, name, lambda: None)
        return core.EngineCore(config, PlayedExecutor, log_stats=False)


def generated(engine: core.EngineCore, prompts: Sequence[Sequence[int]], most: int) -> tuple[list[list[int]], int]:
    """The tokens of each prompt's completion, and how many batches were in flight at most."""
    tokens: dict[str, list[int]] = {f"{number}": [] for number in range(len(prompts))}
    for name, prompt in zip(tokens, prompts, strict=True):
        sampling = SamplingParams(max_tokens=most, stop_token_ids=[END])
        fields = dict(mm_features=None, pooling_params=None, arrival_time=0.0, lora_request=None, cache_salt=None)
        request = EngineCoreRequest(
            request_id=name,
            prompt_token_ids=[*prompt],
            sampling_params=sampling,
            data_parallel_rank=None,
            **fields,  # type: ignore[arg-type]
        )
        engine.add_request(Request.from_engine_core_request(request, engine.request_block_hasher))
    deepest = 0
    assert engine.batch_queue is not None
    while engine.scheduler.has_requests() or engine.batch_queue:
        outputs, _ = engine.step_fn()
        deepest = max(deepest, len(engine.batch_queue) + 1)
        for each in outputs[0].outputs if outputs and 0 in outputs else ():
            tokens[each.request_id] += each.new_token_ids
    return [*tokens.values()], deepest


def prompts(count: int, length: int) -> list[list[int]]:
    return [[random.Random(number).randrange(TOKENS) for _ in range(length + number % 5)] for number in range(count)]


@pytest.mark.parametrize("second_runner", [False, True])
@pytest.mark.parametrize(("scheduler", "batches"), [("sends_once", 2), ("three_in_flight", 3)])
def test_tokens_are_those_of_one_batch_after_the_other(
    model: Path, second_runner: bool, scheduler: str, batches: int
) -> None:
    subject = engine(model, scheduler, second_runner, blocks=400, batch_tokens=2048)
    texts, deepest = generated(subject, prompts(24, 20), 60)
    assert texts == [completion(prompt, 60) for prompt in prompts(24, 20)]
    assert {text[-1] == END for text in texts} == {True, False}  # some end by themselves, some at the limit
    assert deepest == batches


@pytest.mark.parametrize("second_runner", [False, True])
def test_with_a_cache_that_is_too_small(model: Path, second_runner: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    preempted: list[int] = []
    original = SendsOnceThreeInFlight._preempt_request

    def counted(self: Any, request: Request, *args: Any, **kwargs: Any) -> None:
        preempted.append(request.num_output_placeholders)
        original(self, request, *args, **kwargs)

    monkeypatch.setattr(SendsOnceThreeInFlight, "_preempt_request", counted)
    subject = engine(model, "three_in_flight", second_runner, blocks=40, batch_tokens=2048)
    texts, _ = generated(subject, prompts(24, 20), 60)
    assert texts == [completion(prompt, 60) for prompt in prompts(24, 20)]
    assert preempted.count(2) > 5


@pytest.mark.parametrize("second_runner", [False, True])
def test_with_requests_that_are_left_out_of_some_batches(
    model: Path, second_runner: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM leaves out a request whose step has not come; here that is one in ten, at random."""
    chance, left_out = random.Random(0), 0
    rule = SendsOnceThreeInFlight._hold_those_left_out

    def at_random(self: Any) -> None:
        nonlocal left_out
        rule(self)
        for request in self.running:
            if chance.random() < 0.1:
                request.next_decode_eligible_step = self.current_step + 2
                left_out += request.num_output_placeholders > 0

    monkeypatch.setattr(SendsOnceThreeInFlight, "_hold_those_left_out", at_random)
    subject = engine(model, "three_in_flight", second_runner, blocks=400, batch_tokens=48)
    texts, _ = generated(subject, prompts(24, 40), 60)
    assert texts == [completion(prompt, 60) for prompt in prompts(24, 40)]
    assert left_out > 20


@pytest.mark.parametrize(("default", "stages", "batches"), [(1, 1, 1), (2, 1, 3), (2, 2, 2), (3, 2, 3)])
def test_only_asynchronous_scheduling_without_pipeline_stages_is_changed(
    default: int, stages: int, batches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_flight, "_vllm_property", property(lambda config: default))
    config: Any = SimpleNamespace(parallel_config=SimpleNamespace(pipeline_parallel_size=stages))
    assert in_flight._batches(config) == batches


@pytest.mark.parametrize(
    ("second_runner", "extension", "backend", "generation", "ready"),
    [
        (False, "", None, 10, True),
        (True, WORKER_EXTENSION, None, 9, True),
        (True, "another.Extension", None, 9, False),  # its buffers are for two batches
        (True, WORKER_EXTENSION, None, 10, False),
        (True, WORKER_EXTENSION, "FLASH_ATTN", 10, True),
        (True, WORKER_EXTENSION, "FLASHINFER", 9, False),
    ],
)
def test_a_worker_whose_inputs_are_not_kept_apart_gets_two_batches(
    second_runner: bool,
    extension: str,
    backend: str | None,
    generation: int,
    ready: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device = SimpleNamespace(get_device_capability=lambda: DeviceCapability(generation, 0))
    monkeypatch.setattr(in_flight, "current_platform", device)
    config: Any = SimpleNamespace(
        use_v2_model_runner=second_runner,
        parallel_config=SimpleNamespace(worker_extension_cls=extension),
        attention_config=SimpleNamespace(backend=backend and AttentionBackendEnum[backend]),
    )
    assert in_flight.worker_is_ready(config) is ready
