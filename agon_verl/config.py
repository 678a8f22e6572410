"""The `agon:` section of a run's config. The annotations and the table below are all of its checks."""

import json
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Annotated, Any, Literal

from omegaconf import DictConfig, OmegaConf
from pydantic import AfterValidator, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from agon_verl.errors import ConfigError
from agon_verl.game.domains import DOMAINS
from agon_verl.game.rewards import Rival, Stack
from agon_verl.game.roles import ADAPTERS, Adapter, Players, Rotation, directions
from agon_verl.game.transcript import REASONING_TAGS
from agon_verl.health.alarms import STRICT, AlarmConfig, one_of

METHOD = ("rotation", "players", "reads", "rival", "reward", "tiebreak_weight")  # what a method of the paper sets

Tag = Annotated[str, Field(min_length=1)]
Weight = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, lt=1)]


@dataclass(frozen=True, config=STRICT)
class Opponent:
    """Whose drafts challengers read for a share of the problems, in place of the live rival's."""

    share: Share = 0.0
    source: Literal["snapshot", "base"] = "snapshot"
    every: Annotated[int, Field(ge=1)] = 10

    @property
    def snapshots(self) -> bool:
        return self.share > 0 and self.source == "snapshot"


@dataclass(frozen=True, config=STRICT)
class AgonConfig:
    """The game's settings; `recipes/recipe/agon.yaml` explains each one."""

    rotation: Rotation = "alternate"
    players: Players = "pair"
    reads: Literal["summary", "nothing"] = "summary"
    rival: Rival = "own"
    reward: Stack = "adv"
    format_weight: Weight = 0.5
    tiebreak_weight: Weight = 0.0
    domain: Annotated[str, AfterValidator(one_of(DOMAINS))] = "math"
    reasoning_tags: tuple[Tag, Tag] = REASONING_TAGS
    challenge_sampling: Mapping[Literal["temperature", "top_p", "top_k", "max_tokens"], float] = field(
        default_factory=dict
    )
    min_summary_tokens: Annotated[int, Field(ge=0)] = 32
    init_noise: Annotated[float, Field(gt=0)] = 0.01  # at 0 both adapters would start equal
    seed: int = 0
    init: Mapping[Adapter, str | None] = field(default_factory=lambda: dict.fromkeys(ADAPTERS))
    lr: Mapping[Adapter, float | None] = field(default_factory=lambda: dict.fromkeys(ADAPTERS))
    frozen: tuple[Adapter, ...] = ()
    opponent: Opponent = field(default_factory=Opponent)
    alarms: AlarmConfig = field(default_factory=AlarmConfig)
    self_check: bool = True
    reward_timeout: Annotated[float, Field(gt=0)] = 90.0
    max_failed: Share = 0.1

    def __post_init__(self) -> None:
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
        try:  # as JSON, where lists and sections are accepted for tuples and dataclasses even in strict mode
            return TypeAdapter(cls).validate_json(json.dumps(OmegaConf.to_container(section, resolve=True)))
        except ValidationError as error:
            raise ConfigError(_sentence(error)) from None


def _sentence(error: ValidationError) -> str:
    """The first error, as `agon.reward=sum: Input should be 'coop', 'adv' or 'margin'`."""
    first = error.errors()[0]
    name = ".".join(["agon", *(str(part) for part in first["loc"] if part != "[key]")])
    if first["type"] == "value_error":
        return str(first["ctx"]["error"]).format(name)
    if first["type"] == "unexpected_keyword_argument":
        return f"{name} is not a setting: recipes/recipe/agon.yaml lists them"
    return f"{name}={first['input']}: {first['msg']}"


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
