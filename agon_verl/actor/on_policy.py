"""A single update per rollout, which takes the old log-probs from its own forward pass.

PPO's ratio compares the policy being trained with the one at the start of the batch. With one update per batch they are
equal, so verl's separate pass for the old log-probs would compute what the update's forward pass computes anyway. That
pass also measured the gap between rollout and training and the entropy; both are measured here.
"""

from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu
from verl.utils.metric import AggregationType, Metric
from verl.workers.utils.padding import response_from_nested

ONLY_UPDATE = "only_update"  # the trainer sets it
ENTROPY_IN_LOSS = "entropy_in_loss"  # if not, entropy is only logged and needs no gradient
OLD = "old_log_probs"
ROLLOUT = "rollout_log_probs"


def on_policy(loss_function: Callable) -> Callable:
    """`loss_function` in the form that verl's engine calls, with the old log-probs taken from the model's output."""

    def loss(model_output: dict[str, torch.Tensor], data: TensorDict, dp_group: Any = None) -> tuple[Any, dict]:
        log_probs = model_output["log_probs"].detach()
        data[OLD] = response_from_nested(log_probs, data["response_mask"])
        if not tu.get_non_tensor_data(data, ENTROPY_IN_LOSS, default=None):
            model_output = {**model_output, "entropy": model_output["entropy"].detach()}
        value, metrics = loss_function(model_output=model_output, data=data, dp_group=dp_group)
        return value, {**metrics, **_gap(data)}

    return loss


def summed(loss_function: Callable) -> Callable:
    """A loss that is a mean over a batch's tokens, as their sum; its metrics stay as they are."""

    def loss(model_output: dict[str, torch.Tensor], data: TensorDict, dp_group: Any = None) -> tuple[Any, dict]:
        value, metrics = loss_function(model_output=model_output, data=data, dp_group=dp_group)
        return value * data["batch_num_tokens"], metrics

    return loss


def _gap(data: TensorDict) -> dict[str, Metric]:
    """The gap between the rollout's and the trainer's probabilities, under verl's names; means over all tokens."""
    if ROLLOUT not in data.keys():
        return {}
    carries_loss = data["response_mask"].values().bool()
    ours, theirs = (data[name].values()[carries_loss].float() for name in (OLD, ROLLOUT))
    apart = (ours.exp() - theirs.exp()).abs()
    share = data["dp_size"] / data["batch_num_tokens"]  # sums over micro-batches, means over ranks, as verl's losses
    return {
        "training/rollout_probs_diff_mean": Metric(AggregationType.SUM, apart.sum() * share),
        "training/rollout_probs_diff_max": Metric(AggregationType.MAX, apart.max() if len(apart) else 0.0),
        "rollout_corr/kl": Metric(AggregationType.SUM, (theirs - ours).sum() * share),
    }
