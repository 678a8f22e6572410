"""Composing a recipe as verl's command does."""

from pathlib import Path

import verl.trainer
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

CONFIG = Path(verl.trainer.__file__).parent / "config"


def composed(*overrides: str) -> DictConfig:
    with initialize_config_dir(str(CONFIG), version_base=None):
        return compose("ppo_trainer", overrides=list(overrides))
