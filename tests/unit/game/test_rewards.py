"""Section 3.4, Eq. coop and Eq. adv, to the letter."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agon_verl.game.rewards import STACKS, Outcome, challenge_reward, standalone_reward

BINARY = list(itertools.product((0.0, 1.0), repeat=2))  # (c(b), c(a))
credit = st.floats(0, 1)


def outcome(correct: float, phi: float = 0.0, length: int = 100) -> Outcome:
    return Outcome(correct, phi, length)


@pytest.mark.parametrize(
    ("stack", "right_right", "right_wrong", "wrong_right", "wrong_wrong"),
    [("coop", 2, 2, 0, 0), ("adv", 2, 3, 0, 0), ("margin", 2, 3, -1, 0)],
)
def test_the_table_of_stacks(stack, right_right, right_wrong, wrong_right, wrong_wrong):
    """Rows by (challenge, draft), format aside."""
    table = {(1, 1): right_right, (1, 0): right_wrong, (0, 1): wrong_right, (0, 0): wrong_wrong}
    for (b, a), reward in table.items():
        assert challenge_reward(stack, outcome(b), outcome(a)) == reward


@pytest.mark.parametrize("phi", [0.0, 1.0])
@pytest.mark.parametrize("format_weight", [0.0, 0.5, 2.0])
def test_the_ladder_of_adv_is_0_2_3_plus_format(phi, format_weight):
    ladder = {challenge_reward("adv", outcome(b, phi), outcome(a), format_weight=format_weight) for b, a in BINARY}
    assert ladder == {0 + format_weight * phi, 2 + format_weight * phi, 3 + format_weight * phi}


def test_the_format_weight_is_a_quarter_of_correctness_by_default():
    assert standalone_reward(outcome(1, 0)) == 2.0
    assert standalone_reward(outcome(0, 1)) == 0.5
    assert standalone_reward(outcome(1, 1)) == 2.5
    assert standalone_reward(outcome(1, 1), format_weight=0.1) == 2.1


@pytest.mark.parametrize(("b", "a"), BINARY)
def test_the_format_term_is_the_same_in_every_stack_and_is_the_challengers(b, a):
    for stack in STACKS:
        gain = challenge_reward(stack, outcome(b, 1), outcome(a)) - challenge_reward(stack, outcome(b, 0), outcome(a))
        assert gain == 0.5
        assert challenge_reward(stack, outcome(b), outcome(a, 1)) == challenge_reward(stack, outcome(b), outcome(a, 0))


@given(b=credit, a=credit, phi=credit)
def test_coop_is_the_standalone_reward_whatever_the_opponent_did(b, a, phi):
    assert challenge_reward("coop", outcome(b, phi), outcome(a)) == standalone_reward(outcome(b, phi))


@given(b=credit, a=credit)
def test_adv_never_pays_for_being_wrong_nor_less_than_coop(b, a):
    """The bonus multiplies c(b): unlike the margin it has no term that the challenger cannot act on."""
    coop, adv = (challenge_reward(stack, outcome(b), outcome(a)) for stack in ("coop", "adv"))
    assert 0 <= adv - coop <= 1
    assert challenge_reward("adv", outcome(0), outcome(a)) == 0
    assert adv - coop == pytest.approx(b * (1 - a))


@given(b=credit, a=credit)
def test_the_margin_is_two_correctness_plus_the_difference(b, a):
    assert challenge_reward("margin", outcome(b), outcome(a)) == pytest.approx(2 * b + (b - a))


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize(
    ("b", "a", "lengths", "bonus"),
    [
        (1, 1, (99, 100), 0.5),
        (1, 1, (100, 100), 0.0),  # as long is not shorter
        (1, 1, (101, 100), 0.0),
        (1, 0, (99, 100), 0.0),  # only when both are right
        (0, 1, (99, 100), 0.0),
        (0, 0, (99, 100), 0.0),
    ],
)
def test_the_length_tiebreak(stack, b, a, lengths, bonus):
    challenge, draft = outcome(b, length=lengths[0]), outcome(a, length=lengths[1])
    without = challenge_reward(stack, challenge, draft)
    assert challenge_reward(stack, challenge, draft, tiebreak_weight=0.5) - without == bonus


def test_an_unknown_stack_names_the_known_ones():
    with pytest.raises(ValueError, match=r"'zero-sum'.*coop, adv, margin"):
        challenge_reward("zero-sum", outcome(1), outcome(1))


@pytest.mark.parametrize("value", [-0.1, 1.5, math.nan])
def test_a_score_outside_0_1_is_refused_by_name(value):
    with pytest.raises(ValueError, match="correct is"):
        Outcome(value, 0.0, 1)
    with pytest.raises(ValueError, match="format is"):
        Outcome(0.0, value, 1)
