"""Word problems with one sum each, and their exact answers.

The only difficulty is column arithmetic: the carries of an addition and the borrows of a subtraction. The toy model is
made unreliable exactly there (`traces.py`). The quickstart has numbers of two or three digits.
"""

import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

DATA_SOURCE = "toy/arithmetic"
NAMES = ("Ann", "Ben", "Eva", "Leo", "Mia", "Tom")
THINGS = ("apples", "books", "cards", "coins", "pens", "shells")
GAINS = ("buys", "finds", "gets")
LOSSES = ("loses", "sells", "uses")
DIGITS = (2, 3)  # of the numbers


@dataclass(frozen=True)
class WordProblem:
    """`a + b` or `a - b` in words; `text` is the prompt."""

    a: int
    sign: str
    b: int
    text: str

    @property
    def key(self) -> tuple[int, str, int]:
        """The sum, without the words around it."""
        return (self.a, self.sign, self.b)

    @property
    def answer(self) -> int:
        return self.a + self.b if self.sign == "+" else self.a - self.b


def has_trouble(a: int, sign: str, b: int) -> bool:
    """Whether the ones column needs a carry or a borrow."""
    return a % 10 + b % 10 > 9 if sign == "+" else a % 10 < b % 10


def draw(rng: random.Random, digits: Sequence[int] = DIGITS) -> WordProblem:
    """One random problem. Most of those whose ones column needs no carry or borrow are rejected as too easy."""
    while True:
        length = rng.choice(digits)
        low, high = 10 ** (length - 1) + 1, 10**length - 1
        a, b = rng.randint(low, high), rng.randint(low, high)
        sign = rng.choice("+-")
        if sign == "-" and a - b < low:
            continue
        if has_trouble(a, sign, b) or rng.random() < 0.1:
            return WordProblem(a, sign, b, story(rng, a, sign, b))


def story(rng: random.Random, a: int, sign: str, b: int) -> str:
    """The sum as a word problem, with a random name, thing and verb."""
    name, things = rng.choice(NAMES), rng.choice(THINGS)
    change = f"{rng.choice(GAINS)} {b} more" if sign == "+" else f"{rng.choice(LOSSES)} {b}"
    return f"{name} has {a} {things} and {change}. How many {things} does {name} have now?"


def stream(
    rng: random.Random, exclude: Collection[tuple[int, str, int]] = (), digits: Sequence[int] = DIGITS
) -> Iterator[WordProblem]:
    """Endless problems, none of them in `exclude`; a sum may come back in other words."""
    while True:
        problem = draw(rng, digits)
        if problem.key not in exclude:
            yield problem


def distinct(
    rng: random.Random, count: int, exclude: Collection[tuple[int, str, int]] = (), digits: Sequence[int] = DIGITS
) -> list[WordProblem]:
    """`count` problems with different sums, none of them in `exclude`."""
    by_sum: dict[tuple[int, str, int], WordProblem] = {}
    problems = stream(rng, exclude, digits)
    while len(by_sum) < count:
        problem = next(problems)
        by_sum.setdefault(problem.key, problem)
    return list(by_sum.values())


def row(problem: WordProblem, index: int, split: str) -> dict:
    """One row of a Parquet file for verl."""
    return {
        "data_source": DATA_SOURCE,
        "prompt": [{"role": "user", "content": problem.text}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": str(problem.answer)},
        "extra_info": {"index": index, "split": split},
    }
