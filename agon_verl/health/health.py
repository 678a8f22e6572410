"""Whether the adapters still behave differently: how often they fail together and repeat each other, and their trends.

The paper reports accuracies. These metrics are ours, because a pair can collapse into one policy while accuracy still
rises: this shows first in errors that coincide (`error_correlation`), in wrong answers and wrong solutions that are
repeated (`wrong_answer_kept`, `copy_of_wrong`) and in `health/distance`, the distance between the adapters' weights,
which the training processes compute.

As in `pair_statistics`, right means c = 1, and a conditional metric without a case is left out. Drafts of guests count
in the challenger's metrics, but not in the drafter's dead groups.

    error_correlation = (P(both wrong) - e_a e_b) / (min(e_a, e_b) - e_a e_b)

is 0 for independent errors and 1 if one is wrong wherever the other is. It is undefined if either is always right or
always wrong. Problems differ in difficulty, which alone makes it positive. Below 0 it is not bounded by -1
(error rates of 0.9 and 0.1 reach -9); scaled this way its mean over steps stays 0 for independent errors.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite, nan
from typing import Any

from agon_verl.game.advantages import LiveBy
from agon_verl.health.averages import Average
from agon_verl.health.pair_statistics import Pair, drop_none, group_metrics, mean, right

COPIED = 0.8  # copied share from which a challenge is a copy: at most every thirtieth word is changed (`copying`)
# Values that make up the start of a trend: two steps of each role for an entropy, four drafts for a length. Few, since
# collapse is measured against the start. `Average` is a plain mean for that long.
FIRST = 4
SMALL_GAP = 0.002  # between rollout and training: below it, a gap is rounding, and its growth says nothing
_NO_ROOM = 1e-9


def health_metrics(pairs: Sequence[Pair], by: LiveBy = "reward") -> dict[str, float]:
    """Metrics of one step's pairs. `copy_of_wrong` matters most: two right solutions may well be equal."""
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
        **group_metrics(pairs, by),
    }
    return {f"health/{name}": value for name, value in drop_none(metrics).items()}


def validation_health(a_right: Sequence[bool | float], b_right: Sequence[bool | float]) -> dict[str, float]:
    """Each adapter alone on the same problems in the same order; one c per problem."""
    if len(a_right) != len(b_right):
        raise ValueError(
            f"the adapters have {len(a_right)} and {len(b_right)} verdicts: pass one per problem, in one order"
        )
    if not a_right:
        return {}
    a_wrong, b_wrong = [c < 1.0 for c in a_right], [c < 1.0 for c in b_right]
    metrics = {
        **_errors(a_wrong, b_wrong),
        "agreement": mean([a == b for a, b in zip(a_wrong, b_wrong, strict=True)]),
        "strength_gap": (sum(a_right) - sum(b_right)) / len(a_right),
    }
    return {f"health/val/{name}": value for name, value in drop_none(metrics).items()}


def cascade_health(draft_right: Sequence[float], final_right: Sequence[float]) -> dict[str, float]:
    """Conversion and damage of one direction's cascades; a metric without a case is left out."""
    stages = [(draft >= 1.0, final >= 1.0) for draft, final in zip(draft_right, final_right, strict=True)]
    metrics = {
        "conversion": mean([final for draft, final in stages if not draft]),
        "damage": mean([not final for draft, final in stages if draft]),
    }
    return drop_none(metrics)


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
    """One metric over the steps that had it: its current average, and that of the first few."""

    average: Average = Average()
    first: float = 0.0

    def add(self, value: float) -> "Series":
        average = self.average.add(value)
        return Series(average, average.value if average.count <= FIRST else self.first)

    def trend(self, least: float = 0.0) -> float | None:
        """The current average over that of the start, but at least `least`; None before the start, or over 0."""
        start = max(self.first, least)
        return self.average.value / start if self.average.count >= FIRST and start > 0 else None


class Trends:
    """Metrics over several steps, for the two adapters of a pair. A trend is reported on the steps that change it.

    An adapter's length is that of its drafts. Challenges are followed separately, because they depend on what the rival
    shows and shorter ones may be a gain; they are used only for an adapter that never drafts. Its entropy is that of
    whichever role it plays. A value that is not finite is skipped.
    """

    def __init__(self, adapters: tuple[str, str], series: Mapping[str, Series] | None = None) -> None:
        self._adapters = adapters
        self._series = dict(series or {})

    def update(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Add what a step logged under each adapter's name, and return the trends that change."""
        trends: dict[str, float | None] = {}
        for adapter in self._adapters:
            self._add(f"{adapter}/challenge/length", metrics)
            drafted = self._add(f"{adapter}/draft/length", metrics)
            length = f"{adapter}/{'draft' if drafted else 'challenge'}/length"
            self._add(f"{adapter}/draft/acc", metrics)
            entropy, gap = f"{adapter}/actor/entropy", f"{adapter}/training/rollout_probs_diff_mean"
            self._add(entropy, metrics)
            self._add(gap, metrics)
            for trend, name, least in (("length", length, 0), ("entropy", entropy, 0), ("gap", gap, SMALL_GAP)):
                if _has(metrics, name):
                    trends[f"health/{adapter}/{trend}_trend"] = self._series[name].trend(least)
        a, b = (f"{adapter}/draft/acc" for adapter in self._adapters)
        if a in self._series and b in self._series and (_has(metrics, a) or _has(metrics, b)):
            trends["health/strength_gap"] = self._series[a].average.value - self._series[b].average.value
        return drop_none(trends)

    def state(self) -> dict[str, Any]:
        """Plain values for a checkpoint, from which `from_state` continues exactly."""
        return {name: asdict(series) for name, series in self._series.items()}

    @classmethod
    def from_state(cls, adapters: tuple[str, str], state: Mapping[str, Any]) -> "Trends":
        series = {name: Series(Average(**saved["average"]), saved["first"]) for name, saved in state.items()}
        return cls(adapters, series)

    def _add(self, name: str, metrics: Mapping[str, float]) -> bool:
        """Whether the metric has had a value by now."""
        if _has(metrics, name):
            self._series[name] = self._series.get(name, Series()).add(float(metrics[name]))
        return name in self._series


def _has(metrics: Mapping[str, float], name: str) -> bool:
    return isfinite(metrics.get(name, nan))
