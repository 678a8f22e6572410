"""The numbers of the main table: each way that a method answers, over its seeds.

A problem's samples of all seeds are one row, so that an interval is over problems: it covers their choice and the
sampling of answers, for these very runs. What another training run would have given is in the spread over seeds.

Which way speaks for a method is fixed beforehand, by the matrix.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agon_verl.evaluate import statistics
from agon_verl.evaluate.results import Outcomes
from agon_verl.evaluate.summary import CASCADE, EITHER, POST_HOC, Summary, paired, summarise, ways
from agon_verl.evaluate.summary import sources as sources_of
from agon_verl.matrix import rows as matrix
from agon_verl.report.read import UNTRAINED, Method

MODES = {
    "A_to_B": "A → B",
    "B_to_A": "B → A",
    "A_to_A": "A → A",
    "B_to_B": "B → B",
    "A": "A alone",
    "B": "B alone",
    "base": "zero-shot",
    "moa": "Mixture-of-Agents",
}
_REFERENCES = (("grpo", "A"), (UNTRAINED, "base"))


@dataclass(frozen=True)
class Answers:
    """How one method does in one way of answering. Tokens are means: of the last stage, and of all stages of a pass."""

    method: str
    way: str
    played: str
    rows: Outcomes
    spread: statistics.Spread
    seeds: Sequence[float]
    interval: statistics.Interval
    length: float | None
    generated: float | None
    prefilled: float | None

    @property
    def label(self) -> str:
        return f"{self.way}: {self.played}" if self.way in (CASCADE, POST_HOC) else MODES.get(self.way, self.way)


def sources(methods: Sequence[Method]) -> list[str]:
    return sources_of([results for method in methods for results in method.evaluations])


def answers(method: Method, source: str) -> dict[str, Answers]:
    """By way: the cascade by either choice of its direction, both adapters alone, and every mode that was played."""
    names = list(dict.fromkeys(way for results in method.evaluations for way in ways(results, source)))
    chosen = [way for way in (CASCADE, POST_HOC, EITHER) if way in names and method.name not in matrix.MODES]
    order = [*chosen, *(way for way in names if way not in (CASCADE, POST_HOC, EITHER))]
    found = {way: summarise(method.evaluations, source, way) for way in order}
    return {way: _answers(method.name, summary) for way, summary in found.items() if summary}


def _answers(method: str, summary: Summary) -> Answers:
    played = Counter(mode for modes in summary.modes for mode in modes)
    several = len(summary.modes) > 1
    return Answers(
        method,
        summary.way,
        ", ".join(_whole(MODES.get(m, m) + (f" ×{n}" if several else "")) for m, n in sorted(played.items())),
        summary.outcomes,
        summary.spread,
        summary.shares,
        summary.interval,
        summary.length,
        summary.generated,
        summary.prefilled,
    )


def main_ways(method: str, found: Mapping[str, Answers]) -> list[Answers]:
    """What the main table shows of a method; everything, where it was not evaluated in the way that speaks for it."""
    return [found[way] for _, way in matrix.rows(method) if way in found] or list(found.values())


def reference(found: Mapping[str, Mapping[str, Answers]]) -> Answers | None:
    return next((found[m][way] for m, way in _REFERENCES if way in found.get(m, {})), None)


def against(one: Answers, other: Answers) -> statistics.Paired | None:
    """On the problems that both have, all seeds together."""
    return paired(one.rows, other.rows)


def _whole(text: str) -> str:
    """Not to be broken over lines."""
    return text.replace(" ", "\u00a0")
