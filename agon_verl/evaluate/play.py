"""Generates everything that a list of modes needs, once: modes that start with the same first stage share it.

A second stage waits only for the drafts it reads. A generation that is in the store is not made again; one whose judge
failed is judged again. Each generation has a seed of its own, derived from its key, so what is sampled does not depend
on what else is generated.
"""

import asyncio
import hashlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from agon_verl.evaluate.judge import Judge
from agon_verl.evaluate.problems import EvaluationProblem
from agon_verl.evaluate.store import Generation, Key, Store
from agon_verl.game.prompts import challenge_messages
from agon_verl.game.roles import ADAPTERS, BASE
from agon_verl.inference.cascade import challenge
from agon_verl.inference.chat import Chat
from agon_verl.inference.moa import refine, refine_messages
from agon_verl.inference.players import InferenceError, Players, Sampling, read_mode
from agon_verl.inference.vllm_engine import Completion, Engine

MOA = "moa"
Job = tuple[EvaluationProblem, Sequence[str]]  # a problem and the modes to play it in
Unit = tuple[EvaluationProblem, Sequence[Key]]  # one sample of a problem: what has to be generated, drafts first


def modes_of(players: Players, greedy: bool = False) -> list[str]:
    """All modes of the target. Greedy samples of one model are equal, so there is no mixture of them."""
    have = [name for name in ADAPTERS if name in players.adapters]
    crossed = [f"{a}_to_{b}" for a in have for b in have if a != b]
    return [*crossed, *(f"{a}_to_{a}" for a in have), *have, BASE, *([] if greedy else [MOA])]


def answers(mode: str, problem: str, sample: int, names: tuple[str, ...]) -> list[tuple[Key | None, Key]]:
    """The draft and the final stage of each answer of a mode in one pass: one answer, or two of `moa`."""
    if mode == MOA:
        return [((BASE, problem, i), (MOA, problem, i)) for i in (2 * sample, 2 * sample + 1)]
    drafter, _ = read_mode(mode, names)
    return [((drafter, problem, sample) if drafter else None, (mode, problem, sample))]


def overlong(chat: Chat, mode: str, problem: EvaluationProblem) -> int:
    """By how many tokens the prompt of a mode is too long, even without the text of a draft."""
    if mode == MOA:
        return chat.excess(refine_messages(problem.messages, None, None))
    drafter, _ = read_mode(mode, chat.players.names)
    return chat.excess(challenge_messages(problem.messages, None) if drafter else problem.messages)


def plan(jobs: Sequence[Job], samples: int, names: tuple[str, ...]) -> list[Unit]:
    def needed(problem: EvaluationProblem, modes: Sequence[str], sample: int) -> Iterator[Key]:
        for mode in modes:
            for draft, final in answers(mode, problem.id, sample, names):
                yield from (key for key in (draft, final) if key is not None)

    return [
        (problem, list(dict.fromkeys(needed(problem, modes, sample))))
        for sample in range(samples)
        for problem, modes in jobs
    ]


def missing(units: Sequence[Unit], store: Store) -> set[Key]:
    """What is not in the store yet, or has no verdict."""
    keys = {key for _, needed in units for key in needed}
    return {key for key in keys if (stored := store.generations.get(key)) is None or stored.error}


class Play:
    def __init__(
        self, engine: Engine, judge: Judge, store: Store, sampling: Sampling, seed: int, max_failed: float
    ) -> None:
        self._engine, self._judge, self._store = engine, judge, store
        self._sampling, self._seed, self._max_failed = sampling, seed, max_failed
        self._tasks: dict[Key, asyncio.Task[Generation]] = {}
        self._failed = self._planned = 0
        self._bar: Any = None

    async def run(self, units: Sequence[Unit], concurrency: int) -> None:
        """`units` come from `plan`. `concurrency` is the approximate number of requests in vLLM at a time."""
        from tqdm import tqdm

        self._planned = len({key for _, keys in units for key in keys})
        done = self._planned - len(missing(units, self._store))
        room = asyncio.Semaphore(max(1, concurrency // max(len(keys) for _, keys in units)))
        often = 0.2 if sys.stderr.isatty() else 30  # seconds; fewer lines in a log file
        with tqdm(total=self._planned, initial=done, unit="generation", mininterval=often) as self._bar:
            tasks = [asyncio.ensure_future(self._unit(room, *unit)) for unit in units]
            try:
                await asyncio.gather(*tasks)
            finally:
                for task in (*tasks, *self._tasks.values()):
                    task.cancel()
                await asyncio.gather(*tasks, *self._tasks.values(), return_exceptions=True)

    async def _unit(self, room: asyncio.Semaphore, problem: EvaluationProblem, keys: Sequence[Key]) -> None:
        async with room:
            await asyncio.gather(*(self._once(key, problem) for key in keys))

    def _once(self, key: Key, problem: EvaluationProblem) -> "asyncio.Task[Generation]":
        if key not in self._tasks:
            self._tasks[key] = asyncio.ensure_future(self._judged(key, problem))
        return self._tasks[key]

    async def _judged(self, key: Key, problem: EvaluationProblem) -> Generation:
        stored = self._store.generations.get(key)
        if stored is not None and not stored.error:
            return stored
        made = stored or await self._generated(key, problem)
        made = await self._judge.judged(problem, made)
        self._store.add(made)
        self._bar.update(not made.error)
        self._failed += bool(made.error)
        if self._failed > self._max_failed * self._planned:
            raise InferenceError(
                f"the judge failed {self._failed} times, more than --max-failed={self._max_failed:g} of "
                f"{self._planned}; the last time: {made.error}"
            )
        return made

    async def _generated(self, key: Key, problem: EvaluationProblem) -> Generation:
        mode, _, sample = key
        own = replace(self._sampling, seed=seed_of(self._seed, key))
        if mode in self._engine.players.names:
            return _generation(key, 1, mode, await self._engine.generate(problem.messages, mode, own))
        if mode == MOA:
            drafts = await asyncio.gather(*(self._once((BASE, problem.id, i), problem) for i in (sample, sample ^ 1)))
            mine, other = (self._engine.read(draft.text, draft.opened, draft.finish) for draft in drafts)
            shown, completion = await refine(self._engine, problem.messages, mine, other, own)
            return replace(_generation(key, 2, BASE, completion), shown=shown)
        drafter, player = read_mode(mode, self._engine.players.names)
        draft = await self._once((str(drafter), problem.id, sample), problem)
        read = self._engine.read(draft.text, draft.opened, draft.finish)
        attempt, messages = await challenge(self._engine, problem.messages, read)
        made = _generation(key, 2, player, await self._engine.generate(messages, player, own))
        return replace(
            made,
            shown=attempt.shown,
            leaked=attempt.leaked,
            cut=attempt.cut,
            reasoned=attempt.reasoned,
        )


def seed_of(seed: int, key: Key) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}/{key}".encode()).digest()[:4], "big")


def _generation(key: Key, stage: int, player: str, completion: Completion) -> Generation:
    mode, problem, sample = key
    return Generation(
        mode=mode,
        stage=stage,
        player=player,
        problem=problem,
        sample=sample,
        prompt_tokens=completion.prompt_tokens,
        tokens=len(completion.ids),
        finish=completion.finish,
        opened=completion.opened,
        text=completion.text,
    )
