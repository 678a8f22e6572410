"""The statistics of an evaluation.

Every interval is two-sided, at 95 %. Random draws are seeded: the same outcomes give the same numbers. SciPy is
imported where it is used, because that takes about a second and most commands do not need it.
"""

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agon_verl.evaluate.results import Interval, Outcomes, Paired

LEVEL = 0.95
DRAWS = 10_000
_BATCH = 500  # draws at a time, to bound memory
_EXACT = 12  # up to so many differences, all sign flips are enumerated


def mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def pass_at_1(outcomes: Outcomes) -> float:
    """The mean over problems of the share of right samples."""
    return sum(sum(row) / len(row) for row in outcomes.values()) / len(outcomes)


def pass_at(k: int, right: int, n: int) -> float:
    """The unbiased estimate, from n samples of a problem, that at least one of k is right: 1 - C(n-c, k) / C(n, k)."""
    if not 1 <= k <= n:
        raise ValueError(f"pass@{k} needs {k} samples or more, not {n}")
    return 1 - math.comb(n - right, k) / math.comb(n, k)


def majority(answers: Sequence[tuple[str, bool]]) -> float:
    """Whether the most frequent answer is right; in a tie, the share of tied answers that are. Blanks do not vote."""
    votes = Counter(answer for answer, _ in answers if answer)
    if not votes:
        return 0.0
    most = max(votes.values())
    first = {answer: right for answer, right in reversed(answers) if votes[answer] == most}
    return sum(first.values()) / len(first)


def exact_interval(right: int, n: int) -> Interval:
    """The Clopper-Pearson interval of a binomial proportion."""
    if not 0 <= right <= n or n < 1:
        raise ValueError(f"{right} of {n} is not a proportion")
    from scipy.stats import binomtest

    low, high = binomtest(right, n).proportion_ci(LEVEL, "exact")
    return Interval(low=low, high=high, method=f"Clopper-Pearson over {n} problems")


def bootstrap(means: Sequence[float]) -> Interval:
    """Percentiles of the mean over resampled problems, each with all of its samples."""
    method = f"bootstrap over {len(means)} problems"
    if len(set(means)) == 1:
        return Interval(low=means[0], high=means[0], method=method)
    from scipy import stats

    resampled = stats.bootstrap(
        (means,), np.mean, n_resamples=DRAWS, batch=_BATCH, confidence_level=LEVEL, method="percentile", rng=0
    )
    low, high = resampled.confidence_interval
    return Interval(low=low, high=high, method=method)


def interval(outcomes: Sequence[Sequence[int]]) -> Interval:
    """The interval of pass@1; `outcomes` has one row per problem.

    With one sample per problem it is exact. With several it is a bootstrap over problems: the samples of a problem are
    not independent, so a binomial interval over all of them would be too narrow. Where every sample has the same
    outcome the bootstrap interval would have no width: then it is exact, as for one sample per problem.
    """
    total, n = sum(map(sum, outcomes)), len(outcomes)
    if all(len(row) == 1 for row in outcomes):
        return exact_interval(total, n)
    if total in (0, sum(map(len, outcomes))):
        return exact_interval(n if total else 0, n)
    return bootstrap([sum(row) / len(row) for row in outcomes])


def mcnemar(gained: int, lost: int) -> float:
    """The exact two-sided p: of the problems on which two methods differ, each is right on half."""
    from scipy.stats import binomtest

    return float(binomtest(gained, gained + lost).pvalue) if gained + lost else 1.0


def sign_flips(differences: Sequence[float]) -> float:
    """The two-sided p of a mean difference, by permutation: under no difference, each sign is random.

    All sign flips are enumerated for few differences. Otherwise 10,000 are drawn, and the data count as one more.
    `scipy.stats.permutation_test` gives the same p by enumeration, but takes six times as long to draw: nine seconds
    for 3,000 differences.
    """
    values = np.asarray([d for d in differences if d], dtype=float)
    observed = abs(values.sum()) - 1e-9  # sums of the same numbers in another order are equal
    if len(values) <= _EXACT:
        signs = 1 - 2 * ((np.arange(2 ** len(values))[:, None] >> np.arange(len(values))) & 1)
        return float((abs(signs @ values) >= observed).mean())
    rng = np.random.default_rng(0)
    as_large = sum(
        int((abs(rng.choice([-1.0, 1.0], size=(_BATCH, len(values))) @ values) >= observed).sum())
        for _ in range(DRAWS // _BATCH)
    )
    return (1 + as_large) / (1 + DRAWS)


def paired(first: Outcomes, second: Outcomes) -> Paired | None:
    """The test on the problems that both have; `None` without any."""
    rows = [(first[problem], second[problem]) for problem in first if problem in second]
    if not rows:
        return None
    differences = [sum(a) / len(a) - sum(b) / len(b) for a, b in rows]
    if all(len(a) == len(b) == 1 for a, b in rows):
        p, test = mcnemar(differences.count(1.0), differences.count(-1.0)), "exact McNemar"
    else:
        p, test = sign_flips(differences), "sign-flip permutation over problems"
    around = bootstrap(differences) if len(set(differences)) > 1 else None
    difference = sum(differences) / len(rows)
    return Paired(problems=len(rows), difference=difference, interval=around, p=p, test=test)


def holm(ps: Sequence[float]) -> list[float]:
    """Holm's correction of several p: the smallest times their number, the next times one less, never decreasing."""
    corrected, largest = [0.0] * len(ps), 0.0
    for rank, place in enumerate(sorted(range(len(ps)), key=lambda place: ps[place])):
        largest = max(largest, min(1.0, (len(ps) - rank) * ps[place]))
        corrected[place] = largest
    return corrected


def over_seeds(first: Sequence[Outcomes], second: Sequence[Outcomes]) -> Interval | None:
    """The interval of a difference in pass@1 where both the problems and the seeds are drawn again.

    `first` and `second` have the outcomes of each seed, in the same order: a seed is drawn for both. With one seed, or
    where no problem has outcomes of all, there is none. Few seeds make it too narrow rather than too wide.
    """
    shared = [p for p in first[0] if all(p in each for each in (*first, *second))] if first and second else []
    if min(len(first), len(second)) < 2 or not shared:
        return None
    differences = np.array(
        [[sum(a[p]) / len(a[p]) - sum(b[p]) / len(b[p]) for p in shared] for a, b in zip(first, second, strict=True)]
    )
    rng = np.random.default_rng(0)
    seeds, problems = differences.shape
    means = np.concatenate(
        [
            ((rng.multinomial(seeds, [1 / seeds] * seeds, _BATCH) @ differences) * _weights(rng, problems)).sum(axis=1)
            for _ in range(DRAWS // _BATCH)
        ]
    ) / (seeds * problems)
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(low=float(low), high=float(high), method=f"bootstrap over {seeds} seeds and {problems} problems")


def _weights(rng: np.random.Generator, problems: int) -> np.ndarray:
    """How often each problem is drawn, in each of a batch of draws."""
    return rng.multinomial(problems, [1 / problems] * problems, _BATCH)


def error_correlation(first: Outcomes, second: Outcomes) -> float | None:
    """The correlation of two players' errors over the samples of all problems; None if one is always right or wrong.

    1: they fail on the same problems. Sample i of one is paired with sample i of the other; they are independent given
    the problem.
    """
    pairs = [each for p in first if p in second for each in zip(first[p], second[p], strict=False)]
    a, b = (np.array([pair[side] for pair in pairs], dtype=float) for side in (0, 1))
    if len(pairs) == 0 or not a.std() or not b.std():
        return None
    return float(np.corrcoef(a, b)[0, 1])


@dataclass(frozen=True, slots=True)
class Spread:
    """One number over several runs; `deviation` is the sample standard deviation, `None` for one run."""

    mean: float
    deviation: float | None
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    n, mean = len(values), sum(values) / len(values)
    deviation = math.sqrt(sum((v - mean) ** 2 for v in values) / (n - 1)) if n > 1 else None
    return Spread(mean, deviation, min(values), max(values))


def split(ids: Sequence[str], share: float, seed: int = 0) -> set[str]:
    """A random part of the problems, which depends on the seed and not on their order."""
    return set(random.Random(seed).sample(sorted(ids), round(share * len(ids))))
