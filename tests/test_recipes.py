"""Every shipped YAML composes onto verl's own config, holds the paper's values, and leaves every field open."""

from pathlib import Path

import pytest
from omegaconf import OmegaConf
from verl.utils.config import omega_conf_to_dataclass

import recipes
from agon_verl.config import AgonConfig
from agon_verl.optim import LinearOptimizerConfig, linear_decay
from agon_verl.preflight import check_settings
from tests.recipes import composed

NAMES = sorted(path.stem for path in (Path(recipes.__file__).parent / "recipe").glob("*.yaml"))


@pytest.mark.parametrize("name", NAMES)
def test_recipe_composes_and_passes_the_checks(name: str) -> None:
    config = composed(f"+recipe={name}")
    assert config.trainer.v1.trainer_mode == "agon"
    check_settings(config)
    OmegaConf.resolve(config)
    assert AgonConfig.read(config) == AgonConfig()  # the dataclass's defaults and the recipe's are the same settings


def test_the_papers_setting() -> None:
    config = composed("+recipe=agon")
    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    assert rollout.n == 8
    assert config.actor_rollout_ref.model.lora_rank == 16
    assert (actor.optim.lr, actor.optim.lr_scheduler_type, actor.optim.lr_warmup_steps_ratio) == (5e-5, "linear", 0.1)
    assert config.trainer.total_epochs == 1
    assert config.agon.format_weight == 0.5
    assert config.data.max_response_length == 15 * 1024
    assert (rollout.val_kwargs.temperature, rollout.val_kwargs.top_p, rollout.val_kwargs.n) == (0.6, 0.95, 1)
    assert actor.ppo_mini_batch_size == config.data.train_batch_size


def test_any_verl_field_can_still_be_overridden() -> None:
    config = composed(
        "+recipe=agon_cpu", "actor_rollout_ref.rollout.n=4", "data.train_batch_size=2", "agon.reward=coop"
    )
    assert (config.actor_rollout_ref.rollout.n, config.actor_rollout_ref.actor.ppo_mini_batch_size) == (4, 2)
    assert AgonConfig.read(config).reward == "coop"


def test_optimizer_config_is_verls_with_linear_decay() -> None:
    optim = omega_conf_to_dataclass(composed("+recipe=agon").actor_rollout_ref.actor).optim
    assert isinstance(optim, LinearOptimizerConfig)
    assert optim.lr_scheduler_type == "linear"


def test_linear_decay_by_hand() -> None:
    # 10 steps, 2 of warm-up: 1/2, 2/2, then 8/8 down to 1/8; 0 only after the last.
    rates = [linear_decay(step, warmup=2, total=10) for step in range(11)]
    assert rates == pytest.approx([0.5, 1, 1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8, 0])


def test_linear_decay_without_warm_up_starts_at_the_peak() -> None:
    assert [linear_decay(step, warmup=0, total=2) for step in range(3)] == [1.0, 0.5, 0.0]
