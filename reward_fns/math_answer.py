r"""The plain exact-match verifier for mathematics: one final answer against one reference, no symbolic algebra.

Two answers are equal when they are the same number or, failing that, the same text. Numbers are signed integers,
decimals and fractions of them, with or without thousands commas, and are compared exactly: 5.0 is 5, 0.5 is 1/2,
1,000 is 1000. White space and `$` at both ends, + in front and periods behind are dropped first. `\frac{1}{2}` is
text: it equals itself and not 0.5. So the verifier leaves a policy no wrong accept to exploit, at the cost of wrong
rejects: use it where references are numbers.

The answer is read from what follows the reasoning, so nothing the policy writes inside its reasoning can be graded.
The one thing a reward function cannot see is the prompt, where a chat template may have opened the reasoning block; a
completion cut off inside its reasoning then looks like one that has none. Agon's rollout says so in `extra_info`; under
another trainer set `opened=True` (`reward.custom_reward_function.reward_kwargs.opened`) for such a template.
"""

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from agon_verl.game.rewards import Outcome, standalone_reward
from agon_verl.game.transcript import OPENED, REASONING_TAGS, read

_NUMBER = re.compile(r"-?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+)(?:/\d+)?", re.ASCII)
_LONGEST_NUMBER = 300  # characters: with no exponent in `_NUMBER` either, no answer can stall the verifier


async def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: dict[str, Any] | None = None,
    *,
    format_weight: float = 0.5,
    opened: bool = False,
    reasoning_tags: Sequence[str] = REASONING_TAGS,
    **kwargs: Any,
) -> dict[str, float | str]:
    """Score one completion: `score` is 2c + lambda phi, `acc` c, `format` phi, `pred` the answer read ("" if none)."""
    reference = str(ground_truth)
    if not reference.strip():
        raise ValueError(f"ground_truth of a {data_source!r} problem is blank: give every row a reference answer")
    opening, closing = reasoning_tags
    transcript = read(solution_str, opened=bool((extra_info or {}).get(OPENED, opened)), tags=(opening, closing))
    if transcript.answer is None:
        verdict = "no_answer"
    else:
        verdict = "correct" if same_answer(transcript.answer, reference) else "wrong"
    correct, well_formed = float(verdict == "correct"), float(transcript.well_formed)
    outcome = Outcome(correct, well_formed, length=0)  # no length enters a standalone reward
    return {
        "score": standalone_reward(outcome, format_weight),
        "acc": correct,
        "format": well_formed,
        "pred": transcript.answer or "",
        "verdict": verdict,
    }


def same_answer(answer: str, reference: str) -> bool:
    ours, theirs = _strip(answer), _strip(reference)
    if (number := _number(ours)) is not None:
        return number == _number(theirs)
    return ours == theirs


def _strip(answer: str) -> str:
    return answer.replace("\\$", "$").lstrip("$+ \t\n").rstrip("$. \t\n")


def _number(answer: str) -> Fraction | None:
    if len(answer) > _LONGEST_NUMBER or not _NUMBER.fullmatch(answer):
        return None
    numerator, _, denominator = answer.replace(",", "").partition("/")
    if denominator and not int(denominator):
        return None
    return Fraction(numerator) / int(denominator or 1)
