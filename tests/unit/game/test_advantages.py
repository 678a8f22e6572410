import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agon_verl.game.advantages import group_advantages, live_groups

ladder = st.sampled_from([0.0, 0.5, 2.0, 2.5, 3.0, 3.5])
batches = st.lists(st.tuples(ladder, st.sampled_from("abc")), min_size=1, max_size=24)


def test_by_hand():
    """3, 2, 2, 1: mean 2, squared deviations 1 + 0 + 0 + 1 over 3, so std = sqrt(2/3) = 0.81650."""
    assert group_advantages([3.0, 2.0, 2.0, 1.0], "xxxx", epsilon=0.0) == pytest.approx([1.5**0.5, 0, 0, -(1.5**0.5)])


def test_epsilon_is_added_to_the_deviation():
    """1, 0: mean 1/2, std = sqrt(1/2)."""
    assert group_advantages([1.0, 0.0], "xx", epsilon=0.5) == pytest.approx(
        [0.5 / (0.5**0.5 + 0.5), -0.5 / (0.5**0.5 + 0.5)]
    )


def test_groups_are_separate_and_may_be_interleaved():
    assert group_advantages([1.0, 10.0, 0.0, 30.0], "xyxy", normalize=False) == [0.5, -10.0, -0.5, 10.0]


def test_without_normalization_only_the_mean_goes():
    assert group_advantages([3.0, 2.0, 2.0, 1.0], "xxxx", normalize=False) == [1.0, 0.0, 0.0, -1.0]


@pytest.mark.parametrize("normalize", [True, False])
def test_a_singleton_group_is_zero(normalize):
    """It is compared with nothing. verl keeps the raw reward (3.5 here), which would reinforce whatever was sampled."""
    assert group_advantages([3.5, 1.0, 0.0], "xyy", normalize=normalize)[0] == 0.0


@pytest.mark.parametrize("reward", [0.0, 0.1, 2.5, 3.3])
def test_equal_rewards_are_exactly_zero(reward):
    rewards = [reward] * 7  # seven times 0.1 does not average to 0.1
    assert group_advantages(rewards, ["x"] * 7) == [0.0] * 7
    assert live_groups(rewards, ["x"] * 7) == set()


@given(batches)
def test_advantages_of_a_group_sum_to_zero_and_have_unit_deviation(batch):
    rewards, groups = zip(*batch, strict=True)
    advantages = group_advantages(rewards, groups, epsilon=0.0)
    live = live_groups(rewards, groups)
    for group in set(groups):
        members = [advantage for advantage, g in zip(advantages, groups, strict=True) if g == group]
        assert sum(members) == pytest.approx(0, abs=1e-9)
        if group in live:
            assert statistics.stdev(members) == pytest.approx(1, abs=1e-9)
        else:
            assert members == [0.0] * len(members)


@given(batch=batches, data=st.data())
def test_permuting_the_batch_permutes_the_advantages(batch, data):
    order = data.draw(st.permutations(range(len(batch))))
    rewards, groups = zip(*batch, strict=True)
    there = group_advantages([rewards[i] for i in order], [groups[i] for i in order])
    assert there == pytest.approx([group_advantages(rewards, groups)[i] for i in order], abs=1e-12)


@given(batches, st.floats(-5, 5), st.floats(0.1, 10))
def test_an_affine_change_of_a_groups_rewards_changes_nothing(batch, shift, scale):
    """What makes group-constant terms inert. Exact without epsilon."""
    rewards, groups = zip(*batch, strict=True)
    moved = [shift + scale * reward for reward in rewards]
    assert group_advantages(moved, groups, epsilon=0.0) == pytest.approx(
        group_advantages(rewards, groups, epsilon=0.0), abs=1e-9
    )


def test_live_groups():
    rewards = [1.0, 1.0, 0.0, 2.0, 5.0, 1.0, 1.0 + 1e-9]
    assert live_groups(rewards, ["same", "same", "live", "live", "alone", "tiny", "tiny"]) == {"live"}


def test_by_verdicts_a_group_trains_if_they_and_the_rewards_differ():
    rewards = [0.5, 0.0, 2.0, 0.5, 0.5, 0.5]
    groups = ["form", "form", "both", "both", "cancelled", "cancelled"]
    verdicts = [0.0, 0.0, 1.0, 0.0, 0.25, 0.0]  # of the last: partial credit, made up for by form
    assert live_groups(rewards, groups) == {"form", "both"}
    assert live_groups(rewards, groups, verdicts) == {"both"}


def test_an_empty_batch():
    assert group_advantages([], []) == []
    assert live_groups([], []) == set()


@pytest.mark.parametrize(
    ("rewards", "groups", "message"),
    [
        ([0.0] * 3, "xx", "3 rewards for 2 group names"),
        ([1.0, math.nan], "xx", "must be finite"),
        ([1.0, math.inf], "xx", "must be finite"),
    ],
)
def test_bad_rewards_are_refused(rewards, groups, message):
    with pytest.raises(ValueError, match=message):
        group_advantages(rewards, groups)
    with pytest.raises(ValueError, match=message):
        live_groups(rewards, groups)
