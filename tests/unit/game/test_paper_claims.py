"""What section 3.4 claims of the stacks under group standardisation, held to the letter; measured where it is loose.

c(b), c(a) and phi(b) of a group of N are given as lists; everything is in float64.
"""

import itertools

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from agon_verl.game.advantages import group_advantages, live_groups
from agon_verl.game.rewards import STACKS, Outcome, challenge_reward

EPSILON = 1e-6
bits = st.integers(0, 1)


def rewards(stack, b, a, phi=None, lengths=None, **weights) -> list[float]:
    phi, lengths = phi or [1.0] * len(b), lengths or [(1, 1)] * len(b)
    return [
        challenge_reward(stack, Outcome(b_i, phi_i, of_b), Outcome(a_i, 1.0, of_a), **weights)
        for b_i, a_i, phi_i, (of_b, of_a) in zip(b, a, phi, lengths, strict=True)
    ]


def advantages(stack, b, a, phi=None, *, epsilon=EPSILON, normalize=True, **other) -> np.ndarray:
    paid = rewards(stack, b, a, phi, **other)
    return np.array(group_advantages(paid, ["x"] * len(b), epsilon=epsilon, normalize=normalize))


# Claim: with one opponent shared by the group, adv and margin "normalize to exactly the advantage" of coop.
# True with equal phi, up to epsilon.


@given(b=st.lists(bits, min_size=2, max_size=8), a=bits, phi=bits)
def test_a_shared_opponent_is_inert_when_format_is_equal(b, a, phi):
    phis = [float(phi)] * len(b)
    coop = advantages("coop", b, [a] * len(b), phis, epsilon=0.0)
    for stack in ("adv", "margin"):
        found = advantages(stack, b, [a] * len(b), phis, epsilon=0.0)
        np.testing.assert_allclose(found, coop, atol=1e-12, rtol=0)


def test_epsilon_is_all_that_is_left_of_the_bonus_then():
    """One right of eight: s = sqrt(1/8), the largest deviation of c is d = 7/8.

    3d/(3s + e) - 2d/(2s + e) = d e / ((2s + e)(3s + e)), about d e / (6 s^2) = 1.17e-6: a millionth of the advantage.
    """
    b, a = [1] + [0] * 7, [0] * 8
    gap = np.abs(advantages("adv", b, a) - advantages("coop", b, a)).max()
    s, d = (1 / 8) ** 0.5, 7 / 8
    assert gap == pytest.approx(d * EPSILON / ((2 * s + EPSILON) * (3 * s + EPSILON)), rel=1e-6)
    assert gap == pytest.approx(1.17e-6, rel=0.01)
    assert np.array_equal(advantages("adv", b, [1] * 8), advantages("coop", b, [1] * 8))  # no bonus to pay


# Loose: the claim passes over phi. Where format varies inside the group, 2c -> 3c changes the weight of correctness
# against format, so the advantages are not identical: a shared opponent that failed makes format count less.


def test_a_shared_opponent_is_not_inert_when_format_varies():
    """c = 1 1 0 0, phi = 1 0 1 0, shared wrong draft: coop pays 2.5 2 0.5 0, adv pays 3.5 3 0.5 0.

    coop: mean 1.25, deviations 1.25 0.75 -0.75 -1.25, std sqrt(4.25/3) = 1.1902
    adv:  mean 1.75, deviations 1.75 1.25 -1.25 -1.75, std sqrt(9.25/3) = 1.7559
    """
    b, a, phi = [1, 1, 0, 0], [0, 0, 0, 0], [1.0, 0.0, 1.0, 0.0]
    coop, adv, margin = (advantages(stack, b, a, phi) for stack in ("coop", "adv", "margin"))
    assert coop.tolist() == pytest.approx([1.0502, 0.6301, -0.6301, -1.0502], abs=1e-4)
    assert adv.tolist() == pytest.approx([0.9966, 0.7119, -0.7119, -0.9966], abs=1e-4)
    assert np.array_equal(margin, adv)  # with c(a) = 0 they are one reward
    # What format is worth among the right ones falls by a third: 0.4201 -> 0.2847.
    assert coop[0] - coop[1] == pytest.approx(0.4201, abs=1e-4)
    assert adv[0] - adv[1] == pytest.approx(0.2847, abs=1e-4)


@given(b=st.lists(bits, min_size=2, max_size=8), data=st.data())
def test_scaling_correctness_is_scaling_the_format_weight_down(b, data):
    """What is exact: against a shared wrong draft, adv with lambda is coop with 2/3 lambda."""
    phi = [float(data.draw(bits)) for _ in b]
    a = [0] * len(b)
    adv = advantages("adv", b, a, phi, epsilon=0.0, format_weight=0.5)
    coop = advantages("coop", b, a, phi, epsilon=0.0, format_weight=0.5 * 2 / 3)
    np.testing.assert_allclose(adv, coop, atol=1e-12, rtol=0)


# Claim: within-group variation of c(a) is what makes the bonus trainable.


def test_varied_opponents_make_the_bonus_count():
    """c(b) = 1 1 0 0, c(a) = 1 0 1 0: adv pays 2 3 0 0. Mean 1.25, std sqrt(6.75/3) = 1.5."""
    b, a = [1, 1, 0, 0], [1, 0, 1, 0]
    assert advantages("coop", b, a).tolist() == pytest.approx([0.8660, 0.8660, -0.8660, -0.8660], abs=1e-4)
    assert advantages("adv", b, a).tolist() == pytest.approx([0.5, 1.1667, -0.8333, -0.8333], abs=1e-4)


@given(b=st.lists(bits, min_size=2, max_size=8), data=st.data())
def test_the_bonus_moves_a_group_only_if_a_right_challenge_met_a_different_draft(b, data):
    """Equal phi. adv equals coop exactly when the drafts of the *right* challenges are all right or all wrong."""
    a = [data.draw(bits) for _ in b]
    assume(0 < sum(b) < len(b))
    opponents = {a_i for a_i, b_i in zip(a, b, strict=True) if b_i}
    same = np.allclose(advantages("adv", b, a, epsilon=0.0), advantages("coop", b, a, epsilon=0.0), atol=1e-9)
    assert same == (len(opponents) == 1)


# Loose: "solving where the opponent could not is worth more" also means that solving where it could is worth less than
# nothing in a group that is right throughout. coop drops that group; adv pushes its correct completions down.


def test_adv_pushes_correct_completions_down_in_a_group_that_is_all_right():
    """Rewards 3 2 2 2: mean 2.25, std 0.5."""
    b, a = [1, 1, 1, 1], [0, 1, 1, 1]
    assert live_groups(rewards("coop", b, a), "xxxx") == set()
    assert advantages("adv", b, a).tolist() == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=1e-5)


def test_the_margin_rewards_failing_together_with_the_draft():
    """All wrong, the first draft too: margin pays 0 -1 -1 -1 and reinforces that failure. adv drops the group."""
    b, a = [0, 0, 0, 0], [0, 1, 1, 1]
    assert live_groups(rewards("adv", b, a), "xxxx") == set()
    assert advantages("margin", b, a).tolist() == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=1e-5)


def test_the_tiebreak_pushes_the_longer_correct_completions_down():
    """Loose: it "never directly penalizes correctness", but standardisation does: rewards 2.5 2 2 2, format aside."""
    b, a, lengths = [1, 1, 1, 1], [1, 1, 1, 1], [(90, 100), (110, 100), (120, 100), (130, 100)]
    found = advantages("adv", b, a, lengths=lengths, tiebreak_weight=0.5)
    assert found.tolist() == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=1e-5)


# Claim: the margin has the expected gradient of coop, exactly without standardisation, up to its nonlinearity with it.
# Enumerated over all outcomes of a challenger that is right with one probability when its draft is right and another
# when it is wrong, each with its own logit; the gradient of log p is then b - p.


def expected_gradient(stack: str, right: float, wrong: float, *, normalize: bool) -> tuple[float, float]:
    """(towards solving against right drafts, towards solving against wrong ones) for c(a) = 1 1 0 0 and equal phi."""
    a = (1, 1, 0, 0)
    p = np.array([right if a_i else wrong for a_i in a])
    gradient = np.zeros(4)
    for b in itertools.product((0, 1), repeat=4):
        outcome = np.array(b)
        probability = np.where(outcome == 1, p, 1 - p).prod()
        gradient += probability * advantages(stack, b, a, normalize=normalize) * (outcome - p)
    return gradient[0] + gradient[1], gradient[2] + gradient[3]


@pytest.mark.parametrize(("right", "wrong"), [(0.8, 0.2), (0.9, 0.5), (0.6, 0.1)])
def test_unnormalized_the_margin_is_coop_and_adv_tilts_by_half(right, wrong):
    """Each context gives 2 (1 - 1/N) k p (1 - p), with k = dR/dc(b): 2 for coop, 3 for margin, 2 or 3 for adv."""
    coop, adv, margin = (expected_gradient(s, right, wrong, normalize=False) for s in ("coop", "adv", "margin"))
    assert coop == pytest.approx((3 * right * (1 - right), 3 * wrong * (1 - wrong)))
    assert margin == pytest.approx((1.5 * coop[0], 1.5 * coop[1]))
    assert adv == pytest.approx((coop[0], 1.5 * coop[1]))


def test_normalized_the_margin_is_not_coop():
    """Loose: "in expectation the margin points in the same direction". The nonlinearity it sets aside is not small.

    Right 90% of the time after a right draft and 50% after a wrong one, the weight on wrong drafts against right ones
    is 2.82 for coop, 4.14 for margin and 5.45 for adv: the margin makes half of adv's tilt.
    """
    tilt = {}
    for stack in STACKS:
        after_right, after_wrong = expected_gradient(stack, 0.9, 0.5, normalize=True)
        tilt[stack] = after_wrong / after_right
    assert tilt == pytest.approx({"coop": 2.820, "margin": 4.141, "adv": 5.449}, abs=2e-3)


def test_normalized_the_margin_can_tilt_the_other_way():
    """Where the challenger is weak (60% and 10%) it is 0.370 for coop, 0.281 for margin and 0.480 for adv."""
    tilt = {}
    for stack in STACKS:
        after_right, after_wrong = expected_gradient(stack, 0.6, 0.1, normalize=True)
        tilt[stack] = after_wrong / after_right
    assert tilt == pytest.approx({"coop": 0.370, "margin": 0.281, "adv": 0.480}, abs=2e-3)
