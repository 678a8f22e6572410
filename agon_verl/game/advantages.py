"""Group-relative advantages (Eq. grpo-adv): A_i = (R_i - mean) / (std + epsilon) within each group of N.

The paper gives neither the kind of standard deviation nor an epsilon. Ours are those of verl's `grpo` estimator: the
sample standard deviation (divisor N - 1) and 1e-6. Against the population's it shrinks every advantage by sqrt((N -
1) / N), 6.5% at N = 8.

A group is dead when its rewards are all equal (to 1e-8), which a group of one always is. The paper drops dead groups;
here their advantages are exactly 0. This departs from verl in two places: a singleton there keeps its raw reward as
advantage, though it is compared with nothing; and equal rewards whose mean rounds get a small advantage from rounding
alone.
"""

from collections.abc import Hashable, Sequence

import torch

_EQUAL = 1e-8


def group_advantages(
    rewards: torch.Tensor, groups: Sequence[Hashable], *, normalize: bool = True, epsilon: float = 1e-6
) -> torch.Tensor:
    """One advantage for each reward, in its order and dtype; `normalize=False` only subtracts the mean (Dr. GRPO)."""
    names, member = _number(rewards, groups)
    values = rewards.double()
    zeros = values.new_zeros(len(names))
    size = zeros.index_add(0, member, torch.ones_like(values))
    mean = zeros.index_add(0, member, values) / size
    advantages = values - mean[member]
    if normalize:
        variance = zeros.index_add(0, member, advantages.square()) / (size - 1).clamp(min=1)
        advantages = advantages / (variance.sqrt()[member] + epsilon)
    live = _live(values, member, len(names))
    return torch.where(live[member], advantages, 0.0).to(rewards.dtype)


def live_groups(rewards: torch.Tensor, groups: Sequence[Hashable]) -> set[Hashable]:
    """The groups that carry a gradient: two members or more whose rewards are not all equal."""
    names, member = _number(rewards, groups)
    live = _live(rewards.double(), member, len(names))
    return {name for name, is_live in zip(names, live.tolist(), strict=True) if is_live}


def _live(values: torch.Tensor, member: torch.Tensor, count: int) -> torch.Tensor:
    highest = values.new_full((count,), -torch.inf).scatter_reduce(0, member, values, "amax")
    lowest = values.new_full((count,), torch.inf).scatter_reduce(0, member, values, "amin")
    return highest - lowest > _EQUAL


def _number(rewards: torch.Tensor, groups: Sequence[Hashable]) -> tuple[list[Hashable], torch.Tensor]:
    """The distinct groups, and for each reward the position of its group among them."""
    if rewards.shape != (len(groups),):
        raise ValueError(
            f"rewards of shape {tuple(rewards.shape)} for {len(groups)} groups: pass one reward a group name"
        )
    if not rewards.is_floating_point() or not rewards.isfinite().all():
        raise ValueError(
            f"rewards must be finite floating-point numbers, not {rewards}: see what the verifier returned"
        )
    position: dict[Hashable, int] = {}
    member = [position.setdefault(group, len(position)) for group in groups]
    return list(position), torch.tensor(member, dtype=torch.long, device=rewards.device)
