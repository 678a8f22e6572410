import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agon_verl.game.advantages import group_advantages, live_groups

ladder = st.sampled_from([0.0, 0.5, 2.0, 2.5, 3.0, 3.5])
batches = st.lists(st.tuples(ladder, st.sampled_from("abc")), min_size=1, max_size=24)


def advantages(rewards, groups, **kwargs) -> list[float]:
    return group_advantages(torch.tensor(rewards, dtype=torch.float64), groups, **kwargs).tolist()


def test_by_hand():
    """3, 2, 2, 1: mean 2, squared deviations 1 + 0 + 0 + 1 over 3, so std = sqrt(2/3) = 0.81650."""
    assert advantages([3.0, 2.0, 2.0, 1.0], "xxxx", epsilon=0.0) == pytest.approx([1.5**0.5, 0, 0, -(1.5**0.5)])


def test_epsilon_is_added_to_the_deviation():
    """1, 0: mean 1/2, std = sqrt(1/2)."""
    assert advantages([1.0, 0.0], "xx", epsilon=0.5) == pytest.approx([0.5 / (0.5**0.5 + 0.5), -0.5 / (0.5**0.5 + 0.5)])


def test_groups_are_separate_and_may_be_interleaved():
    assert advantages([1.0, 10.0, 0.0, 30.0], "xyxy", normalize=False) == [0.5, -10.0, -0.5, 10.0]


def test_without_normalization_only_the_mean_goes():
    assert advantages([3.0, 2.0, 2.0, 1.0], "xxxx", normalize=False) == [1.0, 0.0, 0.0, -1.0]


@pytest.mark.parametrize("normalize", [True, False])
def test_a_singleton_group_is_zero(normalize):
    """It is compared with nothing. verl keeps the raw reward (3.5 here), which would reinforce whatever was sampled."""
    assert advantages([3.5, 1.0, 0.0], "xyy", normalize=normalize)[0] == 0.0


@pytest.mark.parametrize("reward", [0.0, 0.1, 2.5, 3.3])
def test_equal_rewards_are_exactly_zero(reward):
    rewards = torch.full((7,), reward)  # seven times 0.1 in float32 does not average to 0.1
    assert group_advantages(rewards, ["x"] * 7).tolist() == [0.0] * 7
    assert live_groups(rewards, ["x"] * 7) == set()


@given(batches)
def test_advantages_of_a_group_sum_to_zero_and_have_unit_deviation(batch):
    rewards, groups = zip(*batch, strict=True)
    found = torch.tensor(advantages(rewards, groups, epsilon=0.0))
    live = live_groups(torch.tensor(rewards), groups)
    for group in set(groups):
        members = found[[g == group for g in groups]]
        assert members.sum().item() == pytest.approx(0, abs=1e-5)
        if group in live:
            assert members.std().item() == pytest.approx(1, abs=1e-5)
        else:
            assert members.tolist() == [0.0] * len(members)


@given(batch=batches, data=st.data())
def test_permuting_the_batch_permutes_the_advantages(batch, data):
    order = data.draw(st.permutations(range(len(batch))))
    rewards, groups = zip(*batch, strict=True)
    there = advantages([rewards[i] for i in order], [groups[i] for i in order])
    assert there == pytest.approx([advantages(rewards, groups)[i] for i in order], abs=1e-12)


@given(batches, st.floats(-5, 5), st.floats(0.1, 10))
def test_an_affine_change_of_a_groups_rewards_changes_nothing(batch, shift, scale):
    """What makes group-constant terms inert. Exact without epsilon."""
    rewards, groups = zip(*batch, strict=True)
    moved = [shift + scale * reward for reward in rewards]
    assert advantages(moved, groups, epsilon=0.0) == pytest.approx(advantages(rewards, groups, epsilon=0.0), abs=1e-9)


def test_live_groups():
    rewards = torch.tensor([1.0, 1.0, 0.0, 2.0, 5.0, 1.0, 1.0 + 1e-9], dtype=torch.float64)
    assert live_groups(rewards, ["same", "same", "live", "live", "alone", "tiny", "tiny"]) == {"live"}


def test_an_empty_batch():
    assert advantages([], []) == []
    assert live_groups(torch.zeros(0), []) == set()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_dtype_is_kept(dtype):
    assert group_advantages(torch.tensor([1.0, 0.0], dtype=dtype), "xx").dtype == dtype


@pytest.mark.parametrize(
    ("rewards", "groups", "message"),
    [
        (torch.zeros(3), "xx", "for 2 groups"),
        (torch.zeros(2, 1), "xx", "for 2 groups"),
        (torch.tensor([1, 0]), "xx", "finite floating-point"),
        (torch.tensor([1.0, math.nan]), "xx", "finite floating-point"),
        (torch.tensor([1.0, math.inf]), "xx", "finite floating-point"),
    ],
)
def test_what_is_no_batch_of_rewards_is_refused(rewards, groups, message):
    with pytest.raises(ValueError, match=message):
        group_advantages(rewards, groups)
    with pytest.raises(ValueError, match=message):
        live_groups(rewards, groups)


@pytest.mark.parametrize("normalize", [True, False])
def test_equal_to_the_grpo_estimator_of_verl(normalize):
    """On groups of two or more; the singleton is where we depart."""
    core_algos = pytest.importorskip("verl.trainer.ppo.core_algos")
    import numpy as np

    generator = torch.Generator().manual_seed(0)
    for trial in range(20):
        groups = [f"g{i % 5}" for i in range(40)]
        rewards = torch.rand(40, generator=generator) * 3
        if trial % 2:
            rewards = rewards.round()  # ties, and now and then a dead group
        tokens = torch.zeros(40, 6)
        tokens[:, -1] = rewards
        theirs, _ = core_algos.get_adv_estimator_fn("grpo")(
            tokens, torch.ones(40, 6), np.array(groups, dtype=object), norm_adv_by_std_in_grpo=normalize
        )
        ours = group_advantages(rewards, groups, normalize=normalize)
        torch.testing.assert_close(theirs, ours[:, None].expand(40, 6), atol=1e-6, rtol=1e-6)
