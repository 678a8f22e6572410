"""The numbers of the main table: each way that a method answers, over its seeds.

A problem's samples of all seeds are one row, so that an interval is over problems: it covers their choice and the
sampling of answers, for these very runs. What another training run would have given is in the spread over seeds.

Which way speaks for a method is fixed beforehand, by the matrix.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agon_verl.evaluate import statistics
from agon_verl.evaluate.compare import CASCADE, POST_HOC
from agon_verl.matrix import rows as matrix
from agon_verl.report.read import UNTRAINED, Method

EITHER = "A or B alone, mean"
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
    rows: Mapping[str, Sequence[int]]
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
    return list(dict.fromkeys(source for m in methods for results in m.evaluations for source in results["sets"]))


def answers(method: Method, source: str) -> dict[str, Answers]:
    """By way: the cascade by either choice of its direction, both adapters alone, and every mode that was played."""
    found: dict[str, list[tuple[Sequence[str], Mapping[str, Any]]]] = {}
    for results in method.evaluations:
        told = results["sets"].get(source) or {}
        played = [mode for mode in told.get("modes") or {} if (told.get("outcomes") or {}).get(mode)]
        ways: dict[str, tuple[str, ...]] = {}
        if method.name not in matrix.MODES:  # else there is no pair
            chosen, better = results["direction"].get("chosen") or "", told.get("post_hoc") or ""
            ways = {CASCADE: (chosen,), POST_HOC: (better,), EITHER: ("A", "B")}
        for way, modes in {**ways, **{mode: (mode,) for mode in played}}.items():
            if all(mode in played for mode in modes):
                found.setdefault(way, []).append((modes, told))
    return {way: _answers(method.name, way, given) for way, given in found.items()}


def _answers(method: str, way: str, given: Sequence[tuple[Sequence[str], Mapping[str, Any]]]) -> Answers:
    rows: dict[str, list[int]] = {}
    shares = []
    for modes, told in given:
        outcomes = [told["outcomes"][mode] for mode in modes]
        each = [sum(sum(row) / len(row) for row in by.values()) / len(by) for by in outcomes]
        shares.append(sum(each) / len(each))
        for problem, row in [item for by in outcomes for item in by.items()]:
            rows.setdefault(problem, []).extend(row)
    summaries = [told["modes"][mode] for modes, told in given for mode in modes]
    costs = [summary.get("ledger", {}).get("per_pass", {}) for summary in summaries]
    played = Counter(mode for modes, _ in given for mode in modes)
    return Answers(
        method,
        way,
        ", ".join(_whole(MODES.get(m, m) + (f" ×{n}" if len(given) > 1 else "")) for m, n in sorted(played.items())),
        rows,
        statistics.spread(shares),
        shares,
        statistics.interval([[bool(right) for right in row] for row in rows.values()]),
        _mean(summary.get("length") for summary in summaries),
        _mean(cost.get("generated") for cost in costs),
        _mean(cost.get("prefilled") for cost in costs),
    )


def main_ways(method: str, found: Mapping[str, Answers]) -> list[Answers]:
    """What the main table shows of a method; everything, where it was not evaluated in the way that speaks for it."""
    ways = [modes[0] if len(modes) == 1 else EITHER for _, modes in matrix.rows(method)]
    return [found[way] for way in ways if way in found] or list(found.values())


def reference(found: Mapping[str, Mapping[str, Answers]]) -> Answers | None:
    return next((found[m][way] for m, way in _REFERENCES if way in found.get(m, {})), None)


def against(one: Answers, other: Answers) -> statistics.Paired | None:
    """On the problems that both have, all seeds together."""
    shared = [problem for problem in one.rows if problem in other.rows]
    if not shared:
        return None
    first, second = ([[bool(x) for x in side.rows[p]] for p in shared] for side in (one, other))
    return statistics.paired(first, second)


def _whole(text: str) -> str:
    """Not to be broken over lines."""
    return text.replace(" ", "\u00a0")


def _mean(values: Any) -> float | None:
    known = [float(value) for value in values if value is not None]
    return sum(known) / len(known) if known else None
