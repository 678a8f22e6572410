"""The `agon:` section of a run's config, checked where it is read."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from omegaconf import DictConfig, OmegaConf

from agon_verl.game.rewards import STACKS
from agon_verl.game.roles import ROTATIONS
from agon_verl.game.withhold import DOMAINS

SAMPLING = ("temperature", "top_p", "top_k", "max_tokens")


class ConfigError(ValueError):
    """One sentence: the field, its value, the fix."""


@dataclass(frozen=True)
class AgonConfig:
    """The game's settings; the recipes say what each one does."""

    rotation: str = "alternate"
    reward: str = "adv"
    format_weight: float = 0.5
    tiebreak_weight: float = 0.0
    domain: str = "math"
    reasoning_tags: tuple[str, str] = ("<think>", "</think>")
    challenge_sampling: Mapping[str, float] = field(default_factory=dict)
    min_summary_tokens: int = 32
    init_noise: float = 0.01
    seed: int = 0

    def __post_init__(self) -> None:
        _one_of("agon.rotation", self.rotation, ROTATIONS)
        _one_of("agon.reward", self.reward, STACKS)
        _one_of("agon.domain", self.domain, DOMAINS)
        for name in self.challenge_sampling:
            _one_of("agon.challenge_sampling", name, SAMPLING)
        for name in ("format_weight", "tiebreak_weight", "min_summary_tokens"):
            if getattr(self, name) < 0:
                raise ConfigError(f"agon.{name}={getattr(self, name)} must not be negative")
        if self.init_noise <= 0:
            raise ConfigError(f"agon.init_noise={self.init_noise} must be above 0, or A and B start as one policy")
        if len(self.reasoning_tags) != 2 or not all(self.reasoning_tags):
            raise ConfigError(f"agon.reasoning_tags={list(self.reasoning_tags)} must name an opening and a closing tag")

    @classmethod
    def read(cls, config: DictConfig) -> "AgonConfig":
        """From a whole run's config."""
        section = config.get("agon")
        if section is None:
            raise ConfigError("the config has no section agon: start from +recipe=agon or +recipe=agon_cpu")
        values: dict[str, Any] = OmegaConf.to_container(section, resolve=True)  # type: ignore[assignment]
        known = [f.name for f in fields(cls)]
        for name in values:
            _one_of("agon", name, known)
        return cls(**{**values, "reasoning_tags": tuple(values.get("reasoning_tags", cls.reasoning_tags))})


def _one_of(name: str, value: Any, known: Any) -> None:
    if value not in known:
        raise ConfigError(f"{name}={value} is unknown: use one of {', '.join(known)}")
