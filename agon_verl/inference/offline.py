"""A list of prompts, solved in one call."""

import asyncio
from collections.abc import Sequence
from typing import Any

from agon_verl.inference.cascade import Solved, solve
from agon_verl.inference.chat import Messages
from agon_verl.inference.engine import Engine
from agon_verl.inference.players import InferenceError, Players, Sampling, find_players
from agon_verl.rollout.wire import BASE


def default_mode(found: Players) -> str:
    """The pair's direction; the base, or the one adapter, where there is no pair."""
    if len(found.adapters) < 2:
        return next(iter(found.adapters), BASE)
    if found.direction is None:
        raise InferenceError(f"{found.given} does not say who drafts: give the mode, A_to_B or B_to_A")
    return found.direction


def solve_all(
    given: str,
    prompts: Sequence[str | Messages],
    mode: str | None = None,
    sampling: Sampling | None = None,
    base: str | None = None,
    **options: Any,
) -> list[Solved]:
    """Each prompt, a text or a chat, solved by the pair at `given`; `options` are vLLM's engine arguments."""
    found = find_players(given, base)
    chosen = mode or default_mode(found)
    chats = [[{"role": "user", "content": p}] if isinstance(p, str) else p for p in prompts]

    async def all_of_them() -> list[Solved]:
        engine = Engine(found, **options)
        try:
            return await asyncio.gather(*(solve(engine, chat, chosen, sampling) for chat in chats))
        finally:
            engine.close()

    return asyncio.run(all_of_them())
