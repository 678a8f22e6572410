"""One request played on the engine, and the line that requests stand in.

A request holds its place from the moment it is accepted until its answer is out or its client is gone, and its turn
through both stages: a challenge never waits behind somebody else's draft.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager

from jinja2 import TemplateError

from agon_verl.game.prompts import challenge_messages
from agon_verl.inference.cascade import Solved, attempt
from agon_verl.inference.chat import Messages
from agon_verl.inference.players import InferenceError, Players, Sampling, read_mode
from agon_verl.inference.vllm_engine import Completion, Engine
from agon_verl.pair.direction import DIRECTIONS
from agon_verl.serve.protocol import ApiError, Ask
from agon_verl.serve.reading import Part, Reading


class Line:
    """`running` have their turn and `waiting` do not yet; where both are full, the next is sent away."""

    def __init__(self, max_running: int, max_queue: int) -> None:
        self.max_running, self.max_queue = max_running, max_queue
        self.inside = self.running = 0
        self._turns = asyncio.Semaphore(max_running)
        self._last = 1.0  # seconds of the last turn

    @property
    def waiting(self) -> int:
        return self.inside - self.running

    @contextmanager
    def place(self) -> Iterator[None]:
        if self.inside >= self.max_running + self.max_queue:
            told = f"{self.running} requests are running and {self.waiting} waiting, which is the most here: try later"
            raise ApiError(429, told, code="queue_full", retry_after=min(60, max(1, round(self._last))))
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        async with self._turns:
            start = time.monotonic()
            self.running += 1
            try:
                yield
            finally:
                self.running -= 1
                self._last = time.monotonic() - start


def models_of(players: Players, name: str, mode: str) -> dict[str, str]:
    """The modes by the names that clients know them by; the first is for those who name none."""
    cascades = DIRECTIONS if all(adapter in players.adapters for d in DIRECTIONS for adapter in d.split("_to_")) else ()
    own = (*cascades, *players.names)
    if name in own and name != mode:
        raise InferenceError(f"--name {name} is the name of a mode, and plays {mode}: give another")
    return {name: mode, **{each: each for each in own}}


def opening(engine: Engine, messages: Messages, mode: str) -> bool:
    """Whether the chat template opens the reasoning; refuses what cannot be played before any of it is generated."""
    if not messages or messages[-1]["role"] != "user" or not messages[-1]["content"].strip():
        raise ApiError(400, "messages must end with a message of the user's that states the problem", "messages")
    drafter, _ = read_mode(mode, engine.players.names)
    longest = challenge_messages(messages, None) if drafter else messages
    try:
        ids = engine.prompt_ids(longest)
    except TemplateError as error:
        raise ApiError(400, f"the model's chat template refuses these messages: {error}", "messages") from None
    if len(ids) > engine.players.max_prompt:
        told = f"the prompt has {len(ids)} tokens{', with the words around a draft,' if drafter else ''}"
        told += f" and {engine.players.max_prompt} is the most here"
        raise ApiError(400, told, "messages", "context_length_exceeded")
    return engine.reader.opened_by(ids)


async def play(
    engine: Engine, ask: Ask, mode: str, sampling: Sampling, reading: Reading
) -> AsyncGenerator[tuple[Part, str] | Solved, None]:
    """The last stage in pieces, then all that was said. Closed early, it leaves nothing behind in the engine."""
    drafter, player = read_mode(mode, engine.players.names)
    problem: Messages = ask.messages
    draft = shown = None
    if drafter is not None:
        draft = await engine.generate(problem, drafter, sampling)
        shown = await attempt(engine, problem, engine.read(draft.text, draft.opened))
        problem = challenge_messages(problem, shown.shown)
    async with aclosing(engine.stream(problem, player, sampling, lambda: reading.stopped)) as said:
        async for piece in said:
            if isinstance(piece, Completion):
                for rest in reading.feed("", last=True):
                    yield rest
                yield Solved(piece, draft, shown)
            else:
                for part in reading.feed(piece):
                    yield part
