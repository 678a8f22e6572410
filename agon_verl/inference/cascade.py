"""The cascade at inference: a draft, what may be read of it, and the answer of the one who reads it.

What the challenger is shown is made by the same code as in training. moa.py has the paper's untrained control.
"""

import asyncio
from dataclasses import dataclass

from agon_verl.game.attempt import Attempt, attempt_of
from agon_verl.game.prompts import challenge_messages
from agon_verl.game.transcript import Transcript
from agon_verl.inference.chat import Chat, Messages
from agon_verl.inference.engine import Completion, Engine
from agon_verl.inference.players import Sampling, read_mode


@dataclass(frozen=True, slots=True)
class Solved:
    """`draft` and `attempt`, what was shown of it, are `None` where a player answered alone."""

    final: Completion
    draft: Completion | None = None
    attempt: Attempt | None = None


async def attempt(chat: Chat, problem: Messages, draft: Transcript) -> Attempt:
    def excess(summary: str) -> int:
        return chat.excess(challenge_messages(problem, summary))

    return await asyncio.to_thread(attempt_of, draft, chat.players.domain, chat.count, excess)


async def challenge(
    engine: Engine, problem: Messages, draft: Transcript, player: str, sampling: Sampling | None = None
) -> tuple[Attempt, Completion]:
    shown = await attempt(engine, problem, draft)
    return shown, await engine.generate(challenge_messages(problem, shown.shown), player, sampling)


async def solve(engine: Engine, problem: Messages, mode: str, sampling: Sampling | None = None) -> Solved:
    """`mode` is a player ("A", "base"), or a cascade ("A_to_B")."""
    drafter, player = read_mode(mode, engine.players.names)
    if drafter is None:
        return Solved(await engine.generate(problem, player, sampling))
    draft = await engine.generate(problem, drafter, sampling)
    shown, final = await challenge(engine, problem, engine.read(draft.text, draft.opened), player, sampling)
    return Solved(final, draft, shown)
