"""One evaluation or several runs of one method, by way of answering: what `evaluate`, the matrix and reports show.

A way is a mode, or a name for one that is chosen per run: the cascade in the direction that was chosen beforehand, the
cascade in the direction that was better afterwards, and the mean of both adapters alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import lcm

from agon_verl.evaluate import statistics
from agon_verl.evaluate.results import Outcomes, Results, SetResults

CASCADE, POST_HOC = "cascade", "cascade, post hoc"
EITHER = "A or B alone, mean"


@dataclass(frozen=True)
class Summary:
    """One way of answering over the runs that have it. Token counts are means over runs.

    The samples of a problem from all runs are one row of `outcomes`, so that the interval is over problems: it covers
    the choice of problems and the sampling of answers for these runs. Each run weighs the same, however many samples it
    has. `spread` shows how much runs differ.
    """

    way: str
    modes: Sequence[tuple[str, ...]]  # those that stand for the way, per run
    outcomes: Outcomes
    shares: Sequence[float]  # pass@1 of each run
    length: float | None
    generated: float | None
    prefilled: float | None
    correlation: float | None  # of the errors of A and B, each alone; the mean over runs

    @property
    def spread(self) -> statistics.Spread:
        return statistics.spread(self.shares)

    @cached_property
    def interval(self) -> statistics.Interval:
        return statistics.interval(list(self.outcomes.values()))


def sources(runs: Sequence[Results]) -> list[str]:
    return list(dict.fromkeys(source for run in runs for source in run.sets))


def summaries(runs: Sequence[Results], source: str) -> dict[str, Summary]:
    """Every way of answering for which one of the runs has outcomes on `source`."""
    by_way: dict[str, list[tuple[SetResults, tuple[str, ...]]]] = {}
    for measured, chosen in [(run.sets[source], run.direction.chosen) for run in runs if source in run.sets]:
        ways: dict[str, tuple[str, ...]] = {mode: (mode,) for mode, outcomes in measured.outcomes.items() if outcomes}
        cascades = {CASCADE: chosen, POST_HOC: measured.post_hoc}
        ways |= {way: (mode,) for way, mode in cascades.items() if mode in ways}
        ways |= {EITHER: ("A", "B")} if {"A", "B"} <= ways.keys() else {}
        for way, modes in ways.items():
            by_way.setdefault(way, []).append((measured, modes))
    return {way: _summarise(way, having) for way, having in by_way.items()}


def _summarise(way: str, having: Sequence[tuple[SetResults, tuple[str, ...]]]) -> Summary:
    runs = [joined([measured.outcomes[mode] for mode in modes]) for measured, modes in having]
    per_run = [[statistics.pass_at_1(measured.outcomes[mode]) for mode in modes] for measured, modes in having]
    alone = [(measured.outcomes.get("A", {}), measured.outcomes.get("B", {})) for measured, _ in having]
    correlations = [statistics.error_correlation(a, b) for a, b in alone]
    played = [measured.modes[mode] for measured, modes in having for mode in modes]
    return Summary(
        way,
        [modes for _, modes in having],
        joined(runs),
        [sum(shares) / len(shares) for shares in per_run],
        statistics.mean([mode.length for mode in played if mode.length is not None]),
        statistics.mean([mode.ledger.per_pass.generated for mode in played]),
        statistics.mean([mode.ledger.per_pass.prefilled for mode in played]),
        statistics.mean([each for each in correlations if each is not None]),
    )


def joined(several: Sequence[Outcomes]) -> Outcomes:
    """The samples of each problem from all of them. Each weighs the same: where one has fewer, they are repeated."""
    rows: dict[str, list[Sequence[int]]] = {}
    for each in several:
        for problem, row in each.items():
            rows.setdefault(problem, []).append(row)
    return {
        problem: [sample for row in own for sample in list(row) * (lcm(*map(len, own)) // len(row))]
        for problem, own in rows.items()
    }
