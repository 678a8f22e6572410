"""The one update after a rollout, whose old log-probs are its own.

PPO's ratio is between the policy that is trained and the one the batch began with. With one update a batch they are the
same, so the pass that verl spends on the old log-probs would compute what the update's own forward pass is about to.
What that pass was also good for, the gap between rollout and training and the entropy, is measured here on the way.
"""

from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu
from verl.utils.metric import AggregationType, Metric
from verl.workers.utils.padding import response_from_nested

ONLY_UPDATE = "only_update"  # how the trainer asks for it
ENTROPY_IN_LOSS = "entropy_in_loss"  # else it is only watched, and needs no gradient
OLD = "old_log_probs"
ROLLOUT = "rollout_log_probs"


def on_policy(loss_function: Callable) -> Callable:
    """`loss_function`, as verl's engine calls it, with the old log-probs taken from the model's output."""

    def loss(model_output: dict[str, torch.Tensor], data: TensorDict, dp_group: Any = None) -> tuple[Any, dict]:
        log_probs = model_output["log_probs"].detach()
        data[OLD] = response_from_nested(log_probs, data["response_mask"])
        if not tu.get_non_tensor_data(data, ENTROPY_IN_LOSS, default=None):
            model_output = {**model_output, "entropy": model_output["entropy"].detach()}
        value, metrics = loss_function(model_output=model_output, data=data, dp_group=dp_group)
        return value, {**metrics, **_gap(data)}

    return loss


def _gap(data: TensorDict) -> dict[str, Metric]:
    """Between the rollout's probabilities and the trainer's, under verl's names; means over all tokens of the batch."""
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
