"""The advantage estimator as verl's registry calls it: on tensors, beside verl's own."""

import numpy as np
import pytest
import torch
import verl.trainer.ppo.v1  # noqa: F401  before the trainer, which is a subclass of its own
from verl.trainer.ppo.core_algos import get_adv_estimator_fn

import agon_verl.trainer.step  # noqa: F401  registers the estimators


@pytest.mark.parametrize("normalize", [True, False])
def test_equal_to_the_grpo_estimator_of_verl(normalize: bool) -> None:
    """On groups of two or more: with a group of one the two differ on purpose."""
    generator = torch.Generator().manual_seed(0)
    for trial in range(20):
        groups = np.array([f"g{i % 5}" for i in range(40)], dtype=object)
        rewards = torch.rand(40, generator=generator) * 3
        if trial % 2:
            rewards = rewards.round()  # ties, and sometimes a group without variance
        tokens, mask = torch.zeros(40, 6), torch.ones(40, 6)
        tokens[:, -1] = rewards
        theirs, _ = get_adv_estimator_fn("grpo")(tokens, mask, groups, norm_adv_by_std_in_grpo=normalize)
        for stream in ("agon_draft", "agon_challenge"):
            ours, _ = get_adv_estimator_fn(stream)(tokens, mask, groups, {"norm_adv_by_std_in_grpo": normalize})
            torch.testing.assert_close(theirs, ours, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_dtype_and_mask_are_kept(dtype: torch.dtype) -> None:
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
    rewards = torch.tensor([[0, 1.0, 0], [0, 0, 0]], dtype=dtype)
    advantages, returns = get_adv_estimator_fn("agon_draft")(rewards, mask, "xx", None)
    assert advantages is returns and advantages.dtype == dtype
    assert torch.equal(advantages != 0, mask.bool())
