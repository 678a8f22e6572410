"""Whether the two adapters still are two: how far they fail together, repeat each other, and drift from their start.

The paper reports accuracies. These are ours, because a pair can collapse into one policy while accuracy still rises:
it shows first in errors that coincide (`error_correlation`), in wrong answers and wrong solutions that are taken over
(`wrong_answer_kept`, `copy_of_wrong`) and in `health/distance`, the gap between the adapters' weights, which is
computed where the weights are.

As in `statistics`, right means c = 1 and a conditional without a case is left out. Guests' drafts count wherever the
challenger is judged, and not in the drafter's dead groups.

    error_correlation = (P(both wrong) - e_a e_b) / (min(e_a, e_b) - e_a e_b)

is 0 for independent errors and 1 where one is wrong wherever the other is. It has no value when either is always
right or always wrong. Problems differ in difficulty, which alone makes it positive. Below 0 it is not bounded by -1
(error rates of 0.9 and 0.1 reach -9); scaled this way its mean over steps stays 0 for independent errors.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite, nan
from typing import Any

from agon_verl.game.roles import ADAPTERS
from agon_verl.health.averages import Average
from agon_verl.health.pair_statistics import Pair, dead_groups, known, mean, right

COPIED = 0.8  # a copied share that makes a challenge a copy: at most every thirtieth word is changed (`copying`)
# Values that a trend starts from: two steps of each role for an entropy, four drafts for a length. Few, since the
# start is what collapse is measured against. `Average` is a plain mean for that long.
FIRST = 4
_NO_ROOM = 1e-9


def health_metrics(pairs: Sequence[Pair]) -> dict[str, float]:
    """One step's pairs. `copy_of_wrong` is what to watch: repeating a right draft is how a right solution can look."""
    if not pairs:
        return {}
    wrong = [p for p in pairs if not right(p.draft)]
    both_wrong = [p for p in wrong if not right(p.challenge)]
    metrics = {
        **_errors([not right(p.draft) for p in pairs], [not right(p.challenge) for p in pairs]),
        "gain": (len(wrong) - sum(not right(p.challenge) for p in pairs)) / len(pairs),
        "agreement": _same(pairs),
        "same_wrong_answer": _same(both_wrong),
        "wrong_answer_kept": _same(wrong),
        "copy": mean([p.copied >= COPIED for p in pairs]),
        "copy_of_wrong": mean([p.copied >= COPIED for p in wrong]),
        "leak": mean([p.leaked for p in pairs]),
        "dead_groups": dead_groups(pairs),
    }
    return {f"health/{name}": value for name, value in known(metrics).items()}


def validation_health(a_right: Sequence[bool | float], b_right: Sequence[bool | float]) -> dict[str, float]:
    """Each adapter alone on the same problems in the same order; one c a problem."""
    if len(a_right) != len(b_right):
        raise ValueError(f"{len(a_right)} verdicts on A and {len(b_right)} on B: give one a problem, in one order")
    if not a_right:
        return {}
    a_wrong, b_wrong = [c < 1.0 for c in a_right], [c < 1.0 for c in b_right]
    metrics = {
        **_errors(a_wrong, b_wrong),
        "agreement": mean([a == b for a, b in zip(a_wrong, b_wrong, strict=True)]),
        "strength_gap": (sum(a_right) - sum(b_right)) / len(a_right),
    }
    return {f"health/val/{name}": value for name, value in known(metrics).items()}


def cascade_health(draft_right: Sequence[float], final_right: Sequence[float]) -> dict[str, float]:
    """Conversion and damage of one direction's cascades; what has no case is left out."""
    stages = [(draft >= 1.0, final >= 1.0) for draft, final in zip(draft_right, final_right, strict=True)]
    metrics = {
        "conversion": mean([final for draft, final in stages if not draft]),
        "damage": mean([not final for draft, final in stages if draft]),
    }
    return known(metrics)


def _errors(a_wrong: Sequence[bool], b_wrong: Sequence[bool]) -> dict[str, float | None]:
    e_a, e_b = sum(a_wrong) / len(a_wrong), sum(b_wrong) / len(b_wrong)
    overlap = sum(a and b for a, b in zip(a_wrong, b_wrong, strict=True)) / len(a_wrong)
    independent = e_a * e_b
    room = min(e_a, e_b) - independent
    return {
        "error_overlap": overlap,
        "error_overlap_if_independent": independent,
        "error_correlation": (overlap - independent) / room if room > _NO_ROOM else None,
    }


def _same(pairs: Sequence[Pair]) -> float | None:
    return mean([p.same_answer for p in pairs if p.same_answer is not None])


@dataclass(frozen=True, slots=True)
class Series:
    """One metric over the steps that had it: its average now, and over the first few."""

    average: Average = Average()
    first: float = 0.0

    def add(self, value: float) -> "Series":
        average = self.average.add(value)
        return Series(average, average.value if average.count <= FIRST else self.first)

    @property
    def trend(self) -> float | None:
        """Now relative to the start; none before there is a start, or where it was 0."""
        return self.average.value / self.first if self.average.count >= FIRST and self.first > 0 else None


class Trends:
    """What can be seen only over steps. A metric is reported on the steps that bring news of it.

    An adapter's length is that of its drafts. Challenges are kept apart, as they change with what the rival shows, and
    shorter ones may be a gain; they stand in only for an adapter that never drafts. Its entropy is of whichever role it
    plays. A value that is not finite is passed over.
    """

    def __init__(self, series: Mapping[str, Series] | None = None) -> None:
        self._series = dict(series or {})

    def update(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Take in what a step logged under `A/…` and `B/…`, and return the trends it moves."""
        found: dict[str, float | None] = {}
        for adapter in ADAPTERS:
            self._take(f"{adapter}/challenge/length", metrics)
            drafted = self._take(f"{adapter}/draft/length", metrics)
            length = f"{adapter}/{'draft' if drafted else 'challenge'}/length"
            self._take(f"{adapter}/draft/acc", metrics)
            self._take(f"{adapter}/actor/entropy", metrics)
            for trend, name in (("length", length), ("entropy", f"{adapter}/actor/entropy")):
                if _has(metrics, name):
                    found[f"health/{adapter}/{trend}_trend"] = self._series[name].trend
        a, b = (f"{adapter}/draft/acc" for adapter in ADAPTERS)
        if a in self._series and b in self._series and (_has(metrics, a) or _has(metrics, b)):
            found["health/strength_gap"] = self._series[a].average.value - self._series[b].average.value
        return known(found)

    def state(self) -> dict[str, Any]:
        """Plain values for a checkpoint: `from_state` continues as if nothing had happened."""
        return {name: asdict(series) for name, series in self._series.items()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "Trends":
        return cls({name: Series(Average(**saved["average"]), saved["first"]) for name, saved in state.items()})

    def _take(self, name: str, metrics: Mapping[str, float]) -> bool:
        """Whether the metric has been seen by now."""
        if _has(metrics, name):
            self._series[name] = self._series.get(name, Series()).add(float(metrics[name]))
        return name in self._series


def _has(metrics: Mapping[str, float], name: str) -> bool:
    return isfinite(metrics.get(name, nan))
