"""Alarms: a metric that has been beyond its limit for long enough, in words. `watches` is the table of them.

An alarm sounds when its metric has been beyond the limit on `patience` updates in a row, of those in which the metric
was present, and again only after it has come back. A metric that is not finite counts as absent, except for the
gradients' alarms, which are about just that and of which the first sounds at once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import Any

from agon_verl.health.averages import Average
from agon_verl.health.watches import NAMES, WATCHES, Watch

BEYOND: dict[str, Callable[[float, Any], bool]] = {
    "above": lambda value, limit: value > limit,
    "below": lambda value, limit: value < limit,
    "further from 0 than": lambda value, limit: abs(value) > limit,
    "not finite": lambda value, _: not isfinite(value),
}


@dataclass(frozen=True)
class AlarmConfig:
    """`limits` replaces defaults by alarm, and None switches one off; alarms in `stop` end the run, others warn."""

    patience: int = 5
    limits: Mapping[str, float | None] = field(default_factory=dict)
    stop: Sequence[str] = ("gradient_stuck",)

    def __post_init__(self) -> None:
        if type(self.patience) is not int or self.patience < 1:
            raise ValueError(f"patience={self.patience} must be a whole number of updates, at least 1")
        if not isinstance(self.limits, Mapping):
            raise ValueError(f"limits={self.limits} must map alarms to limits, as in {{damage: 0.95}}")
        if isinstance(self.stop, str) or not isinstance(self.stop, Sequence):
            raise ValueError(f"stop={self.stop} must be a list of alarms, as in [{NAMES[0]}]")
        for key, names in (("limits", self.limits), ("stop", self.stop)):
            for name in names:
                if name not in NAMES:
                    raise ValueError(f"{key} names {name}, which is no alarm: use {', '.join(NAMES)}")
        bare = [watch.name for watch in WATCHES if watch.limit is None]
        for name, limit in self.limits.items():
            if limit is None and name in self.stop:
                raise ValueError(f"stop names {name}, which limits switches off: take it out of one of them")
            if limit is not None and name in bare:
                raise ValueError(f"limits.{name}={limit}: this alarm has no limit, only null to switch it off")
            if limit is not None and (type(limit) not in (int, float) or not isfinite(limit)):
                raise ValueError(f"limits.{name}={limit} must be a number, or null to switch the alarm off")
        object.__setattr__(self, "stop", tuple(self.stop))  # a list in YAML


@dataclass(frozen=True, slots=True)
class Alarm:
    """One that sounds now. `value` is what was compared with the limit, after `updates` in a row beyond it."""

    watch: Watch
    metric: str
    value: float
    limit: float | None
    updates: int
    stop: bool

    @property
    def message(self) -> str:
        average = " (averaged)" if self.watch.averaged else ""
        limit = "" if self.limit is None else f" {self.limit:g}"
        times = "" if self.watch.at_once else f", for {self.updates} update{'s' * (self.updates > 1)} in a row"
        seen = f"{self.metric} = {self.value:.3g}{average}, {self.watch.side}{limit}{times}"
        return f"alarm {self.watch.name}: {seen}. {self.watch.means} Try: {self.watch.remedy}"


@dataclass(frozen=True, slots=True)
class Followed:
    """What an alarm remembers of a metric."""

    average: Average = Average()
    beyond: int = 0  # updates in a row
    sounded: bool = False


class Alarms:
    """Call `update` once a step, with all of its metrics."""

    def __init__(self, config: AlarmConfig, followed: Mapping[str, Followed] | None = None) -> None:
        self._config = config
        self._followed = dict(followed or {})

    def update(self, metrics: Mapping[str, float]) -> list[Alarm]:
        alarms = []
        for watch in WATCHES:
            limit = self._config.limits.get(watch.name, watch.limit)
            if limit is None and watch.name in self._config.limits:
                continue
            for metric in watch.metrics:
                if metric in metrics and (isfinite(metrics[metric]) or watch.side == "not finite"):
                    alarms += self._look(watch, metric, float(metrics[metric]), limit)
        return alarms

    def _look(self, watch: Watch, metric: str, value: float, limit: float | None) -> list[Alarm]:
        key = f"{watch.name} {metric}"
        before = self._followed.get(key, Followed())
        average = before.average.add(value) if watch.averaged else before.average
        value = average.value if watch.averaged else value
        beyond = before.beyond + 1 if BEYOND[watch.side](value, limit) else 0
        sounds = beyond >= (1 if watch.at_once else self._config.patience) and not before.sounded
        self._followed[key] = Followed(average, beyond, sounds or (before.sounded and beyond > 0))
        return [Alarm(watch, metric, value, limit, beyond, watch.name in self._config.stop)] if sounds else []

    def state(self) -> dict[str, Any]:
        """Plain values for a checkpoint. Limits and patience are not among them: a resumed run may change them.

        An alarm that stops runs sounds again after a resume, if it still has reason to.
        """
        return {key: asdict(followed) for key, followed in self._followed.items()}

    @classmethod
    def from_state(cls, config: AlarmConfig, state: Mapping[str, Any]) -> "Alarms":
        followed = {
            key: Followed(
                Average(**saved["average"]), saved["beyond"], saved["sounded"] and key.split()[0] not in config.stop
            )
            for key, saved in state.items()
        }
        return cls(config, followed)
