"""Alarms: messages about metrics that stay beyond a limit. `rules` is the table of them.

An alarm is raised when its metric was beyond the limit on `patience` updates in a row, of those that had the metric,
and again only after the metric has recovered. A value that is not finite counts as absent, except for the two gradient
alarms, which are about just that; the first of these is raised at once. So is an alarm whose rule has an `extreme`
when the metric is beyond that.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import Annotated, Any, Literal

import pydantic.dataclasses
from pydantic import BeforeValidator, ConfigDict, Field

from agon_verl.errors import ConfigError
from agon_verl.health.averages import Average
from agon_verl.health.rules import NAMES, RULES, AlarmRule

BEYOND: dict[str, Callable[[float, Any], bool]] = {
    "above": lambda value, limit: value > limit,
    "below": lambda value, limit: value < limit,
    "further from 0 than": lambda value, limit: abs(value) > limit,
    "not finite": lambda value, _: not isfinite(value),
}
STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
Name = Literal[NAMES]  # type: ignore[valid-type]
# As `recipes/recipe/agon.yaml` declares them, because Hydra refuses keys that a config lacks. An alarm without a limit
# is `true` there: null would turn it off.
DEFAULT_LIMITS = {rule.name: True if rule.limit is None else rule.limit for rule in RULES}


def _changed(limits: Any) -> Any:
    """Without the entries that only repeat a default."""
    if not isinstance(limits, dict):
        return limits  # refused next
    return {name: limit for name, limit in limits.items() if not _is_default(limit, DEFAULT_LIMITS.get(name))}


def _is_default(limit: Any, default: float | None) -> bool:
    if default is True:
        return limit is True  # 1 == True, but a limit of 1 is to be refused
    return limit is not None and limit == default


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class AlarmConfig:
    """`limits` replaces default limits by alarm, null turns one off; alarms in `stop` end the run, the others warn."""

    patience: Annotated[int, Field(ge=1)] = 5
    limits: Annotated[Mapping[Name, float | None], BeforeValidator(_changed)] = field(default_factory=dict)
    stop: tuple[Name, ...] = ("gradient_stuck",)

    def __post_init__(self) -> None:
        without_limit = [rule.name for rule in RULES if rule.limit is None]
        for name, limit in self.limits.items():
            if limit is None and name in self.stop:
                raise ConfigError(f"agon.alarms.stop has {name}, which agon.alarms.limits turns off: remove one")
            if limit is not None and name in without_limit:
                raise ConfigError(f"agon.alarms.limits.{name}={limit}: this alarm has no limit; null turns it off")


@dataclass(frozen=True, slots=True)
class Alarm:
    """An alarm raised in this step. `value` is what was compared with the limit, after `updates` in a row beyond it."""

    rule: AlarmRule
    metric: str
    value: float
    limit: float | None
    updates: int
    stop: bool

    @property
    def message(self) -> str:
        average = " (averaged)" if self.rule.averaged else ""
        limit = "" if self.limit is None else f" {self.limit:g}"
        times = "" if self.rule.at_once else f", for {self.updates} update{'s' * (self.updates > 1)} in a row"
        cause = f"{self.metric} = {self.value:.3g}{average}, {self.rule.side}{limit}{times}"
        return f"alarm {self.rule.name}: {cause}. {self.rule.meaning} Try: {self.rule.remedy}"


@dataclass(frozen=True, slots=True)
class MetricState:
    """What a rule remembers of one metric. The field names are keys of `trainer.pt`."""

    average: Average = Average()
    beyond: int = 0  # updates in a row
    sounded: bool = False


class Alarms:
    """Call `update` once per step, with all of its metrics."""

    def __init__(self, config: AlarmConfig, states: Mapping[str, MetricState] | None = None) -> None:
        self._config = config
        self._states = dict(states or {})

    def update(self, metrics: Mapping[str, float]) -> list[Alarm]:
        alarms = []
        for rule in RULES:
            limit = self._config.limits.get(rule.name, rule.limit)
            if limit is None and rule.name in self._config.limits:
                continue
            for metric in filter(rule.covers, metrics):
                if isfinite(metrics[metric]) or rule.side == "not finite":
                    alarms += self._compare(rule, metric, float(metrics[metric]), limit)
        return alarms

    def _compare(self, rule: AlarmRule, metric: str, value: float, limit: float | None) -> list[Alarm]:
        key = f"{rule.name} {metric}"
        before = self._states.get(key, MetricState())
        average = before.average.add(value) if rule.averaged else before.average
        value = average.value if rule.averaged else value
        beyond = before.beyond + 1 if BEYOND[rule.side](value, limit) else 0
        at_once = rule.at_once or (rule.extreme is not None and BEYOND[rule.side](value, rule.extreme))
        sounds = beyond >= (1 if at_once else self._config.patience) and not before.sounded
        self._states[key] = MetricState(average, beyond, sounds or (before.sounded and beyond > 0))
        return [Alarm(rule, metric, value, limit, beyond, rule.name in self._config.stop)] if sounds else []

    def state(self) -> dict[str, Any]:
        """Plain values for a checkpoint. Limits and patience are not among them: a resumed run may change them.

        An alarm that stops runs is raised again after a resume if its cause remains.
        """
        return {key: asdict(state) for key, state in self._states.items()}

    @classmethod
    def from_state(cls, config: AlarmConfig, state: Mapping[str, Any]) -> "Alarms":
        states = {
            key: MetricState(
                Average(**saved["average"]), saved["beyond"], saved["sounded"] and key.split()[0] not in config.stop
            )
            for key, saved in state.items()
        }
        return cls(config, states)
