"""The direction of a pair's cascade: which adapter drafts and which one answers, chosen by validation accuracy."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agon_verl.game.roles import directions

DIRECTIONS = tuple(f"{drafter}_to_{challenger}" for drafter, challenger in directions("pair"))

_ACCURACY = re.compile(rf"val-core/(?P<source>.+)/(?P<direction>{'|'.join(DIRECTIONS)})/(?P<name>acc/mean@\d+)")


@dataclass(frozen=True)
class Cascade:
    """The direction, if there is one, and why it was chosen; `accuracy` is the mean over the validation's sources."""

    direction: str | None
    why: str
    accuracy: Mapping[str, float] | None


def choose(metrics: Mapping[str, Any], direction: str | None = None) -> Cascade:
    """The direction with the higher accuracy, unless the caller names one.

    Data sources have equal weight. A source counts only if both directions were measured on it.
    """
    measured: dict[tuple[str, str], dict[str, float]] = {}
    for name, value in finite(metrics).items():
        if match := _ACCURACY.fullmatch(name):
            measured.setdefault((match["source"], match["name"]), {})[match["direction"]] = value
    both = [values for values in measured.values() if len(values) == len(DIRECTIONS)]
    accuracy = {d: sum(values[d] for values in both) / len(both) for d in DIRECTIONS} if both else None
    if direction is not None:
        return Cascade(direction, "given", accuracy)
    if accuracy is None:
        return Cascade(None, "the checkpoint holds no validation accuracy of both directions", None)
    a, b = (accuracy[d] for d in DIRECTIONS)
    why = "the higher validation accuracy" if a != b else "the first, for the validation accuracies are equal"
    return Cascade(DIRECTIONS[0] if a >= b else DIRECTIONS[1], why, accuracy)


def finite(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Without NaN and infinity, which JSON does not have, and without values that were stored as strings."""
    return {name: v for name, v in metrics.items() if isinstance(v, (int, float)) and math.isfinite(v)}
