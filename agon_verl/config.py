"""The `agon:` section of a run's config. The annotations and `__post_init__` are all of its checks."""

import json
from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any, Literal

from omegaconf import DictConfig, OmegaConf
from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter, ValidationError, with_config
from pydantic.dataclasses import dataclass
from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

from agon_verl.errors import ConfigError
from agon_verl.game.advantages import LiveBy
from agon_verl.game.domains import DOMAINS
from agon_verl.game.rewards import Rival, Stack
from agon_verl.game.roles import ADAPTERS, Adapter, Players, Rotation
from agon_verl.game.transcript import REASONING_TAGS
from agon_verl.game.withhold import Withhold
from agon_verl.health.alarms import STRICT, AlarmConfig

METHOD = ("rotation", "players", "reads", "rival", "reward", "tiebreak_weight")  # what a method of the paper sets
# What a run goes on with after a resume; the other settings may change on the way.
GAME = (*METHOD, "format_weight", "live_groups", "domain", "withhold", "reasoning_tags", "seed", "init_noise", "init")

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


def _top_k(value: int) -> int:
    if value != -1 and value < 1:
        raise ConfigError(f"agon.challenge_sampling.top_k={value}: use 1 or more, or -1 for all tokens")
    return value


@with_config(STRICT)
class ChallengeSampling(TypedDict, total=False):
    """Replaces the sampling parameters of the rollout for challenges; vLLM refuses 16.0 for a whole number.

    A temperature of 0 has no log-probs to train on: logits are divided by it.
    """

    temperature: Annotated[float, Field(gt=0)]
    top_p: Annotated[float, Field(gt=0, le=1)]
    top_k: Annotated[int, AfterValidator(_top_k)]
    max_tokens: Annotated[int, Field(ge=1)]


def _without_nulls(section: Any) -> Any:
    """The recipe declares every parameter, as Hydra requires; null leaves it as the rollout has it."""
    if not isinstance(section, dict):
        return section  # refused next
    return {name: value for name, value in section.items() if value is not None}


@dataclass(frozen=True, config=STRICT)
class AgonConfig:
    """The game's settings; `recipes/recipe/agon.yaml` explains each one."""

    rotation: Rotation = "alternate"
    players: Players = "pair"
    reads: Literal["summary", "nothing"] = "summary"
    rival: Rival = "own"
    reward: Stack = "adv"
    format_weight: Weight = 0.5
    live_groups: LiveBy = "reward"
    tiebreak_weight: Weight = 0.0
    domain: Literal[tuple(DOMAINS)] = "math"  # type: ignore[valid-type]
    withhold: Withhold = "announced"
    reasoning_tags: tuple[Tag, Tag] = REASONING_TAGS
    challenge_sampling: Annotated[ChallengeSampling, BeforeValidator(_without_nulls)] = field(
        default_factory=ChallengeSampling
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
    engine_timeout: Annotated[float, Field(gt=0)] = 600.0
    trust_checkpoint: bool = False
    streamed: bool = True

    def __post_init__(self) -> None:
        alone, share = self.players == "one", self.opponent.share
        conflicts = {
            "agon.rival=shared is for a hidden opponent: set agon.reads=nothing": (
                self.rival == "shared" and self.reads != "nothing"
            ),
            f"agon.opponent.share={share} needs a rival: set agon.players=pair": alone and share > 0,
            f"agon.frozen={list(self.frozen)} leaves no player to train": (
                set(self.frozen) >= ({ADAPTERS[0]} if alone else set(ADAPTERS))
            ),
            "agon.challenge_sampling.temperature needs agon.players=pair: one player's update has one temperature": (
                alone and "temperature" in self.challenge_sampling
            ),
        }
        for message, conflict in conflicts.items():
            if conflict:
                raise ConfigError(message)

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


def gpus_per_replica(rollout: DictConfig) -> int:
    """Of one vLLM engine, from verl's `actor_rollout_ref.rollout`."""
    return rollout.tensor_model_parallel_size * rollout.data_parallel_size * rollout.pipeline_model_parallel_size


def _sentence(error: ValidationError) -> str:
    """The first error, as `agon.reward=sum: Input should be 'coop', 'adv' or 'margin'`."""
    first = error.errors()[0]
    name = ".".join(["agon", *(str(part) for part in first["loc"] if part != "[key]")])
    if first["type"] == "value_error":
        return str(first["ctx"]["error"])
    if first["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        return f"{name} is not a setting: recipes/recipe/agon.yaml lists them"
    return f"{name}={first['input']}: {first['msg']}"
