"""vLLM's engine with the pair's scheduler: tokens are sent once, and are the same as those sent one by one."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from agon_verl.inference.players import Players, Sampling
from agon_verl.inference.vllm_engine import Engine
from agon_verl.rollout.server import SCHEDULER

PROMPTS = [[5 + number, 9, 20, 33 + number] for number in range(6)]
LENGTHS = (1, 2, 7, 24, 24, 40)
LATE = 3  # outputs of a request that is answered at its end: the first token, and the rest
LOOP = asyncio.new_event_loop()


@pytest.fixture(scope="module")
def engine(tiny: Path) -> Iterator[Engine]:
    model = str(tiny / "model")

    async def start() -> Engine:
        players = Players(model, model, sampling=Sampling(max_tokens=64), max_prompt=32)
        return Engine(players, scheduler_cls=SCHEDULER)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_WORKER_MULTIPROC_METHOD", "spawn")  # other tests have used torch's threads
        engine = LOOP.run_until_complete(start())
    yield engine
    engine.close()
    LOOP.run_until_complete(asyncio.sleep(0.1))  # vLLM's tasks in the loop end


@pytest.fixture
def received(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[int]]:
    """How many tokens arrive with each output of a request."""
    sizes: dict[str, list[int]] = {}
    process: Callable[..., Any] = engine._llm.output_processor.process_outputs

    def counted(outputs: list[Any], *args: Any, **kwargs: Any) -> Any:
        for output in outputs:
            sizes.setdefault(output.request_id.split("-")[0], []).append(len(output.new_token_ids))
        return process(outputs, *args, **kwargs)

    monkeypatch.setattr(engine._llm.output_processor, "process_outputs", counted)
    return sizes


def requested(engine: Engine, number: int, name: str, **sampling: Any) -> AsyncIterator[Any]:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    settings = {"output_kind": RequestOutputKind.FINAL_ONLY, "detokenize": False, "seed": number, "logprobs": 0}
    parameters = SamplingParams(**{**settings, "ignore_eos": True, **sampling})
    return engine._llm.generate({"prompt_token_ids": PROMPTS[number]}, parameters, request_id=name)


async def last(outputs: AsyncIterator[Any]) -> Any:
    async for output in outputs:
        final = output
    (completion,) = final.outputs
    return completion


def run(*calls: Any) -> list[Any]:
    async def together() -> list[Any]:
        return await asyncio.gather(*calls)

    return LOOP.run_until_complete(together())


@pytest.mark.parametrize("flat", [False, True])
def test_the_tokens_and_their_log_probs_are_the_models(
    engine: Engine, tiny: Path, received: dict[str, list[int]], flat: bool
) -> None:
    completions = run(
        *(
            last(requested(engine, number, f"r{number}{flat}", max_tokens=length, flat_logprobs=flat))
            for number, length in enumerate(LENGTHS)
        )
    )
    model = AutoModelForCausalLM.from_pretrained(tiny / "model", dtype=torch.float32)
    for number, (length, completion) in enumerate(zip(LENGTHS, completions, strict=True)):
        ids = [*completion.token_ids]
        assert (len(ids), completion.finish_reason) == (length, "length")
        with torch.no_grad():
            logits = model(torch.tensor([[*PROMPTS[number], *ids]])).logits[0, len(PROMPTS[number]) - 1 : -1]
        expected = logits.log_softmax(-1).gather(1, torch.tensor(ids)[:, None])[:, 0]
        sampled = [entry[token].logprob for token, entry in zip(ids, completion.logprobs, strict=True)]
        assert torch.tensor(sampled) == pytest.approx(expected, abs=1e-3)
        sizes = received[f"r{number}{flat}"]
        assert sum(sizes) == length and len(sizes) < LATE


def test_a_stream_and_a_stop_string_are_answered_token_by_token(
    engine: Engine, tiny: Path, received: dict[str, list[int]]
) -> None:
    from vllm.sampling_params import RequestOutputKind

    async def pieces() -> list[int]:
        outputs = requested(engine, 0, "stream", max_tokens=9, output_kind=RequestOutputKind.DELTA)
        return [len(output.outputs[0].token_ids) async for output in outputs]

    (free,) = run(last(requested(engine, 1, "free", max_tokens=30, detokenize=True)))
    middle = free.text[len(free.text) // 2 :][:3]
    stream, stopped = run(pieces(), last(requested(engine, 1, "stop", max_tokens=30, stop=[middle], detokenize=True)))
    assert sum(stream) == 9 and received["stream"] == [1] * 9
    assert stopped.finish_reason == "stop" and set(received["stop"]) == {1}
    assert free.text.startswith(stopped.text) and len(stopped.token_ids) < 30
