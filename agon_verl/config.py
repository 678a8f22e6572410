"""The `agon:` section of a run's config. The annotations and the tables below are all of its checks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from omegaconf import DictConfig, OmegaConf

from agon_verl.errors import ConfigError
from agon_verl.game.domains import DOMAINS
from agon_verl.game.rewards import Rival, Stack
from agon_verl.game.roles import ADAPTERS, Players, Rotation, directions
from agon_verl.game.transcript import REASONING_TAGS
from agon_verl.health.alarms import AlarmConfig
from agon_verl.settings import Rule, check_fields, load, one_of

METHOD = ("rotation", "players", "reads", "rival", "reward", "tiebreak_weight")  # what a method of the paper sets

SamplingName = Literal["temperature", "top_p", "top_k", "max_tokens"]
Adapter = Annotated[str, one_of(ADAPTERS)]
Weight = Annotated[float, Rule(lambda value: value >= 0, "must not be negative")]
Share = Annotated[float, Rule(lambda value: 0 <= value < 1, "must be a share in [0, 1)")]


@dataclass(frozen=True)
class Opponent:
    """Whose drafts challengers read for a share of the problems, in place of the live rival's."""

    share: Share = 0.0
    source: Literal["snapshot", "base"] = "snapshot"
    every: Annotated[int, Rule(lambda steps: steps >= 1, "must be at least 1 step")] = 10

    def __post_init__(self) -> None:
        check_fields(self, "agon.opponent")

    @property
    def snapshots(self) -> bool:
        return self.share > 0 and self.source == "snapshot"


@dataclass(frozen=True)
class AgonConfig:
    """The game's settings; `recipes/recipe/agon.yaml` explains each one."""

    rotation: Rotation = "alternate"
    players: Players = "pair"
    reads: Literal["summary", "nothing"] = "summary"
    rival: Rival = "own"
    reward: Stack = "adv"
    format_weight: Weight = 0.5
    tiebreak_weight: Weight = 0.0
    domain: Annotated[str, one_of(DOMAINS)] = "math"
    reasoning_tags: Annotated[tuple[str, str], Rule(all, "must be an opening and a closing tag")] = REASONING_TAGS
    challenge_sampling: Mapping[SamplingName, float] = field(default_factory=dict)
    min_summary_tokens: Annotated[int, Rule(lambda tokens: tokens >= 0, "must not be negative")] = 32
    init_noise: Annotated[float, Rule(lambda std: std > 0, "must be above 0, or both adapters start equal")] = 0.01
    seed: int = 0
    init: Mapping[Adapter, str | None] = field(default_factory=lambda: dict.fromkeys(ADAPTERS))
    lr: Mapping[Adapter, float | None] = field(default_factory=lambda: dict.fromkeys(ADAPTERS))
    frozen: Sequence[Adapter] = ()
    opponent: Opponent = field(default_factory=Opponent)
    alarms: AlarmConfig = field(default_factory=AlarmConfig)
    self_check: bool = True
    reward_timeout: Annotated[float, Rule(lambda seconds: seconds > 0, "must be above 0 seconds")] = 90.0
    max_failed: Share = 0.1

    def __post_init__(self) -> None:
        check_fields(self, "agon")
        for conflict, message in CONFLICTS:
            if conflict(self):
                raise ConfigError(message.format(self))

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
        """From the complete config of a run."""
        section = config.get("agon")
        if section is None:
            raise ConfigError("the config has no section agon: start from +recipe=agon or +recipe=agon_cpu")
        return load(cls, "agon", OmegaConf.to_container(section, resolve=True))


_PLAYER = directions("one")[0].drafter
CONFLICTS: tuple[tuple[Callable[[AgonConfig], bool], str], ...] = (
    (
        lambda game: game.rival == "shared" and game.reads != "nothing",
        "agon.rival=shared is for a hidden opponent: set agon.reads=nothing",
    ),
    (
        lambda game: game.players == "one" and game.opponent.share > 0,
        "agon.opponent.share={0.opponent.share} needs a rival: set agon.players=pair",
    ),
    (
        lambda game: game.players == "one" and _PLAYER in game.frozen,
        f"agon.frozen contains {_PLAYER}, the only player: nothing would be trained",
    ),
    (
        lambda game: game.players == "one" and "temperature" in game.challenge_sampling,
        "agon.challenge_sampling.temperature cannot be set with agon.players=one, whose update has one temperature",
    ),
    (
        lambda game: set(game.frozen) == set(ADAPTERS),
        "agon.frozen contains every adapter: leave one to train",
    ),
)
