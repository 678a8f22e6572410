"""Composing a recipe as verl's command does."""

from copy import deepcopy
from functools import cache
from pathlib import Path

import verl.trainer
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

CONFIG = Path(verl.trainer.__file__).parent / "config"


def composed(*overrides: str) -> DictConfig:
    return deepcopy(_composed(overrides))


@cache
def _composed(overrides: tuple[str, ...]) -> DictConfig:
    """Half a second each: fifty YAML files."""
    with initialize_config_dir(str(CONFIG), version_base=None):
        return compose("ppo_trainer", overrides=list(overrides))
