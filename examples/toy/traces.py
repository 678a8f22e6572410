"""Worked solutions with slips.

The toy model should know the right procedure but follow it unreliably, which reinforcement learning can correct. So
about half of the carries and borrows in the corpus are forgotten. There the wrong continuation is as likely as the
right one, even at a low temperature. All other steps are correct.

The challenger's solutions follow the attempt in their prompt to some degree: they slip more often where it slipped.
So reading the attempt helps from the start, and training has to reduce the trust in wrong attempts.
"""

import random
from dataclasses import dataclass

from examples.toy.problems import WordProblem

COLUMNS = ("Ones", "tens", "hundreds", "thousands", "ten-thousands")


@dataclass(frozen=True)
class SlipRates:
    """How often a carry or borrow is forgotten: without an attempt, after one that kept it, after one that did not."""

    alone: float = 0.5
    after_right: float = 0.35
    after_wrong: float = 0.65


@dataclass(frozen=True)
class Solution:
    """A completion, its result, and the columns (0 for ones) whose carry or borrow it forgot."""

    working: str
    summary: str
    result: int
    slips: frozenset[int]

    @property
    def completion(self) -> str:
        return f"<think>{self.working}</think>{self.summary}"


def solve(problem: WordProblem, rng: random.Random, rates: SlipRates, attempt: Solution | None = None) -> Solution:
    """Works from the ones column up. The summary has the result of each column, and the answer in its tag only.

    With all rates at zero this is correct column arithmetic. A slip is never corrected later, so any slip makes the
    result wrong.
    """
    digits_a, digits_b = _digits(problem.a), _digits(problem.b)
    lines, columns, slips, noted = [f"{problem.a}{problem.sign}{problem.b}:"], [], set(), False
    for i, (x, y) in enumerate(zip(digits_a, digits_b, strict=True)):
        leading = i == len(digits_a) - 1
        if problem.sign == "+":
            value = x + y + noted
            trouble, note = value > 9 and not leading, "carry 1"
        else:
            trouble, note = x < y + noted, "borrow 1"
            x += 10 * trouble
            value = x - y - noted
        line = f"{x}{problem.sign}{y}" + f"{problem.sign}1" * noted + f"={value}"
        noted = trouble and rng.random() >= _rate(rates, attempt, i)
        if trouble and not noted:
            slips.add(i)
        lines.append(f"{line}, {note}." if noted else f"{line}.")
        columns.append(value)
    result = sum(10**i * (v if i == len(columns) - 1 else v % 10) for i, v in enumerate(columns))
    parts = ", ".join(f"{name} {value}" for name, value in zip(COLUMNS, columns, strict=False))
    return Solution(" ".join(lines), f"{parts}. <answer>{result}</answer>", result, frozenset(slips))


def _digits(number: int) -> list[int]:
    return [int(d) for d in reversed(str(number))]


def _rate(rates: SlipRates, attempt: Solution | None, column: int) -> float:
    if attempt is None:
        return rates.alone
    return rates.after_wrong if column in attempt.slips else rates.after_right
