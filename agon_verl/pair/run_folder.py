"""The metrics in a run's folder: `metrics.jsonl`, which verl's file logger writes with one line per step."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

METRICS = "metrics.jsonl"
Curve = dict[int, float]  # by step

_HELD_OUT = re.compile(r"val-core/(?P<source>.+?)(?:/(?P<way>\w+_to_\w+|\w+_alone))?/acc/mean@\d+")


@dataclass(frozen=True)
class Metrics:
    """The metrics of a run by step; step 0 is the validation before training."""

    by_step: dict[int, dict[str, float]]

    def curve(self, name: str) -> tuple[list[int], list[float]]:
        """The steps that logged `name`, and its values there. A value that is not finite is left out."""
        steps = [step for step in sorted(self.by_step) if isfinite(self.by_step[step].get(name, float("nan")))]
        return steps, [self.by_step[step][name] for step in steps]

    def mean_curve(self, names: Iterable[str]) -> Curve:
        """At each step the mean of those of `names` that it logged."""
        return mean_of(dict(zip(*self.curve(name), strict=True)) for name in names)

    def validations(self) -> dict[str, dict[str, str]]:
        """By data source and way of answering, the metric with its held-out accuracy."""
        by_source: dict[str, dict[str, str]] = {}
        for name in dict.fromkeys(name for step in sorted(self.by_step) for name in self.by_step[step]):
            if match := _HELD_OUT.fullmatch(name):
                by_source.setdefault(match["source"], {})[match["way"] or "alone"] = name  # stock verl has one way
        return by_source

    @property
    def last_step(self) -> int:
        return max(self.by_step, default=0)


def read_metrics(path: Path) -> Metrics:
    """The file may still be growing, or end in a torn line: a line that is not a record is skipped.

    Of a step that was run again after a stop, the last values count.
    """
    by_step: dict[int, dict[str, float]] = {}
    for line in path.read_text(errors="replace").split("\n")[:-1] if path.exists() else []:
        try:
            record = json.loads(line)
            step, data = int(record["step"]), record["data"].items()
        except (ValueError, TypeError, KeyError, AttributeError):
            continue
        by_step.setdefault(step, {}).update({k: float(v) for k, v in data if isinstance(v, int | float)})
    return Metrics(by_step)


def mean_of(curves: Iterable[Curve]) -> Curve:
    """At each step the mean of the curves that have it."""
    by_step: dict[int, list[float]] = {}
    for curve in curves:
        for step, value in curve.items():
            by_step.setdefault(step, []).append(value)
    return {step: sum(values) / len(values) for step, values in sorted(by_step.items())}
