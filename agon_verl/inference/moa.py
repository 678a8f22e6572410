"""Mixture-of-Agents, the paper's untrained control: two samples of the base, each of which is refined with the other.

The paper says that each model reads the other's attempt and refines its own, and gives no prompt; this one is ours. An
agent reads both summaries with their answers: nothing is withheld from a partner. Where both do not fit into
the prompt, the longer one is cut first.
"""

import asyncio
from typing import Any

from agon_verl.game.attempt import shorten
from agon_verl.game.prompts import without_tags
from agon_verl.game.roles import BASE
from agon_verl.game.transcript import Transcript
from agon_verl.inference.chat import Chat, Messages
from agon_verl.inference.players import Sampling
from agon_verl.inference.vllm_engine import Completion, Engine

REFINE = """\
{problem}

Below are two attempts at this problem, your own and that of another solver. Either may be wrong.

<own_attempt>
{own}
</own_attempt>

<other_attempt>
{other}
</other_attempt>

Compare them, keep what is right, correct what is not, and write your refined solution."""

NO_ATTEMPT = "(No solution was written.)"


def refine_messages(problem: Messages, own: str | None, other: str | None) -> list[dict[str, Any]]:
    before, rest = REFINE.split("{own}")
    between, after = rest.split("{other}")
    own, other = (_inside_its_block(text or "") or NO_ATTEMPT for text in (own, other))
    content = before.replace("{problem}", problem[-1]["content"]) + own + between + other + after
    return [*(dict(message) for message in problem[:-1]), {"role": "user", "content": content}]


def _inside_its_block(text: str) -> str:
    return without_tags(text.strip(), "own_attempt", "other_attempt")


async def refine(
    engine: Engine, problem: Messages, own: Transcript, other: Transcript, sampling: Sampling | None = None
) -> tuple[str, Completion]:
    """What the agent read of the other's attempt, and its refined solution."""
    summaries = (engine.control.break_up(each.summary or "") for each in (own, other))
    texts = await asyncio.to_thread(_fitting, engine, problem, *summaries)
    return texts[1], await engine.generate(refine_messages(problem, *texts), BASE, sampling)


def _fitting(chat: Chat, problem: Messages, own: str, other: str) -> tuple[str, str]:
    texts, budget = (own, other), max(chat.count(own), chat.count(other))
    while (over := chat.excess(refine_messages(problem, *texts))) > 0 and budget > 0:
        budget -= max(1, over // 2)
        texts = shorten(own, budget, chat.count)[0], shorten(other, budget, chat.count)[0]
    return texts
