import json
from dataclasses import replace
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agon_verl.game.roles import ADAPTERS
from agon_verl.health.health import COPIED, Trends, cascade_health, health_metrics, validation_health
from tests.unit.health.test_pair_statistics import PAIRS, pair


def test_every_metric_by_hand():
    """Drafts x 1 0 0, y 1 1; challenges x 1 1 0, y 1 0. Wrong: two drafts, two challenges, one pair on both sides."""
    copied = (0.9, 0.9, 0.1, COPIED, 0.0)
    same = (True, False, True, None, False)
    pairs = [replace(p, copied=c, same_answer=s) for p, c, s in zip(PAIRS, copied, same, strict=True)]
    assert health_metrics(pairs) == pytest.approx(
        {
            "health/error_overlap": 1 / 5,
            "health/error_overlap_if_independent": 4 / 25,
            "health/error_correlation": (1 / 5 - 4 / 25) / (2 / 5 - 4 / 25),
            "health/gain": 0.0,
            "health/agreement": 2 / 4,
            "health/same_wrong_answer": 1.0,
            "health/wrong_answer_kept": 1 / 2,
            "health/copy": 3 / 5,
            "health/copy_of_wrong": 1 / 2,
            "health/leak": 1 / 5,
            "health/dead_groups": 1 / 4,  # of four groups, the drafts on y
            "health/live_all_wrong": 0.0,
        }
    )


def test_no_pairs_no_metrics():
    assert health_metrics([]) == {}
    assert validation_health([], []) == {}


def correlation(*verdicts: tuple[float, float]) -> float | None:
    return health_metrics([pair("x", a, b) for a, b in verdicts]).get("health/error_correlation")


def test_error_correlation_by_hand():
    assert correlation((0, 0), (0, 1), (1, 0), (1, 1)) == pytest.approx(0.0)
    assert correlation((0, 0), (0, 0), (1, 1), (1, 1)) == pytest.approx(1.0)
    # Unequal strengths: wrong wherever the draft is, and elsewhere too. min(1/4, 1/2) - 1/8 = 1/8.
    assert correlation((0, 0), (1, 0), (1, 1), (1, 1)) == pytest.approx(1.0)
    assert correlation((0, 1), (0, 1), (1, 0), (1, 0)) == pytest.approx(-1.0)
    # The bound is not -1: 0 - 3/16 over 1/4 - 3/16.
    assert correlation((0, 1), (0, 1), (0, 1), (1, 0)) == pytest.approx(-3.0)


def test_error_correlation_has_no_value_where_a_side_is_always_right_or_always_wrong():
    assert correlation((1, 1), (1, 0)) is None
    assert correlation((0, 1), (0, 0)) is None
    assert correlation((0, 1), (1, 1)) is None
    assert correlation((0, 0), (1, 0)) is None


def test_conditionals_without_a_case_are_left_out():
    metrics = health_metrics([pair("x", 1, 1), pair("x", 1, 0)])
    assert not metrics.keys() & {
        f"health/{name}" for name in ("same_wrong_answer", "wrong_answer_kept", "copy_of_wrong")
    }
    assert "health/agreement" not in metrics  # the verifier names no answers
    known = health_metrics([pair("x", 0, 1, same_answer=False), pair("x", 1, 0, same_answer=False)])
    assert "health/same_wrong_answer" not in known
    assert (known["health/agreement"], known["health/wrong_answer_kept"]) == (0.0, 0.0)


def test_repeating_a_right_draft_is_no_copy_of_a_wrong_one():
    pairs = [pair("x", 1, 1, copied=1.0), pair("x", 1, 1, copied=1.0), pair("x", 0, 1, copied=0.0)]
    metrics = health_metrics(pairs)
    assert (metrics["health/copy"], metrics["health/copy_of_wrong"]) == (pytest.approx(2 / 3), 0.0)


def test_gain_is_what_the_challenges_add():
    assert health_metrics([pair("x", 0, 1), pair("x", 0, 1), pair("x", 1, 0), pair("x", 1, 1)])["health/gain"] == 1 / 4
    assert health_metrics([pair("x", 1, 0), pair("x", 1, 0), pair("x", 0, 0), pair("x", 1, 1)])["health/gain"] == -1 / 2


def test_partial_credit_counts_as_wrong():
    assert health_metrics([pair("x", 0.9, 0.9), pair("x", 1, 1)])["health/error_overlap"] == 0.5


def test_guests_count_except_in_the_drafters_dead_groups():
    pairs = [pair("x", 1, 0), pair("x", 1, 1), pair("x", 0, 0, guest=True), pair("y", 0, 1, guest=True)]
    metrics, live = health_metrics(pairs), health_metrics([replace(p, guest=False) for p in pairs])
    # The drafter's own: x right twice. Challenges: x differs, y is a group of one.
    assert metrics.pop("health/dead_groups") == pytest.approx(2 / 3)
    assert live.pop("health/dead_groups") == pytest.approx(2 / 4)
    assert metrics == live


@given(st.permutations(PAIRS))
def test_the_order_of_pairs_does_not_matter(pairs):
    assert health_metrics(pairs) == pytest.approx(health_metrics(PAIRS))


def test_validation_by_hand():
    """A wrong on the third and fourth, B on the fourth and fifth."""
    metrics = validation_health([True, True, False, False, True], [1.0, 1.0, 1.0, 0.0, 0.5])
    assert metrics == pytest.approx(
        {
            "health/val/error_overlap": 1 / 5,
            "health/val/error_overlap_if_independent": 4 / 25,
            "health/val/error_correlation": 1 / 6,
            "health/val/agreement": 3 / 5,
            "health/val/strength_gap": (3 - 3.5) / 5,
        }
    )


def test_validation_of_a_perfect_adapter_has_no_correlation():
    metrics = validation_health([1, 1], [1, 0])
    assert "health/val/error_correlation" not in metrics
    assert metrics["health/val/strength_gap"] == 0.5


def test_validation_refuses_different_problems():
    with pytest.raises(ValueError, match="3 and 2 verdicts"):
        validation_health([1, 1, 0], [1, 0])


def test_a_trend_is_the_average_now_over_the_mean_of_the_first_four():
    trends = Trends(ADAPTERS)
    seen = [trends.update({"A/actor/entropy": value}) for value in (0.4, 0.2, 0.4, 0.2, 0.3, 0.0)]
    # Mean of the first four 0.3; then the mean of five, 0.3; then 0.8 of that.
    assert seen[:3] == [{}, {}, {}]
    assert [step["health/A/entropy_trend"] for step in seen[3:]] == pytest.approx([1.0, 1.0, 0.8])


def test_steps_without_a_value_are_passed_over():
    """A stream without a live group logs no entropy; a broken one logs NaN."""
    with_gaps, without = Trends(ADAPTERS), Trends(ADAPTERS)
    for value in (0.4, 0.4, 0.4, 0.4):
        with_gaps.update({"A/actor/entropy": value})
        without.update({"A/actor/entropy": value})
    assert with_gaps.update({"B/actor/entropy": 0.1}) == {}
    assert with_gaps.update({"A/actor/entropy": nan}) == with_gaps.update({"A/actor/entropy": inf}) == {}
    assert with_gaps.update({"A/actor/entropy": 0.2}) == without.update({"A/actor/entropy": 0.2})


def test_a_metric_that_starts_at_zero_has_no_trend():
    trends = Trends(ADAPTERS)
    assert [trends.update({"B/actor/entropy": value}) for value in (0, 0, 0, 0, 1)] == [{}] * 5


def drafting(adapter: str, draft: float, challenge: float, acc: float = 0.5) -> dict[str, float]:
    rival = "B" if adapter == "A" else "A"
    return {f"{adapter}/draft/length": draft, f"{adapter}/draft/acc": acc, f"{rival}/challenge/length": challenge}


def test_an_adapters_length_is_that_of_its_drafts():
    """B's drafts double on its fifth; its challenges, eight times as long, leave no trace."""
    trends, seen = Trends(ADAPTERS), []
    for step in range(1, 11):
        length = 100 if step < 9 else 200
        seen.append(trends.update(drafting("B" if step % 2 else "A", length, 800)))
    lengths = [{name: value for name, value in step.items() if "length" in name} for step in seen]
    assert lengths[:6] == [{}] * 6
    assert lengths[6:] == [
        {"health/B/length_trend": pytest.approx(1.0)},
        {"health/A/length_trend": pytest.approx(1.0)},
        {"health/B/length_trend": pytest.approx(1.2)},  # the mean of 100 100 100 100 200
        {"health/A/length_trend": pytest.approx(1.2)},
    ]


def test_an_adapter_that_never_drafts_is_measured_by_its_challenges():
    trends = Trends(ADAPTERS)
    for _ in range(4):
        trends.update(drafting("A", 100, 800))
    assert trends.update(drafting("A", 100, 400)) == {
        "health/A/length_trend": pytest.approx(1.0),
        "health/B/length_trend": pytest.approx(0.9),  # the mean of 800 800 800 800 400
    }


def test_the_strength_gap_needs_drafts_of_both():
    trends = Trends(ADAPTERS)
    assert trends.update(drafting("A", 100, 100, acc=0.8)) == {}
    assert trends.update(drafting("B", 100, 100, acc=0.2)) == {"health/strength_gap": pytest.approx(0.6)}
    assert trends.update(drafting("A", 100, 100, acc=0.4)) == {"health/strength_gap": pytest.approx(0.4)}
    assert trends.update({"B/challenge/length": 3.0}) == {}  # a step whose drafts were guests'


def test_a_resumed_run_goes_on_exactly():
    steps = []
    for step in range(1, 21):
        drafter = "B" if step % 2 else "A"
        steps.append(drafting(drafter, 100 + step**2, 50 - step, acc=1 / (step + 2)))
        steps[-1] |= {"A/actor/entropy": 1 / 3 / step} | ({"B/actor/entropy": 1 / 7 + step} if step % 3 else {})
    whole = Trends(ADAPTERS)
    expected = [whole.update(step) for step in steps]
    for cut in range(len(steps)):
        before = Trends(ADAPTERS)
        for step in steps[:cut]:
            before.update(step)
        after = Trends.from_state(ADAPTERS, json.loads(json.dumps(before.state())))
        assert [after.update(step) for step in steps[cut:]] == expected[cut:]
        assert after.state() == whole.state()


def test_conversion_and_damage_of_a_cascade_by_hand() -> None:
    assert cascade_health([0, 0, 0, 1, 1], [1, 0, 0, 0, 1]) == {"conversion": 1 / 3, "damage": 1 / 2}
    assert cascade_health([1, 1], [1, 1]) == {"damage": 0.0}
    assert cascade_health([], []) == {}
