"""verl's own loss with the settings of the recipes: what a token weighs."""

import pytest
import torch
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.utils.losses import ppo_loss

from agon_verl.errors import ConfigError
from agon_verl.trainer.preflight import check_settings
from tests.recipes import composed

PROMPT = 3
DR_GRPO = ("+recipe=agon", "actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-sum-norm")


def weights(lengths: list[int], *overrides: str) -> list[float]:
    """What the loss of a micro-batch of completions with these lengths gives to a token of each: its gradient."""
    actor = omega_conf_to_dataclass(composed(*overrides).actor_rollout_ref.actor)

    def nested(values: list[torch.Tensor]) -> torch.Tensor:
        return torch.nested.as_nested_tensor(values, layout=torch.jagged)

    log_probs = [torch.full((PROMPT + length,), -1.0, requires_grad=True) for length in lengths]
    responses = {
        "prompts": nested([torch.ones(PROMPT, dtype=torch.long) for _ in lengths]),
        "responses": nested([torch.ones(length, dtype=torch.long) for length in lengths]),
        "response_mask": nested([torch.ones(length, dtype=torch.long) for length in lengths]),
        "old_log_probs": nested([torch.full((length,), -1.0) for length in lengths]),
        "advantages": nested([torch.ones(length) for length in lengths]),
    }
    data = TensorDict({"input_ids": nested([row.detach() for row in log_probs]), **responses}, batch_size=len(lengths))
    tu.assign_non_tensor(data, dp_size=1, batch_num_tokens=None, global_batch_size=4)
    loss, _ = ppo_loss(actor, {"log_probs": nested(log_probs)}, data)
    loss.backward()
    return [-float(row.grad[PROMPT]) for row in log_probs]  # type: ignore[index]


def test_with_dr_grpo_a_token_weighs_the_same_in_every_micro_batch() -> None:
    """Rows are sorted by length, so micro-batches differ in width: here by 8 times."""
    short, long = weights([10, 8], *DR_GRPO), weights([80, 76], *DR_GRPO)
    assert short + long == pytest.approx([1 / (4 * 15360)] * 4)  # by sequences, then by the longest possible response


def test_its_divisor_can_be_set() -> None:
    assert weights([10], *DR_GRPO, "actor_rollout_ref.actor.loss_scale_factor=100") == pytest.approx([1 / 400])


def test_dividing_by_the_width_of_a_micro_batch_is_refused() -> None:
    width = "actor_rollout_ref.actor.loss_scale_factor=null"
    assert weights([10], *DR_GRPO, width) != pytest.approx(weights([80], *DR_GRPO, width))
    with pytest.raises(ConfigError, match=r"^actor_rollout_ref.actor.loss_scale_factor=null: .*use \$\{data.max_resp"):
        check_settings(composed(*DR_GRPO, width))
    check_settings(composed("+recipe=agon", width))  # no other aggregation reads it
