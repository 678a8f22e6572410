"""Several evaluations side by side: two on the same problems, or the seeds of one method."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agon_verl.evaluate import statistics
from agon_verl.evaluate.results import Outcomes, compared, pass_at_1
from agon_verl.evaluate.table import percent, span, table
from agon_verl.inference.players import InferenceError

CASCADE, POST_HOC = "cascade", "cascade, post hoc"  # the direction chosen beforehand, and the better one afterwards


def load(given: str) -> dict[str, Any]:
    path = Path(given)
    path = path / "results.json" if path.is_dir() else path
    try:
        found = json.loads(path.read_text())
        return dict(found) if "sets" in found else _no_results(path, "it has no sets")
    except (OSError, ValueError) as error:
        return _no_results(path, str(error))


def _no_results(path: Path, why: str) -> Any:
    raise InferenceError(f"{path} is not a results.json of an evaluation: {why}")


def rows_of(results: Mapping[str, Any], source: str) -> dict[str, Outcomes]:
    """Each mode's outcomes, and those of the cascade by either choice of its direction."""
    found = results["sets"][source]
    given = dict(found["outcomes"])
    for name, direction in ((CASCADE, results["direction"]["chosen"]), (POST_HOC, found["post_hoc"])):
        if direction in found["outcomes"]:
            given[name] = found["outcomes"][direction]
    return given


def compare(first: str, second: str, modes: Sequence[str] | None = None) -> tuple[str, dict[str, Any]]:
    """Paired tests of the first against the second; `modes` are one of each, else every one that both have."""
    one, two = load(first), load(second)
    told: dict[str, Any] = {}
    rows = []
    for source in [source for source in one["sets"] if source in two["sets"]]:
        a, b = rows_of(one, source), rows_of(two, source)
        pairs = [(modes[0], modes[-1])] if modes else [(mode, mode) for mode in a if mode in b]
        for x, y in pairs:
            if x not in a or y not in b:
                raise InferenceError(f"{x if x not in a else y} is not among the modes of both: {', '.join(a)}")
            found = compared(a[x], b[y])
            if found is None:
                raise InferenceError(f"{first} and {second} have no problem of {source} in common")
            told.setdefault(source, {})[f"{x} - {y}"] = found
            shared = [p for p in a[x] if p in b[y]]
            shares = [percent(pass_at_1({p: side[p] for p in shared})) for side in (a[x], b[y])]
            change = f"{100 * found['difference']:+.1f}"
            name = x if x == y else f"{x} − {y}"
            rows.append([f"{source}: {name}", *shares, change, span(found["interval"]), f"{found['p']:.3g}"])
            rows[-1] += [str(found["problems"]), found["test"]]
    if not rows:
        raise InferenceError(f"{first} and {second} share no data source and mode")
    head = ["", "first %", "second %", "difference, points", "95 % interval", "p", "problems", "test"]
    return table(head, rows), told


def average(given: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """One method over its seeds: what the spread of whole runs adds to the intervals over problems."""
    runs = [load(each) for each in given]
    told: dict[str, Any] = {}
    rows = []
    for source in [s for s in runs[0]["sets"] if all(s in run["sets"] for run in runs)]:
        by_run = [rows_of(run, source) for run in runs]
        for mode in [m for m in by_run[0] if all(m in each for each in by_run)]:
            shares = [share for each in by_run if (share := pass_at_1(each[mode])) is not None]
            found = statistics.spread(shares)
            told.setdefault(source, {})[mode] = {"pass@1": shares, "mean": found.mean, "deviation": found.deviation}
            told[source][mode] |= {"low": found.low, "high": found.high}
            low, high = percent(found.low), percent(found.high)
            rows.append([f"{source}: {mode}", str(found.runs), percent(found.mean), percent(found.deviation)])
            rows[-1].append(f"{low} to {high}")
    if not rows:
        raise InferenceError("these results share no data source and mode")
    return table(["", "runs", "mean pass@1 %", "standard deviation", "range"], rows), told
