"""Runs on disk. What a folder does not have is empty or `None`, and a word about it: a report is made of what there is.

FOLDER/metrics.jsonl, pairs/<step>.jsonl, eval/results.json       a run; an evaluation's own folder does too
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
    """There is nothing to report on; the message says why."""


@dataclass(frozen=True)
class Run:
    """`state` is "evaluated", "trained", "failed" or "missing"; `parity` a sentence where the budget was not kept."""

    name: str
    seed: int | None
    metrics: Metrics
    pairs: tuple[Path, ...]
    results: Results | None
    state: str
    error: str = ""
    parity: str = ""


@dataclass(frozen=True)
class Method:
    """The runs of one row of the table: the seeds of a method, or a single run."""

    name: str
    runs: tuple[Run, ...]

    @property
    def evaluations(self) -> list[Results]:
        return [run.results for run in self.runs if run.results]


def find(folders: Sequence[Path]) -> tuple[list[Method], list[str]]:
    """The methods in these folders, and what is to be said of files that could not be read."""
    methods: dict[str, list[Run]] = {}
    notes: list[str] = []
    for folder in folders:
        if not folder.is_dir():
            raise ReportError(f"{folder} is not a folder")
        for name, runs in _in_folder(folder.resolve(), notes).items():
            name = name if name not in methods or _SEED.fullmatch(folder.name) else f"{folder.resolve().name}/{name}"
            methods.setdefault(name, []).extend(runs)
    if not methods:
        given = ", ".join(map(str, folders))
        raise ReportError(
            f"nothing to report in {given}: no metrics.jsonl, pairs/ or results.json there or in a seed_*/"
        )
    return [Method(name, tuple(runs)) for name, runs in methods.items()], notes


def _in_folder(folder: Path, notes: list[str]) -> dict[str, list[Run]]:
    told = _json(folder / "matrix.json", notes) or {}
    if told or any(folder.glob("*/seed_*")):
        return _matrix(folder, told, notes)
    if seeds := sorted(folder.glob("seed_*"), key=_number):
        return {folder.name: [_run(seed, f"{folder.name}/{seed.name}", {}, notes) for seed in seeds]}
    seed = _SEED.fullmatch(folder.name)
    run = _run(folder, f"{folder.parent.name}/{folder.name}" if seed else folder.name, {}, notes)
    return {folder.parent.name if seed else folder.name: [run]} if run.state != "missing" else {}


def _matrix(folder: Path, told: Mapping[str, Any], notes: list[str]) -> dict[str, list[Run]]:
    cells: Mapping[str, Any] = told.get("cells") or {}
    there = [f"{path.parent.name}/{path.name}" for path in folder.glob("*/seed_*") if path.is_dir()]
    order = {str(name): i for i, name in enumerate(told.get("methods") or [])}
    found: dict[str, list[Run]] = {}
    for name in sorted(
        {*cells, *there}, key=lambda n: (order.get(_method(n), len(order)), _method(n), _number(Path(n)))
    ):
        found.setdefault(_method(name), []).append(_run(folder / name, name, cells.get(name) or {}, notes))
    untrained = _run(folder / UNTRAINED, UNTRAINED, {}, notes)
    return {UNTRAINED: [untrained], **found} if untrained.state != "missing" else found


def _run(folder: Path, name: str, cell: Mapping[str, Any], notes: list[str]) -> Run:
    results = next((r for sub in ("eval", ".") if (r := _results(folder / sub / RESULTS, notes))), None)
    results = results if cell.get("state", "evaluated") == "evaluated" else None  # else of a cell as it was before
    metrics = read_metrics(folder / METRICS)
    pairs = tuple(sorted((folder / "pairs").glob("*.jsonl"), key=_number))
    seen = "evaluated" if results else "trained" if metrics.by_step or pairs else "missing"
    parity = str(cell.get("parity") or "")
    seed = _SEED.fullmatch(Path(name).name)
    return Run(
        name,
        int(seed[1]) if seed else None,
        metrics,
        pairs,
        results,
        str(cell.get("state") or seen),
        str(cell.get("error") or ""),
        "" if parity == "ok" else parity,
    )


def _results(path: Path, notes: list[str]) -> Results | None:
    try:
        return Results.read(path) if path.exists() else None
    except ResultsError as error:
        notes.append(f"{error}; it is left out")
        return None


def _json(path: Path, notes: list[str]) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text()) if path.exists() else None
        return dict(found) if found is not None else None
    except (OSError, ValueError, TypeError) as error:
        notes.append(f"{path.parent.name}/{path.name} cannot be read and is left out: {error}")
        return None


def _method(name: str) -> str:
    return name.rpartition("/")[0] or name


def _number(path: Path) -> tuple[int, str]:
    """Steps and seeds in their order, not in that of their digits."""
    digits = re.findall(r"\d+", path.stem)
    return int(digits[-1]) if digits else -1, path.name
