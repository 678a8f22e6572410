"""Agent loops that give each rollout its length, so that stock verl and Agon generate the same number of tokens.

A length depends on the seed, the problem, the session and the stage only. It is drawn from a beta distribution between
1 and the response cap, with the mean that the benchmark sets, and enforced with `max_tokens` and `ignore_eos`. Stock
has 2N sessions of a problem where Agon has N sessions of two stages: the first N have the lengths of the drafts, the
others those of the challenges.

With `wait_for` no rollout begins before that file is there, and FILE.waits says that one waits. So
several runs can start up together on one machine, which takes minutes, and step one after the other.

`step_time.py` names these classes in verl's `agent_loop_config_path`, under the names of the loops they replace.
"""

import asyncio
import random
from pathlib import Path
from typing import Any

from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop
from vllm.sampling_params import RequestOutputKind

from agon_verl.rollout.loop import AgonAgentLoop

CONCENTRATION = 4.0  # of the beta distribution: 2 and 2 for a mean of half the cap, a standard deviation of 0.22 caps
LEAN = {"output_kind": RequestOutputKind.FINAL_ONLY, "detokenize": False, "flat_logprobs": True}


def rollout_length(seed: int, problem: str, session: int, stage: int, mean: float, cap: int) -> int:
    """At least 1, less than the cap."""
    share = (mean - 1) / (cap - 1)
    chance = random.Random(f"{seed}/{problem}/{session}/{stage}")
    return 1 + int((cap - 1) * chance.betavariate(CONCENTRATION * share, CONCENTRATION * (1 - share)))


class _Lengths:
    """`mean` is in tokens; None leaves the lengths to the model."""

    def __init__(self, mean: float | None, seed: int, cap: int) -> None:
        self._mean, self._seed, self._cap = mean, seed, cap

    def of(self, messages: Any, session: int, stage: int) -> dict[str, Any]:
        if self._mean is None:
            return {}
        problem = repr([dict(message) for message in messages])
        length = rollout_length(self._seed, problem, int(session), stage, self._mean, self._cap)
        return {"max_tokens": length, "ignore_eos": True}


async def wait(file: str | None) -> None:
    if file and not Path(file).exists():
        Path(f"{file}.waits").touch()
        while not Path(file).exists():
            await asyncio.sleep(0.1)


class FixedSingleTurn(SingleTurnAgentLoop):
    """verl's own loop. With `lean`, vLLM makes one output per request, without text: verl reads only its tokens."""

    def __init__(
        self, *args: Any, mean: float | None, seed: int, lean: bool, wait_for: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._wait_for = wait_for
        self._lengths = _Lengths(mean, seed, self.response_length)
        self._lean = LEAN if lean else {}

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> Any:
        await wait(self._wait_for)
        stage, session = divmod(int(kwargs["session_id"]), self.rollout_config.n // 2)
        length = self._lengths.of(kwargs["raw_prompt"], session, stage)
        return await super().run({**sampling_params, **length, **self._lean}, **kwargs)


class FixedPair(AgonAgentLoop):
    """A length for the draft and one for the challenge."""

    def __init__(self, *args: Any, mean: float | None, seed: int, wait_for: str | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._wait_for = wait_for
        self._lengths = _Lengths(mean, seed, self.response_length)

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> Any:
        await wait(self._wait_for)
        draft, challenge = (self._lengths.of(kwargs["raw_prompt"], kwargs["session_id"], stage) for stage in (0, 1))
        later = {**kwargs["challenge_sampling"], **challenge}
        return await super().run({**sampling_params, **draft}, **{**kwargs, "challenge_sampling": later})
