r"""The verifier for mathematics: one final answer against one reference.

Text, form and value decide nearly every pair in this process (`mathematics.equal`). Algebra decides the rest, by
math-verify in processes under a limit of time and memory (`mathematics.pool`). docs/verifiers.md says what counts as
equal and what does not.

A failure of the judge raises: a reference that cannot be read or exceeds the limits by itself (`Unreadable`), workers
that do not start (`PoolError`).
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from agon_verl.game.boxes import boxes
from agon_verl.game.transcript import REASONING_TAGS
from reward_fns.frame import scored, take_apart
from reward_fns.mathematics.equal import Unreadable, equal
from reward_fns.mathematics.pool import FALSE, TRUE, Limits, pool

_LONGEST = 1000  # characters of an answer, or four times those of the reference


async def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: dict[str, Any] | None = None,
    *,
    format_weight: float = 0.5,
    opened: bool = False,
    reasoning_tags: Sequence[str] = REASONING_TAGS,
    finished: bool = True,
    time_limit: float = Limits().seconds,
    memory_limit: int = Limits().megabytes,
    workers: int = Limits().workers,
    **kwargs: Any,
) -> dict[str, float | str]:
    """Score one completion: `score` is 2c + lambda phi, `acc` c, `format` phi, `pred` the answer read ("" if none).

    `verdict` is correct, wrong or no_answer; or what the answer did to the process that compared it: timeout, memory,
    crash, error. `finished=False` accepts whatever is equal, also arithmetic left undone.
    """
    gold = _reference(data_source, ground_truth)
    transcript = take_apart(solution_str, extra_info, reasoning_tags, opened)
    if transcript.answer is None:
        verdict = "no_answer"
    else:
        verdict = await judge(gold, transcript.answer, finished, Limits(time_limit, memory_limit, workers))
    return scored(verdict, transcript, transcript.answer, format_weight)


async def judge(gold: str, answer: str, finished: bool = True, limits: Limits | None = None) -> str:
    """The verdict on one answer. An answer is to blame for what happens only if the reference alone is harmless."""
    if len(answer) > max(_LONGEST, 4 * len(gold)):
        return "correct" if answer.strip() == gold.strip() else "wrong"
    same = equal(gold, answer, finished=finished)
    if same is not None:
        return "correct" if same else "wrong"
    workers = pool(limits or Limits())
    outcome = await asyncio.shield(asyncio.wrap_future(workers.submit(gold, answer, finished)))
    if outcome in (TRUE, FALSE):
        return "correct" if outcome == TRUE else "wrong"
    alone = await asyncio.shield(asyncio.wrap_future(workers.submit(gold, None, None)))
    if alone != TRUE:
        raise Unreadable(f"ground truth {gold!r} cannot be judged against: by itself it ends in {alone!r}")
    return outcome


def _reference(data_source: str, ground_truth: Any) -> str:
    """A reference as text, out of its box if it has one. A number will do; what else a dataset may hold will not."""
    if (
        isinstance(ground_truth, bool)
        or not isinstance(ground_truth, str | int | float)
        or ground_truth != ground_truth
    ):
        raise Unreadable(f"ground_truth of a {data_source!r} problem is {ground_truth!r}: give a text or a number")
    gold = str(ground_truth)
    if boxed := boxes(gold):
        gold = boxed[-1].content
    if not gold.strip():
        raise Unreadable(f"ground_truth of a {data_source!r} problem is blank: give every row a reference answer")
    return gold
