r"""The verifier for mathematics: one final answer against one reference.

Text, form and value decide nearly every pair in this process (`mathematics.equal`). Algebra decides the rest, by
math-verify in processes with a time and a memory limit (`mathematics.pool`). docs/verifiers.md lists what counts as
equal.

A failure of the verifier raises: `UnreadableReference` for a reference that cannot be parsed or exceeds the limits by
itself, `PoolError` for worker processes that do not start.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from agon_verl.game.boxes import boxes
from agon_verl.game.transcript import REASONING_TAGS
from reward_fns.mathematics.equal import UnreadableReference, equal
from reward_fns.mathematics.pool import FALSE, TRUE, PoolLimits, pool
from reward_fns.mathematics.sentence import stated
from reward_fns.scoring import read_completion, score_dict

_LONGEST = 1000  # characters of an answer that is parsed, or four times the length of the reference …
_MOST = 10_000  # … but no more: the time to parse an answer grows faster than its length


async def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: dict[str, Any] | None = None,
    *,
    format_weight: float = 0.5,
    opened: bool = False,
    reasoning_tags: Sequence[str] = REASONING_TAGS,
    needs_summary: bool = False,
    finished: bool = True,
    time_limit: float = PoolLimits().seconds,
    memory_limit: int = PoolLimits().megabytes,
    workers: int = PoolLimits().workers,
    **kwargs: Any,
) -> dict[str, float | str]:
    """Score one completion: `score` is 2c + lambda phi, `acc` c, `format` phi, `pred` the answer ("" if none).

    `verdict` is correct, wrong or no_answer; or, if the answer broke the process that compared it, timeout, memory,
    crash or error. `finished=False` accepts every equal answer, including unevaluated arithmetic.
    """
    gold = _reference(data_source, ground_truth)
    transcript = read_completion(solution_str, extra_info, reasoning_tags, opened, needs_summary)
    if transcript.answer is None:
        verdict = "no_answer"
    else:
        verdict = await judge(gold, transcript.answer, finished, PoolLimits(time_limit, memory_limit, workers))
    return score_dict(verdict, transcript, transcript.answer, format_weight)


async def judge(gold: str, answer: str, finished: bool = True, limits: PoolLimits | None = None) -> str:
    """The verdict on one answer. A time-out or crash counts against the answer only if the reference alone passes."""
    if len(answer) > max(_LONGEST, min(4 * len(gold), _MOST)):
        return _verdict(answer.strip() == gold.strip())
    gold, answer = stated(gold), stated(answer)
    same = equal(gold, answer, finished=finished)
    if same is not None:
        return _verdict(same)
    workers = pool(limits or PoolLimits())
    outcome = await asyncio.shield(asyncio.wrap_future(workers.submit(gold, answer, finished)))
    if outcome in (TRUE, FALSE):
        return _verdict(outcome == TRUE)
    alone = await asyncio.shield(asyncio.wrap_future(workers.submit(gold, None, None)))
    if alone != TRUE:
        raise UnreadableReference(f"ground truth {gold!r} cannot be compared with: by itself it ends in {alone!r}")
    return outcome


def _verdict(same: bool) -> str:
    return "correct" if same else "wrong"


def _reference(data_source: str, ground_truth: Any) -> str:
    """The reference as text, without its box if it has one. Only text and numbers are accepted."""
    is_number = isinstance(ground_truth, int | float) and not isinstance(ground_truth, bool)
    if not (isinstance(ground_truth, str) or is_number) or ground_truth != ground_truth:
        problem = f"ground_truth={ground_truth!r} of a {data_source!r} problem"
        raise UnreadableReference(f"{problem} is not a text or a number")
    gold = str(ground_truth)
    if boxed := boxes(gold):
        gold = boxed[-1].content
    if not gold.strip():
        raise UnreadableReference(f"ground_truth of a {data_source!r} problem is blank: every row needs a reference")
    return gold
