"""One request on the engine, and the bounded queue in front of it.

A request counts against the queue from its headers on, before its body is read, until its answer is sent or its client
has left. It keeps its slot through both stages: a challenge never waits behind the draft of another request.

A tokenizer takes 1.6 s and 0.2 GB for a million characters. So a prompt that cannot fit is refused by its characters,
before the tokenizer sees it.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager

from jinja2 import TemplateError

from agon_verl.game.prompts import challenge_messages
from agon_verl.game.roles import ADAPTERS
from agon_verl.inference.cascade import Solved, first_stage
from agon_verl.inference.chat import Messages
from agon_verl.inference.players import InferenceError, Players, Sampling, read_mode
from agon_verl.inference.vllm_engine import Completion, Engine
from agon_verl.pair.direction import DIRECTIONS
from agon_verl.serve.protocol import ApiError
from agon_verl.serve.splitter import Part, StreamSplitter

Emit = Callable[[list[tuple[Part, str]]], Awaitable[None]]
# Prose and code have 3 to 5; only long runs of one character have more.
CHARACTERS_PER_TOKEN = 16


class RequestQueue:
    """At most `max_running` requests have a slot and `max_queue` wait for one; further requests are refused."""

    def __init__(self, max_running: int, max_queue: int) -> None:
        self.max_running, self.max_queue = max_running, max_queue
        self.accepted = self.running = 0
        self._slots = asyncio.Semaphore(max_running)
        self._last_seconds = 1.0  # how long the last request had its slot

    @property
    def waiting(self) -> int:
        return self.accepted - self.running

    @contextmanager
    def accept(self) -> Iterator[None]:
        if self.accepted >= self.max_running + self.max_queue:
            message = f"the server is full ({self.running} requests running, {self.waiting} waiting): try again later"
            raise ApiError(429, message, code="queue_full", retry_after=min(60, max(1, round(self._last_seconds))))
        self.accepted += 1
        try:
            yield
        finally:
            self.accepted -= 1

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        async with self._slots:
            start = time.monotonic()
            self.running += 1
            try:
                yield
            finally:
                self.running -= 1
                self._last_seconds = time.monotonic() - start


def models_of(players: Players, name: str, mode: str) -> dict[str, str]:
    """Modes by model name. The first, `name`, is the default."""
    modes = (*(DIRECTIONS if set(ADAPTERS) <= set(players.adapters) else ()), *players.names)
    if name in modes and name != mode:
        raise InferenceError(f"--name {name} is the name of another mode than --mode {mode}: choose another name")
    return {name: mode, **{each: each for each in modes}}


def max_body(max_prompt: int) -> int:
    """Bytes: a prompt of any language, escaped in any way, and the reasoning of earlier answers, which clients echo."""
    return 2**20 + 8 * CHARACTERS_PER_TOKEN * max_prompt


def check_prompt(engine: Engine, messages: Messages, mode: str) -> tuple[Messages, bool]:
    """Refuse a request that cannot be played before anything is generated.

    Returns the messages, with control tokens as text, and whether the chat template opens the last stage's reasoning.
    """
    _check_size(messages, engine.players.max_prompt)
    messages = engine.as_text(messages)
    if not messages or messages[-1]["role"] != "user" or not messages[-1]["content"].strip():
        raise ApiError(400, "messages must end with a user message that is not blank", "messages")
    drafter, _ = read_mode(mode, engine.players.names)
    last_stage = challenge_messages(messages, None) if drafter else messages
    try:
        ids = engine.prompt_ids(last_stage)
    except TemplateError as error:
        raise ApiError(400, f"the model's chat template refuses these messages: {error}", "messages") from None
    if len(ids) > engine.players.max_prompt:
        length = f"{len(ids)} tokens{' with the challenge prompt' if drafter else ''}"
        message = f"the prompt has {length}, more than the limit {engine.players.max_prompt}"
        raise ApiError(400, message, "messages", "context_length_exceeded")
    return messages, engine.reader.opened_by(ids)


def _check_size(messages: Messages, max_prompt: int) -> None:
    """In characters and messages: every message is at least one token."""
    characters = sum(len(message["content"]) for message in messages)
    for number, unit, limit in (
        (characters, "characters", CHARACTERS_PER_TOKEN * max_prompt),
        (len(messages), "messages", max_prompt),
    ):
        if number > limit:
            message = f"the prompt has {number} {unit}, more than the limit {limit} for {max_prompt} tokens"
            raise ApiError(400, message, "messages", "context_length_exceeded")


async def play(
    engine: Engine, messages: Messages, mode: str, sampling: Sampling, splitter: StreamSplitter, emit: Emit
) -> Solved:
    """Passes the last stage to `emit` in pieces. Cancelled, it takes its requests out of the engine."""
    drafter, player = read_mode(mode, engine.players.names)
    messages, draft, attempt = await first_stage(engine, messages, drafter, sampling)
    async with aclosing(engine.stream(messages, player, sampling, lambda: splitter.stopped)) as stream:
        async for piece in stream:
            if isinstance(piece, Completion):
                await emit(splitter.feed("", last=True))
                return Solved(piece, draft, attempt)
            await emit(splitter.feed(piece))
    raise InferenceError("vLLM ended a request without a completion")
