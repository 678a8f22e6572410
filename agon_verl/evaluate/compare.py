"""Several evaluations side by side: two on the same problems, or the seeds of one method."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agon_verl.evaluate.markdown import percent, span, table
from agon_verl.evaluate.results import Results, ResultsError
from agon_verl.evaluate.statistics import paired, pass_at_1
from agon_verl.evaluate.summary import EITHER, sources, summaries


def compare(first: str, second: str, modes: Sequence[str] | None = None) -> tuple[str, dict[str, Any]]:
    """Paired tests of the first against the second; `modes` are one of each, else every one that both have."""
    one, two = Results.read(Path(first)), Results.read(Path(second))
    numbers: dict[str, Any] = {}
    rows = []
    for source in [source for source in one.sets if source in two.sets]:
        a, b = ({w: s.outcomes for w, s in summaries([r], source).items() if w != EITHER} for r in (one, two))
        for x, y in [(modes[0], modes[-1])] if modes else [(way, way) for way in a if way in b]:
            if x not in a or y not in b:
                raise ResultsError(f"{x if x not in a else y} is not among the modes of both: {', '.join(a)}")
            test = paired(a[x], b[y])
            if test is None:
                raise ResultsError(f"{first} and {second} have no problem of {source} in common")
            numbers.setdefault(source, {})[f"{x} - {y}"] = test.to_json()
            shared = a[x].keys() & b[y].keys()
            shares = [percent(pass_at_1({p: side[p] for p in side if p in shared})) for side in (a[x], b[y])]
            name = x if x == y else f"{x} − {y}"
            row = [f"{source}: {name}", *shares, f"{100 * test.difference:+.1f}", span(test.interval)]
            rows.append([*row, f"{test.p:.3g}", str(test.problems), test.test])
    if not rows:
        raise ResultsError(f"{first} and {second} share no data source and mode")
    head = ["", "first %", "second %", "difference, points", "95 % interval", "p", "problems", "test"]
    return table(head, rows), numbers


def average(paths: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """One method over its seeds: how much its runs differ, which intervals over problems do not cover."""
    runs = [Results.read(Path(path)) for path in paths]
    numbers: dict[str, Any] = {}
    rows = []
    for source in sources(runs):
        for way, summary in summaries(runs, source).items():
            if way == EITHER or len(summary.shares) < len(runs):
                continue
            over = summary.spread
            numbers.setdefault(source, {})[way] = {"pass@1": summary.shares, **asdict(over)}
            row = [f"{source}: {way}", str(len(runs)), percent(over.mean), percent(over.deviation)]
            rows.append([*row, f"{percent(over.low)} to {percent(over.high)}"])
    if not rows:
        raise ResultsError("these results share no data source and mode")
    return table(["", "runs", "mean pass@1 %", "standard deviation", "range"], rows), numbers
