"""The `agon:` section of a run's config, checked where it is read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from omegaconf import DictConfig, OmegaConf

from agon_verl.errors import ConfigError
from agon_verl.game.rewards import RIVALS, STACKS
from agon_verl.game.roles import ADAPTERS, PLAYERS, ROTATIONS
from agon_verl.game.withhold import DOMAINS
from agon_verl.health.alarms import AlarmConfig

SAMPLING = ("temperature", "top_p", "top_k", "max_tokens")
OPPONENTS = ("snapshot", "base")
READS = ("summary", "nothing")


METHOD = ("rotation", "players", "reads", "rival", "reward", "tiebreak_weight")  # what a method of the paper sets


@dataclass(frozen=True)
class Opponent:
    """Whose drafts challengers read for a share of the problems, in place of the live rival's."""

    share: float = 0.0
    source: str = "snapshot"
    every: int = 10

    def __post_init__(self) -> None:
        _one_of("agon.opponent.source", self.source, OPPONENTS)
        if not 0 <= self.share < 1:
            raise ConfigError(f"agon.opponent.share={self.share} must lie in [0, 1): the live rival has to learn too")
        if self.every < 1:
            raise ConfigError(f"agon.opponent.every={self.every} must be at least 1 step")

    @property
    def snapshots(self) -> bool:
        return self.share > 0 and self.source == "snapshot"


@dataclass(frozen=True)
class AgonConfig:
    """The game's settings; the recipes say what each one does."""

    rotation: str = "alternate"
    players: str = "pair"
    reads: str = "summary"
    rival: str = "own"
    reward: str = "adv"
    format_weight: float = 0.5
    tiebreak_weight: float = 0.0
    domain: str = "math"
    reasoning_tags: tuple[str, str] = ("<think>", "</think>")
    challenge_sampling: Mapping[str, float] = field(default_factory=dict)
    min_summary_tokens: int = 32
    init_noise: float = 0.01
    seed: int = 0
    init: Mapping[str, str | None] = field(default_factory=lambda: dict.fromkeys(ADAPTERS))
    lr: Mapping[str, float | None] = field(default_factory=lambda: dict.fromkeys(ADAPTERS))
    frozen: Sequence[str] = ()
    opponent: Opponent = field(default_factory=Opponent)
    alarms: AlarmConfig = field(default_factory=AlarmConfig)
    self_check: bool = True
    reward_timeout: float = 90.0
    max_failed: float = 0.1

    def __post_init__(self) -> None:
        _one_of("agon.rotation", self.rotation, ROTATIONS)
        _one_of("agon.players", self.players, PLAYERS)
        _one_of("agon.reads", self.reads, READS)
        _one_of("agon.rival", self.rival, RIVALS)
        _one_of("agon.reward", self.reward, STACKS)
        _one_of("agon.domain", self.domain, DOMAINS)
        if self.rival == "shared" and self.reads != "nothing":
            raise ConfigError("agon.rival=shared is a hidden opponent's: set agon.reads=nothing")
        if self.players == "one" and self.opponent.share > 0:
            raise ConfigError(f"agon.opponent.share={self.opponent.share} needs a rival: set agon.players=pair")
        if self.players == "one" and "A" in self.frozen:
            raise ConfigError("agon.frozen holds A, the only player: nothing would be trained")
        if self.players == "one" and "temperature" in self.challenge_sampling:
            raise ConfigError(
                "agon.challenge_sampling.temperature: one player's update has one temperature; leave it out"
            )
        for name in self.challenge_sampling:
            _one_of("agon.challenge_sampling", name, SAMPLING)
        for name in ("format_weight", "tiebreak_weight", "min_summary_tokens"):
            if getattr(self, name) < 0:
                raise ConfigError(f"agon.{name}={getattr(self, name)} must not be negative")
        for name in ("init", "lr"):
            for adapter in getattr(self, name):
                _one_of(f"agon.{name}", adapter, ADAPTERS)
        for adapter in self.frozen:
            _one_of("agon.frozen", adapter, ADAPTERS)
        if len(set(self.frozen)) == len(ADAPTERS):
            raise ConfigError(f"agon.frozen={list(self.frozen)} leaves nothing to train: freeze one adapter at most")
        if self.reward_timeout <= 0:
            raise ConfigError(f"agon.reward_timeout={self.reward_timeout} must be above 0 seconds")
        if not 0 <= self.max_failed < 1:
            raise ConfigError(f"agon.max_failed={self.max_failed} must be a share of the pairs in [0, 1)")
        if self.init_noise <= 0:
            raise ConfigError(f"agon.init_noise={self.init_noise} must be above 0, or A and B start as one policy")
        if len(self.reasoning_tags) != 2 or not all(self.reasoning_tags):
            raise ConfigError(f"agon.reasoning_tags={list(self.reasoning_tags)} must name an opening and a closing tag")

    @property
    def one_group(self) -> bool:
        """One adapter on one prompt: all its rollouts of a problem are one group, as in plain GRPO."""
        return self.players == "one" and self.reads == "nothing"

    @property
    def method(self) -> dict[str, Any]:
        """Plain values, which travel with each problem: the trainer alone decides what is played."""
        return {name: getattr(self, name) for name in METHOD}

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
        for name in ("reasoning_tags", "frozen"):
            values[name] = tuple(values.get(name, getattr(cls, name)))
        for name in values.get("opponent", {}):
            _one_of("agon.opponent", name, [f.name for f in fields(Opponent)])
        values["opponent"] = Opponent(**values.get("opponent", {}))
        values["alarms"] = _alarms(values.get("alarms", {}))
        return cls(**values)


def _alarms(values: Any) -> AlarmConfig:
    if not isinstance(values, dict):
        raise ConfigError(f"agon.alarms={values} must be a section: patience, limits and stop")
    for name in values:
        _one_of("agon.alarms", name, [f.name for f in fields(AlarmConfig)])
    try:
        return AlarmConfig(**values)
    except ValueError as error:
        raise ConfigError(f"agon.alarms.{error}") from None


def _one_of(name: str, value: Any, known: Any) -> None:
    if value not in known:
        raise ConfigError(f"{name}={value} is unknown: use one of {', '.join(known)}")
