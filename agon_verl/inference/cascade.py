"""The cascade at inference: a draft, what the challenger may read of it, and the challenger's answer.

The challenger's prompt is made by the same code as in training. moa.py has the paper's untrained control.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agon_verl.game.attempt import Attempt, attempt_of
from agon_verl.game.prompts import challenge_messages
from agon_verl.game.transcript import Transcript
from agon_verl.inference.chat import Chat, Messages
from agon_verl.inference.players import Sampling, default_mode, find_players, read_mode
from agon_verl.inference.vllm_engine import Completion, Engine
from reward_fns.mathematics.restated import comparison


@dataclass(frozen=True, slots=True)
class Solved:
    """`attempt` is what the challenger read of the `draft`. Both are `None` where a player answered alone."""

    final: Completion
    draft: Completion | None = None
    attempt: Attempt | None = None


async def challenge(chat: Chat, problem: Messages, draft: Transcript) -> tuple[Attempt, Messages]:
    """What the challenger may read of the draft, and the messages that it answers."""

    def excess(summary: str) -> int:
        return chat.excess(challenge_messages(problem, summary))

    players, text = chat.players, problem[-1]["content"]
    same = comparison(players.withhold)
    attempt = await asyncio.to_thread(attempt_of, draft, players.domain, chat.control, chat.count, excess, text, same)
    return attempt, challenge_messages(problem, attempt.shown)


async def first_stage(
    engine: Engine, problem: Messages, drafter: str | None, sampling: Sampling | None
) -> tuple[Messages, Completion | None, Attempt | None]:
    """The messages of the last stage, which are the problem if nobody drafts; the draft, and what may be read of it."""
    if drafter is None:
        return problem, None, None
    draft = await engine.generate(problem, drafter, sampling)
    attempt, messages = await challenge(engine, problem, engine.read(draft.text, draft.opened, draft.finish))
    return messages, draft, attempt


async def solve(engine: Engine, problem: Messages, mode: str, sampling: Sampling | None = None) -> Solved:
    """`mode` is a player ("A", "base") or a cascade ("A_to_B")."""
    drafter, player = read_mode(mode, engine.players.names)
    messages, draft, shown = await first_stage(engine, problem, drafter, sampling)
    return Solved(await engine.generate(messages, player, sampling), draft, shown)


def solve_all(
    target: str,
    prompts: Sequence[str | Messages],
    mode: str | None = None,
    sampling: Sampling | None = None,
    base: str | None = None,
    **options: Any,
) -> list[Solved]:
    """Solve a list of prompts, each a text or a chat, with the pair at `target`; `options` are vLLM's engine arguments.

    Starts an engine and closes it. The default mode is the pair's direction.
    """
    players = find_players(target, base)
    chosen_mode = mode or default_mode(players)
    chats = [[{"role": "user", "content": p}] if isinstance(p, str) else p for p in prompts]

    async def run() -> list[Solved]:
        engine = Engine(players, **options)
        try:
            return await asyncio.gather(*(solve(engine, chat, chosen_mode, sampling) for chat in chats))
        finally:
            engine.close()

    return asyncio.run(run())
