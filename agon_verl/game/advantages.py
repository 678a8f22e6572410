"""Group-relative advantages (Eq. grpo-adv): A_i = (R_i - mean) / (std + epsilon) within each group of N.

The paper gives neither the kind of standard deviation nor an epsilon. Ours are those of verl's `grpo` estimator: the
sample standard deviation (divisor N - 1) and 1e-6. Against the population's it shrinks every advantage by sqrt((N -
1) / N), 6.5% at N = 8.

A group is dead when its rewards are all equal (to 1e-8), which a group of one always is. The paper drops dead groups;
here their advantages are exactly 0. This departs from verl in two places: a singleton there keeps its raw reward as
advantage, though it is compared with nothing; and equal rewards whose mean rounds get a small advantage from rounding
alone.
"""

import math
from collections.abc import Hashable, Sequence
from typing import Literal

LiveBy = Literal["reward", "correctness"]  # what must differ within a group for it to train (`agon.live_groups`)
_EQUAL = 1e-8


def group_advantages(
    rewards: Sequence[float], groups: Sequence[Hashable], *, normalize: bool = True, epsilon: float = 1e-6
) -> list[float]:
    """One advantage per reward, in the same order; `normalize=False` only subtracts the mean (Dr. GRPO)."""
    advantages = [0.0] * len(rewards)
    for rows in _live(rewards, groups).values():
        mean = sum(rewards[row] for row in rows) / len(rows)
        deviations = [rewards[row] - mean for row in rows]
        scale = 1.0
        if normalize:
            scale = math.sqrt(sum(d * d for d in deviations) / (len(rows) - 1)) + epsilon
        for row, deviation in zip(rows, deviations, strict=True):
            advantages[row] = deviation / scale
    return advantages


def live_groups(
    rewards: Sequence[float], groups: Sequence[Hashable], verdicts: Sequence[float] | None = None
) -> set[Hashable]:
    """The groups that train: two members or more whose rewards are not all equal, nor their verdicts if there are any.

    Verdicts say how right each is. Without them a group of wrong answers in different forms trains as well.
    """
    live = set(_live(rewards, groups))
    return live if verdicts is None else live & set(_live(verdicts, groups))


def _live(rewards: Sequence[float], groups: Sequence[Hashable]) -> dict[Hashable, list[int]]:
    """The rows of each group whose rewards are not all equal."""
    if len(rewards) != len(groups):
        raise ValueError(f"{len(rewards)} rewards for {len(groups)} group names: pass one group name per reward")
    if not all(map(math.isfinite, rewards)):
        raise ValueError(f"rewards must be finite numbers, not {list(rewards)}: check what the verifier returned")
    members: dict[Hashable, list[int]] = {}
    for row, group in enumerate(groups):
        members.setdefault(group, []).append(row)

    def spread(rows: list[int]) -> float:
        values = [rewards[row] for row in rows]
        return max(values) - min(values)

    return {group: rows for group, rows in members.items() if spread(rows) > _EQUAL}
