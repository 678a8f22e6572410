"""Run folders. Anything missing is empty or `None`; a report shows whatever there is.

FOLDER/metrics.jsonl, pairs/<step>.jsonl, eval/results.json       a run (or FOLDER/results.json: an evaluation)
FOLDER/seed_<s>/…                                                 a method
FOLDER/matrix.json, <method>/seed_<s>/…, base/eval/results.json   a matrix; matrix.json may be missing
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agon_verl.errors import AgonError
from agon_verl.evaluate.results import RESULTS, Results, ResultsError
from agon_verl.pair.run_folder import METRICS, Metrics, read_metrics

UNTRAINED = "base"
_SEED = re.compile(r"seed_(\d+)")


class ReportError(AgonError, ValueError):
    """There is nothing to report; the message has the reason."""


@dataclass(frozen=True)
class Run:
    """`state` is "missing" or that of a cell of a matrix; `parity` is the reason of a failed parity check.

    `origin` has the command, commit and log of a cell.
    """

    name: str
    seed: int | None
    metrics: Metrics
    pairs: tuple[Path, ...]
    results: Results | None
    state: str
    error: str = ""
    parity: str = ""
    origin: tuple[str, str, str] = ("", "", "")


@dataclass(frozen=True)
class Method:
    """The seeds of a method, or a single run. `kind` is the method of an arm that has another name."""

    name: str
    runs: tuple[Run, ...]
    kind: str

    @property
    def evaluations(self) -> list[Results]:
        return [run.results for run in self.runs if run.results]


def read_methods(folders: Sequence[Path]) -> tuple[list[Method], list[str]]:
    """The methods in these folders, and a note for each file that could not be read."""
    methods: dict[str, list[Run]] = {}
    notes: list[str] = []
    kinds: dict[str, str] = {}
    for folder in folders:
        if not folder.is_dir():
            raise ReportError(f"{folder} is not a folder")
        for name, runs in _read_folder(folder.resolve(), notes).items():
            name = name if name not in methods or _SEED.fullmatch(folder.name) else f"{folder.resolve().name}/{name}"
            methods.setdefault(name, []).extend(runs)
        kinds |= _kinds(folder)
    if not methods:
        names = ", ".join(map(str, folders))
        raise ReportError(f"nothing to report in {names}: no metrics.jsonl, pairs/, results.json or seed_*/ there")
    return [Method(name, tuple(runs), kinds.get(name, name)) for name, runs in methods.items()], notes


def _kinds(folder: Path) -> dict[str, str]:
    """The method of each arm of a matrix."""
    arms = _read_json(folder / "matrix.json", []).get("arms") or {}
    return {name: str(arm["method"]) for name, arm in arms.items() if isinstance(arm, dict) and "method" in arm}


def _read_folder(folder: Path, notes: list[str]) -> dict[str, list[Run]]:
    matrix = _read_json(folder / "matrix.json", notes)
    if matrix or any(folder.glob("*/seed_*")):
        return _read_matrix(folder, matrix, notes)
    if seeds := sorted(folder.glob("seed_*"), key=_numeric_order):
        return {folder.name: [_read_run(seed, f"{folder.name}/{seed.name}", {}, notes) for seed in seeds]}
    is_seed = _SEED.fullmatch(folder.name)
    run = _read_run(folder, f"{folder.parent.name}/{folder.name}" if is_seed else folder.name, {}, notes)
    return {folder.parent.name if is_seed else folder.name: [run]} if run.state != "missing" else {}


def _read_matrix(folder: Path, matrix: Mapping[str, Any], notes: list[str]) -> dict[str, list[Run]]:
    cells: Mapping[str, Any] = matrix.get("cells") or {}
    folders = [f"{path.parent.name}/{path.name}" for path in folder.glob("*/seed_*") if path.is_dir()]
    order = [str(name) for name in matrix.get("methods") or []]
    methods: dict[str, list[Run]] = {name: [] for name in (UNTRAINED, *order)}
    for path in sorted(map(Path, {*cells, *folders}), key=lambda path: (path.parent, _numeric_order(path))):
        run = _read_run(folder / path, str(path), cells.get(str(path)) or {}, notes)
        methods.setdefault(str(path.parent), []).append(run)
    untrained = _read_run(folder / UNTRAINED, UNTRAINED, {}, notes)
    methods[UNTRAINED] += [untrained] if untrained.state != "missing" else []
    return {name: runs for name, runs in methods.items() if runs}


def _read_run(folder: Path, name: str, cell: Mapping[str, Any], notes: list[str]) -> Run:
    results = _read_results(folder / "eval" / RESULTS, notes) or _read_results(folder / RESULTS, notes)
    if cell.get("state", "evaluated") != "evaluated":
        results = None  # of an earlier attempt
    metrics = read_metrics(folder / METRICS)
    pairs = tuple(sorted((folder / "pairs").glob("*.jsonl"), key=_numeric_order))
    state = "evaluated" if results else "trained" if metrics.by_step or pairs else "missing"
    parity, seed = str(cell.get("parity") or ""), _SEED.fullmatch(Path(name).name)
    return Run(
        name,
        int(seed[1]) if seed else None,
        metrics,
        pairs,
        results,
        str(cell.get("state") or state),
        str(cell.get("error") or ""),
        "" if parity == "ok" else parity,
        (str(cell.get("command") or ""), str(cell.get("commit") or ""), str(cell.get("log") or "")),
    )


def _read_results(path: Path, notes: list[str]) -> Results | None:
    try:
        return Results.read(path) if path.exists() else None
    except ResultsError as error:
        notes.append(f"Ignored: {error}")
        return None


def _read_json(path: Path, notes: list[str]) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text())) if path.exists() else {}
    except (OSError, ValueError, TypeError) as error:
        notes.append(f"Ignored: {path.parent.name}/{path.name} cannot be read: {error}")
        return {}


def _numeric_order(path: Path) -> tuple[int, str]:
    """Sorts step 9 before step 10."""
    digits = re.findall(r"\d+", path.stem)
    return int(digits[-1]) if digits else -1, path.name
