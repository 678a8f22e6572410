"""The numbers of an evaluation: plain values in, plain values out.

Every interval is of 95 %, two-sided. Random draws are seeded, so that the same outcomes give the same numbers.
"""

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

LEVEL = 0.95
DRAWS = 10_000
_CHUNK = 500  # draws at a time, to bound memory
_EXACT = 12  # differences up to which all sign flips are counted


@dataclass(frozen=True, slots=True)
class Interval:
    low: float
    high: float
    method: str


def clopper_pearson(right: int, n: int) -> Interval:
    """The exact interval of a binomial share: at either end the data, or worse, have probability 2.5 %."""
    if not 0 <= right <= n or n < 1:
        raise ValueError(f"{right} of {n} is no share")
    tail = (1 - LEVEL) / 2
    low = 0.0 if right == 0 else _root(lambda p: _at_least(right, n, p) - tail)
    high = 1.0 if right == n else 1 - _root(lambda p: _at_least(n - right, n, p) - tail)
    return Interval(low, high, f"Clopper-Pearson over {n} problems")


def _at_least(k: int, n: int, p: float) -> float:
    """P(X >= k) of Binomial(n, p), over the shorter of its two sides."""
    if p <= 0 or p >= 1:
        return float(p >= 1)
    side = range(k, n + 1) if n - k < k else range(k)
    ways = math.lgamma(n + 1)
    terms = (
        math.exp(ways - math.lgamma(i + 1) - math.lgamma(n - i + 1) + i * math.log(p) + (n - i) * math.log1p(-p))
        for i in side
    )
    total = math.fsum(terms)
    return total if side.stop > k else 1 - total


def _root(rising: Callable[[float], float]) -> float:
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) > 0 else (middle, high)
    return (low + high) / 2


def mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def pass_at_1(outcomes: Mapping[str, Sequence[int]]) -> float:
    """The mean over problems of the share of right samples."""
    return sum(sum(row) / len(row) for row in outcomes.values()) / len(outcomes)


def pass_at(k: int, right: int, n: int) -> float:
    """The unbiased estimate, from n samples of a problem, that at least one of k is right: 1 - C(n-c, k) / C(n, k)."""
    if not 1 <= k <= n:
        raise ValueError(f"pass@{k} needs {k} samples or more, not {n}")
    return 1 - math.comb(n - right, k) / math.comb(n, k)


def majority(answers: Sequence[tuple[str, bool]]) -> float:
    """Whether the answer given most often is right; between equals, the share of them that are. Blanks do not vote."""
    votes = Counter(answer for answer, _ in answers if answer)
    if not votes:
        return 0.0
    most = max(votes.values())
    first = {answer: right for answer, right in reversed(answers) if votes[answer] == most}
    return sum(first.values()) / len(first)


def bootstrap(means: Sequence[float], seed: int = 0) -> Interval:
    """Percentiles of the mean over problems drawn anew with replacement, each with all of its samples."""
    values, rng = np.asarray(means, dtype=float), np.random.default_rng(seed)
    drawn = np.concatenate(
        [values[rng.integers(len(values), size=(_CHUNK, len(values)))].mean(axis=1) for _ in range(DRAWS // _CHUNK)]
    )
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(low), float(high), f"bootstrap over {len(values)} problems")


def interval(outcomes: Sequence[Sequence[int]]) -> Interval:
    """Of the mean over problems of the share of right samples; `outcomes` has a row a problem.

    One sample each: exact. Several: the bootstrap over problems, for the samples of a problem are not independent and
    a binomial over all of them would be too narrow. Where every sample has the same outcome the bootstrap would say
    that nothing is uncertain: then exact, as if there were one sample each.
    """
    total, n = sum(map(sum, outcomes)), len(outcomes)
    if all(len(row) == 1 for row in outcomes):
        return clopper_pearson(total, n)
    if total in (0, sum(map(len, outcomes))):
        return clopper_pearson(n if total else 0, n)
    return bootstrap([sum(row) / len(row) for row in outcomes])


def mcnemar(gained: int, lost: int) -> float:
    """Exact two-sided p: of the problems on which two methods differ, either is right on half."""
    n = gained + lost
    return min(1.0, 2 * sum(math.comb(n, i) for i in range(min(gained, lost) + 1)) / 2**n)


def sign_flips(differences: Sequence[float], seed: int = 0) -> float:
    """Two-sided p of a mean difference, by permutation: under no difference, the sign of each is a coin.

    All flips are counted where there are few differences; else 10,000 are drawn, the data themselves counting as one.
    """
    values = np.asarray([d for d in differences if d], dtype=float)
    seen = abs(values.sum()) - 1e-9  # sums of the same numbers in another order are equal
    if len(values) <= _EXACT:
        signs = 1 - 2 * ((np.arange(2 ** len(values))[:, None] >> np.arange(len(values))) & 1)
        return float((abs(signs @ values) >= seen).mean())
    rng = np.random.default_rng(seed)
    hits = sum(
        int((abs(rng.choice([-1.0, 1.0], size=(_CHUNK, len(values))) @ values) >= seen).sum())
        for _ in range(DRAWS // _CHUNK)
    )
    return (1 + hits) / (1 + DRAWS)


@dataclass(frozen=True, slots=True)
class Paired:
    """How much better the first is than the second on the same problems, in pass@1.

    No interval where every problem has the same difference: a bootstrap would say that nothing is uncertain.
    """

    problems: int
    difference: float
    interval: Interval | None
    p: float
    test: str


def paired(first: Sequence[Sequence[int]], second: Sequence[Sequence[int]]) -> Paired:
    """A row a problem in both, the same ones in the same order."""
    rows = list(zip(first, second, strict=True))
    differences = [sum(a) / len(a) - sum(b) / len(b) for a, b in rows]
    if all(len(a) == len(b) == 1 for a, b in rows):
        p, test = mcnemar(differences.count(1.0), differences.count(-1.0)), "exact McNemar"
    else:
        p, test = sign_flips(differences), "sign-flip permutation over problems"
    around = bootstrap(differences) if len(set(differences)) > 1 else None
    return Paired(len(rows), sum(differences) / len(rows), around, p, test)


@dataclass(frozen=True, slots=True)
class Spread:
    """Of one number over several runs; `deviation` is of a sample (n - 1), none for one run."""

    runs: int
    mean: float
    deviation: float | None
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    n, mean = len(values), sum(values) / len(values)
    deviation = math.sqrt(sum((v - mean) ** 2 for v in values) / (n - 1)) if n > 1 else None
    return Spread(n, mean, deviation, min(values), max(values))


def split(ids: Sequence[str], share: float, seed: int = 0) -> set[str]:
    """A part of the problems, the same for the same seed whatever their order."""
    return set(random.Random(seed).sample(sorted(ids), round(share * len(ids))))
