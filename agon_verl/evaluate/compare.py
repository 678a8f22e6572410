"""Several evaluations side by side: two, or two arms of a matrix, on the same problems; or the seeds of one method."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agon_verl.evaluate.markdown import percent, signed, span, table
from agon_verl.evaluate.results import RESULTS, Outcomes, Results, ResultsError
from agon_verl.evaluate.statistics import over_seeds, paired, pass_at_1
from agon_verl.evaluate.summary import EITHER, joined, sources, summaries

ALONE = "alone"


def compare(first: str, second: str, modes: Sequence[str] | None = None) -> tuple[str, dict[str, Any]]:
    """Paired tests of the first against the second, each one evaluation or an arm of a matrix with its seeds.

    `modes` are one of each, else every one that both have; `alone` is the mean of both adapters. Of two arms the seeds
    that both have are compared: with different ones the difference would be partly one of seeds.
    """
    one, two = _by_seed(Path(first)), _by_seed(Path(second))
    seeds = [seed for seed in one if seed in two]
    if not seeds:
        raise ResultsError(f"{first} has {', '.join(one)} and {second} has {', '.join(two)}: they share none")
    numbers: dict[str, Any] = {}
    rows = []
    for source in [source for source in sources(list(one.values())) if source in sources(list(two.values()))]:
        a, b = ([_outcomes(results[seed], source) for seed in seeds] for results in (one, two))
        both = [way for way in a[0] if all(way in each for each in (*a, *b))]
        for x, y in [(modes[0], modes[-1])] if modes else [(way, way) for way in both if way != ALONE]:
            if missing := [way for way, side in ((x, a), (y, b)) if not all(way in each for each in side)]:
                raise ResultsError(f"{missing[0]} is not among the modes of both: {', '.join(both)}")
            tested = _tested([each[x] for each in a], [each[y] for each in b], seeds)
            if tested is None:
                raise ResultsError(f"{first} and {second} have no problem of {source} in common")
            row, numbers.setdefault(source, {})[f"{x} - {y}"] = tested
            rows.append([f"{source}: {x if x == y else f'{x} − {y}'}", *row])
    if not rows:
        raise ResultsError(f"{first} and {second} share no data source and mode")
    head = ["", "first %", "second %", "difference, points", "95 % interval", "p", "problems", "test"]
    head += ["95 % over seeds too", f"each of {', '.join(seeds)}"] if len(seeds) > 1 else []
    return table(head, rows), numbers


def _tested(
    first: Sequence[Outcomes], second: Sequence[Outcomes], seeds: Sequence[str]
) -> tuple[list[str], dict[str, Any]] | None:
    """The test of both sides' outcomes, which are by seed: a row of the table, and its numbers."""
    a, b = joined(first), joined(second)
    test = paired(a, b)
    if test is None:
        return None
    shares = [percent(pass_at_1({problem: side[problem] for problem in a if problem in b})) for side in (a, b)]
    row = [*shares, f"{100 * test.difference:+.1f}", span(test.interval), f"{test.p:.3g}"]
    row, numbers = [*row, str(test.problems), test.test], test.to_json()
    if len(seeds) > 1:
        wider = over_seeds(first, second)
        tests = [paired(own, other) for own, other in zip(first, second, strict=True)]
        differences = {seed: each.difference for seed, each in zip(seeds, tests, strict=True) if each}
        row += [span(wider), ", ".join(map(signed, differences.values()))]
        numbers |= {"over_seeds": wider and wider.to_json(), "by_seed": differences}
    return row, numbers


def _by_seed(path: Path) -> dict[str, Results]:
    """The evaluated cells of an arm, or one evaluation."""
    cells = sorted(path.glob(f"seed_*/eval/{RESULTS}"), key=lambda cell: int(cell.parts[-3].removeprefix("seed_")))
    return {cell.parts[-3]: Results.read(cell) for cell in cells} or {"one evaluation": Results.read(path)}


def _outcomes(results: Results, source: str) -> dict[str, Outcomes]:
    if source not in results.sets:
        return {}
    return {ALONE if way == EITHER else way: each.outcomes for way, each in summaries([results], source).items()}


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
