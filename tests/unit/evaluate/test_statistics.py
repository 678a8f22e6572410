"""The statistics of an evaluation, by cases worked out by hand."""

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import permutation_test

from agon_verl.evaluate import statistics
from agon_verl.evaluate.statistics import (
    bootstrap,
    exact_interval,
    interval,
    majority,
    mcnemar,
    paired,
    pass_at,
    sign_flips,
    split,
    spread,
)
from agon_verl.evaluate.summary import joined


def test_exact_intervals_by_hand() -> None:
    """At 0 of n the upper end solves (1 - p)^n = 0.025; at n of n the lower end solves p^n = 0.025."""
    assert (exact_interval(0, 1).low, exact_interval(0, 1).high) == pytest.approx((0, 0.975))
    assert (exact_interval(1, 1).low, exact_interval(1, 1).high) == pytest.approx((0.025, 1))
    assert exact_interval(0, 10).high == pytest.approx(1 - 0.025 ** (1 / 10))
    assert exact_interval(300, 300).low == pytest.approx(0.025 ** (1 / 300))


def test_the_papers_headline_interval() -> None:
    """61 % of 300 problems: [55.2, 66.6]."""
    exact = exact_interval(183, 300)
    assert (round(100 * exact.low, 1), round(100 * exact.high, 1)) == (55.2, 66.6)


def test_an_exact_interval_leaves_two_and_a_half_percent_at_either_end() -> None:
    exact = exact_interval(3, 7)
    at_least = sum(math.comb(7, i) * exact.low**i * (1 - exact.low) ** (7 - i) for i in range(3, 8))
    at_most = sum(math.comb(7, i) * exact.high**i * (1 - exact.high) ** (7 - i) for i in range(4))
    assert at_least == pytest.approx(0.025) and at_most == pytest.approx(0.025)


@pytest.mark.parametrize(("right", "n"), [(0, 0), (-1, 3), (4, 3)])
def test_what_is_not_a_proportion(right: int, n: int) -> None:
    with pytest.raises(ValueError, match="is not a proportion"):
        exact_interval(right, n)


@pytest.mark.parametrize(
    ("k", "right", "n", "share"),
    [(1, 1, 4, 1 / 4), (2, 1, 4, 1 / 2), (2, 2, 4, 5 / 6), (3, 2, 4, 1.0), (4, 0, 4, 0.0), (2, 3, 10, 8 / 15)],
)
def test_pass_at_k_by_hand(k: int, right: int, n: int, share: float) -> None:
    assert pass_at(k, right, n) == pytest.approx(share)


def test_pass_at_k_is_the_share_of_all_choices_with_a_right_one() -> None:
    samples = [True, False, False, True, False, False]
    for k in range(1, 7):
        choices = list(combinations(samples, k))
        assert pass_at(k, 2, 6) == pytest.approx(sum(map(any, choices)) / len(choices))


def test_pass_at_1_is_the_mean_and_too_few_samples_are_refused() -> None:
    assert pass_at(1, 3, 8) == 3 / 8
    with pytest.raises(ValueError, match="pass@3 needs 3 samples"):
        pass_at(3, 1, 2)


@pytest.mark.parametrize(
    ("answers", "share"),
    [
        ([("5", True), ("5", True), ("6", False)], 1.0),
        ([("5", True), ("6", False), ("6", False)], 0.0),
        ([("5", True), ("6", False)], 0.5),
        ([("5", True), ("6", False), ("7", False), ("7", False), ("5", True)], 0.5),
        ([("", False), ("", False), ("5", True)], 1.0),
        ([("", False)], 0.0),
        ([], 0.0),
    ],
)
def test_majority(answers: Sequence[tuple[str, bool]], share: float) -> None:
    assert majority(answers) == share


def test_one_sample_per_problem_has_the_exact_interval() -> None:
    assert interval([[True]] * 3 + [[False]] * 7) == exact_interval(3, 10)


def test_several_samples_are_not_independent_problems() -> None:
    """Four equal samples of ten problems hold as much information as ten problems, not as 40."""
    over_problems = interval([[True] * 4] * 5 + [[False] * 4] * 5)
    apart, as_forty = over_problems.high - over_problems.low, exact_interval(20, 40)
    assert "bootstrap over 10 problems" == over_problems.method and apart > 1.5 * (as_forty.high - as_forty.low)


def test_equal_outcomes_have_the_exact_interval() -> None:
    assert interval([[False, False]] * 10) == exact_interval(0, 10)
    assert interval([[True, True]] * 10) == exact_interval(10, 10)


def test_the_bootstrap_is_near_the_normal_interval_and_repeats() -> None:
    means = [0.0] * 100 + [0.5] * 100 + [1.0] * 100
    first = bootstrap(means)
    half = 1.96 * math.sqrt(sum((m - 0.5) ** 2 for m in means) / 300) / math.sqrt(300)
    assert first.low == pytest.approx(0.5 - half, abs=0.005) and first.high == pytest.approx(0.5 + half, abs=0.005)
    assert bootstrap(means) == first


def test_the_bootstrap_draws_the_same_problems_in_every_version() -> None:
    """Drawn with NumPy alone: an evaluation that is summarised again keeps its intervals."""
    means = [0.0, 0.25, 0.5, 0.5, 1.0]
    indices = np.random.default_rng(0).integers(5, size=(statistics.DRAWS, 5))
    low, high = np.quantile(np.asarray(means)[indices].mean(axis=1), [0.025, 0.975])
    assert (bootstrap(means).low, bootstrap(means).high) == pytest.approx((low, high))


@pytest.mark.parametrize("means", [[0.5], [0.5, 0.5]])
def test_a_bootstrap_of_equal_means_has_no_width(means: list[float]) -> None:
    assert (bootstrap(means).low, bootstrap(means).high) == (0.5, 0.5)


@pytest.mark.parametrize(
    ("gained", "lost", "p"),
    [(1, 0, 1.0), (5, 0, 2 / 2**5), (10, 2, 2 * (1 + 12 + 66) / 2**12), (30, 30, 1.0)],
)
def test_mcnemar_by_hand(gained: int, lost: int, p: float) -> None:
    assert mcnemar(gained, lost) == pytest.approx(p) == mcnemar(lost, gained)


def test_methods_that_never_differ() -> None:
    assert mcnemar(0, 0) == 1.0 == sign_flips([0.0, 0.0])


def test_sign_flips_by_hand() -> None:
    """Five equal differences: 2 of 32 flips are as far out. 1 and 3: 2 of the 4 sums; -1 and 3: all of them."""
    assert sign_flips([0.5] * 5 + [0.0] * 9) == 2 / 32
    assert sign_flips([1.0, 3.0]) == 2 / 4
    assert sign_flips([-1.0, 3.0]) == 1.0


def test_enumerated_sign_flips_are_scipys_permutation_test() -> None:
    differences = [0.25, -0.5, 0.75, 0.75, 1.0, -0.25, 0.5, 0.25]
    result = permutation_test((differences,), np.mean, permutation_type="samples", n_resamples=2**8)
    assert sign_flips(differences) == pytest.approx(result.pvalue)


def test_sign_flips_of_whole_differences_are_mcnemars(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sign_flips([1.0] * 9 + [-1.0] * 2) == pytest.approx(mcnemar(9, 2))
    drawn = sign_flips([1.0] * 14 + [-1.0] * 6)
    assert drawn == pytest.approx(mcnemar(14, 6), abs=0.015)
    monkeypatch.setattr(statistics, "_EXACT", 2)
    assert sign_flips([1.0] * 9 + [-1.0] * 2) == pytest.approx(mcnemar(9, 2), abs=0.015)


def rows(*outcomes: list[int]) -> dict[str, list[int]]:
    return {f"p{i}": row for i, row in enumerate(outcomes)}


def test_a_pair_of_methods() -> None:
    single = paired(rows([1], [1], [0], [1]), rows([1], [0], [0], [0]))
    assert single is not None
    assert (single.problems, single.difference, single.p, single.test) == (4, 0.5, 0.5, "exact McNemar")
    assert single.interval is not None and single.interval.low <= 0.5 <= single.interval.high
    several = paired(rows([1, 1], [1, 0]), rows([0, 0], [1, 0]))
    assert several is not None
    assert (several.difference, several.p) == (0.5, 1.0) and "permutation" in several.test


def test_equal_methods_have_no_interval() -> None:
    test = paired(rows([1], [0]), rows([1], [0]))
    assert test is not None and test.interval is None


def test_only_shared_problems_are_compared() -> None:
    test = paired({"p": [1], "q": [1]}, {"r": [0], "p": [0]})
    assert test is not None and (test.problems, test.difference) == (1, 1.0)
    assert paired({"p": [1]}, {"q": [1]}) is None


def test_means_over_seeds() -> None:
    seeds = spread([0.4, 0.5, 0.6])
    assert (seeds.low, seeds.high) == (0.4, 0.6)
    assert seeds.mean == pytest.approx(0.5) and seeds.deviation == pytest.approx(0.1)
    assert spread([0.4]).deviation is None


def test_a_split_depends_on_the_seed_and_not_on_the_order() -> None:
    ids = [str(i) for i in range(40)]
    part = split(ids, 0.25)
    assert len(part) == 10 and part == split(ids[::-1], 0.25) != split(ids, 0.25, seed=1)


def test_holm_by_hand() -> None:
    assert statistics.holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])  # 0.01 x 3, 0.03 x 2, not below it
    assert statistics.holm([0.9, 0.8]) == [1.0, 1.0] and statistics.holm([]) == []


def test_errors_correlate_by_hand() -> None:
    a = {"p": [1], "q": [0], "r": [1], "s": [0]}
    assert statistics.error_correlation(a, a) == pytest.approx(1.0)
    assert statistics.error_correlation(a, {p: [1 - row[0]] for p, row in a.items()}) == pytest.approx(-1.0)
    assert statistics.error_correlation(a, {"p": [1], "q": [1], "r": [0], "s": [0]}) == pytest.approx(0.0)
    assert statistics.error_correlation(a, {p: [1] for p in a}) is None  # never wrong
    assert statistics.error_correlation(a, {}) is None
    pairs = {"p": [1, 1, 1], "q": [0, 0]}, {"p": [1, 1], "q": [0, 1]}  # (1,1) (1,1) (0,0) (0,1): phi = 1/sqrt(3)
    assert statistics.error_correlation(*pairs) == pytest.approx(3**-0.5)


def test_an_interval_over_seeds_is_wider_where_seeds_differ() -> None:
    problems = [f"p{i}" for i in range(60)]
    always, never = {p: [1] for p in problems}, {p: [0] for p in problems}
    half = {p: [i % 2] for i, p in enumerate(problems)}
    same = statistics.over_seeds([half, half, half], [never, never, never])
    differ = statistics.over_seeds([half, always, never], [never, never, never])
    assert same and differ and same.low < 0.5 < same.high and differ.low < 0.5 < differ.high
    assert differ.high - differ.low > 2 * (same.high - same.low)
    assert same.method == "bootstrap over 3 seeds and 60 problems"
    alone = statistics.bootstrap([row[0] for row in half.values()])  # with equal seeds only problems are drawn
    assert (same.low, same.high) == pytest.approx((alone.low, alone.high), abs=0.02)
    assert statistics.over_seeds([half], [never]) is None and statistics.over_seeds([], []) is None


def test_each_run_weighs_the_same_however_many_samples_it_has() -> None:
    three, two = {"p": [1, 0, 1], "q": [1, 1, 1]}, {"p": [0, 0]}
    outcomes = joined([three, two])
    assert statistics.mean(outcomes["p"]) == pytest.approx((2 / 3 + 0) / 2) and outcomes["q"] == [1, 1, 1]
    assert joined([{"p": [1]}, {"p": [0]}]) == {"p": [1, 0]}
    test = statistics.paired(outcomes, joined([{"p": [0]}, {"p": [0]}]))
    assert test is not None and test.difference == pytest.approx(1 / 3)
