"""One visit to a machine: cells are trained in the plan's order while there is time, and evaluated.

All are evaluated at the end with one vLLM, or each as soon as it is trained with one of its own (`evaluate_beside`).

`matrix.json` is the state of everything, written at each change. A cell is

    waiting      not begun
    unfinished   asked to stop when time was up; it continues from its checkpoint
    trained      complete, not evaluated yet
    evaluated    complete
    failed       with an `error`; tried again after the others
"""

import json
import os
import shlex
import subprocess
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agon_verl.errors import AgonError
from agon_verl.evaluate.results import RESULTS, Results
from agon_verl.files import write_atomically
from agon_verl.game.roles import BASE
from agon_verl.matrix.cells import (
    EVALUATED,
    FAILED,
    TRAINED,
    TRAINED_STATE,
    UNFINISHED,
    WAITING,
    CellState,
    arguments_of,
    check_budgets,
    check_folder,
    command_of,
    done,
    evaluate,
    evaluation_of,
    seconds_needed,
    tidy,
    train,
)
from agon_verl.matrix.plan import Cell, MatrixError, Plan
from agon_verl.matrix.processes import Clock, Runner

STATE = "matrix.json"


@dataclass
class Visit:
    """`steps` are those of a complete cell and `rollouts` N, both from the composed configuration.

    `together`: one evaluation command for all cells; otherwise one for each, `plan.at_once` at a time. Evaluations
    beside have room for one command more than train at once.
    """

    plan: Plan
    run: Runner
    clock: Clock
    base: str
    rollouts: int
    steps: int | None = None
    together: bool = True
    states: dict[str, CellState] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._lock, self._full = threading.Lock(), False
        self._room = threading.Semaphore(self.plan.at_once + 1)
        self._commit = commit()
        self._before = self._read()
        self._untrained = tuple(self._before.get("untrained") or ())  # the arguments of the base's results
        self._base_error: str | None = None
        for cell in self.plan.cells:
            check_folder(self.plan, cell)
            self.states[cell.key] = self._found(cell)
            if self.states[cell.key].state in (TRAINED_STATE, EVALUATED):
                tidy(self.plan, cell)

    def _read(self) -> dict[str, Any]:
        path = self.plan.out / STATE
        try:
            return dict(json.loads(path.read_text())) if path.exists() else {}
        except ValueError as error:
            raise MatrixError(
                f"{path} cannot be read: remove it, and the cells are looked at again ({error})"
            ) from None

    def _found(self, cell: Cell) -> CellState:
        """The recorded state, corrected by what lies in the folder: the folder may be older or newer."""
        recorded = CellState.from_json((self._before.get("cells") or {}).get(cell.key, {"state": WAITING}))
        folder = self.plan.folder(cell)
        if (folder / TRAINED).exists():
            if recorded.command is None:  # trained by another matrix
                made = json.loads((folder / TRAINED).read_text())
                origin = {name: made.get(name) for name in ("command", "commit")}
                recorded = replace(recorded, **origin, log=f"{cell.key}/train.log", step=self.steps)
            complete = recorded.state == EVALUATED and (folder / "eval" / RESULTS).exists()
            return replace(recorded, state=EVALUATED if complete else TRAINED_STATE)
        step = done(folder)
        state = UNFINISHED if step else WAITING
        return replace(recorded, state=FAILED if recorded.state == FAILED else state, step=step or None)

    def train_all(self, evaluate_beside: bool = False) -> None:
        """In the plan's order; cells that failed before come last, so that they cannot use up every visit."""
        waiting = [cell for cell in self.plan.cells if self.states[cell.key].state in (WAITING, UNFINISHED, FAILED)]
        waiting.sort(key=lambda cell: self.states[cell.key].state == FAILED)
        trained_before = list(self._not_evaluated()) if evaluate_beside else []
        evaluations = []

        def train(cell: Cell) -> None:
            with self._room:
                self._train(cell)
            if evaluate_beside:
                evaluations.append(beside.submit(self._evaluate_one, cell.key))

        with ThreadPoolExecutor(len(self.plan.cells) + 1) as beside, ThreadPoolExecutor(self.plan.at_once) as pool:
            cells = pool.map(train, waiting)
            evaluations += [beside.submit(self._evaluate_one, key) for key in trained_before]
            list(cells)
        for evaluation in evaluations:
            evaluation.result()

    def _fits(self, cell: Cell) -> bool:
        needed, left = seconds_needed(self.plan, cell, self.steps), max(0.0, self.clock.left)
        if self.clock.stopped or left >= needed:
            return not self.clock.stopped
        whole = self.plan.whole
        what, fix = ("all of its steps", "whole: false") if whole else ("its start and a step", "a lower start")
        print(
            f"{cell.key} waits: it needs about {needed / 60:.1f} minutes for {what}, and {left / 60:.1f} are left. If "
            f"that is the complete visit, use more --minutes, or {fix} in the plan",
            flush=True,
        )
        return False

    def _train(self, cell: Cell) -> None:
        if self._full or not self._fits(cell):
            self._full = True  # nor does a later cell start, even if it is shorter: the order keeps the matrix balanced
            return
        before, folder = self.states[cell.key], self.plan.folder(cell)
        command = f"VERL_FILE_LOGGER_PATH={folder / 'metrics.jsonl'} {shlex.join(command_of(self.plan, cell))}"
        origin = replace(before, error=None, command=command, commit=self._commit, log=f"{cell.key}/train.log")
        try:
            complete = train(self.plan, cell, self.run, origin)
            state = replace(origin, state=TRAINED_STATE if complete else UNFINISHED)
        except Exception as error:  # whatever it is, the other cells go on
            text = str(error) if isinstance(error, AgonError | OSError) else repr(error)
            state = replace(origin, state=TRAINED_STATE if (folder / TRAINED).exists() else FAILED, error=text)
        step = self.steps if state.state == TRAINED_STATE else done(folder)
        self._record(cell.key, replace(state, step=step or None))

    def _record(self, key: str, state: CellState) -> None:
        with self._lock:
            self.states[key] = state
            at = f" at step {state.step}" if state.state == UNFINISHED else ""
            print(f"{key}: {state.state}{at}{' - ' + state.error if state.error else ''}", flush=True)
            self.write()

    def _not_evaluated(self) -> dict[str, list[str]]:
        """The arguments for everything that is trained and not evaluated with them, and for the base itself."""
        jobs: dict[str, list[str]] = {}
        if self.plan.untrained:
            arguments = arguments_of(self.plan, self.base, self.plan.out / BASE / "eval", 0, self.plan.untrained)
            if not self._repeats(BASE, self._untrained, arguments):
                jobs[BASE] = arguments
        for cell in self.plan.cells:
            state = self.states[cell.key]
            if state.state in (TRAINED_STATE, EVALUATED):
                arguments = evaluation_of(self.plan, cell)
                left_behind = not Path(arguments[0]).exists()  # the adapters; then the results stay as they are
                repeats = left_behind or self._repeats(cell.key, state.evaluation, arguments)
                if not (state.state == EVALUATED and repeats):
                    jobs[cell.key] = arguments
        return jobs

    @property
    def _too_late(self) -> bool:
        return self.clock.stopped or self.clock.left < 60 * self.plan.evaluation_start

    def _evaluate_one(self, key: str) -> None:
        """Beside others, if it is trained and there is time."""
        with self._room:
            jobs = {name: arguments for name, arguments in self._not_evaluated().items() if name == key}
            if jobs and not self._too_late:
                self._evaluate(jobs, self.plan.out / key / "eval.log", alone=False)

    def evaluate_all(self) -> None:
        jobs = self._not_evaluated()
        if not jobs:
            return
        if self._too_late:
            print(f"{len(jobs)} evaluations wait for another visit", flush=True)
            return
        if self.together:
            self._evaluate(jobs, self.plan.out / "eval.log")
        else:
            with ThreadPoolExecutor(self.plan.at_once) as pool:
                list(
                    pool.map(lambda job: self._evaluate(dict([job]), self.plan.out / job[0] / "eval.log"), jobs.items())
                )

    def _repeats(self, key: str, made_with: tuple[str, ...] | None, arguments: list[str]) -> bool:
        """Whether an evaluation would only repeat the results that are there; failed verdicts are judged again."""
        path = self.plan.out / key / "eval" / RESULTS
        return made_with == _portable(arguments) and path.exists() and not Results.read(path).left_out

    def _evaluate(self, jobs: Mapping[str, list[str]], log: Path, alone: bool = True) -> None:
        def written(key: str) -> int | None:
            path = self.plan.out / key / "eval" / RESULTS
            return path.stat().st_mtime_ns if path.exists() else None

        before = {key: written(key) for key in jobs}
        parts = [
            part for number, arguments in enumerate(jobs.values()) for part in (["--and"] * (number > 0), arguments)
        ]
        ended = evaluate([each for part in parts for each in part], log, self.run, alone)
        for key, arguments in jobs.items():
            made = written(key) not in (None, before[key])
            error = None if made or ended.stopped else f"evaluation ended with status {ended.status}: see {log}"
            if key == BASE:
                self._untrained, self._base_error = _portable(arguments) if made else (), error
                print(f"{BASE}: {EVALUATED if made else error or 'not evaluated yet'}", flush=True)
            elif made:
                done_with = replace(self.states[key], state=EVALUATED, error=None, evaluation=_portable(arguments))
                self._record(key, done_with)
            else:
                self._record(key, replace(self.states[key], state=TRAINED_STATE, error=error))

    @property
    def failures(self) -> list[str]:
        errors = {BASE: self._base_error, **{key: state.error for key, state in self.states.items()}}
        return [f"{key}: {error}" for key, error in errors.items() if error]

    def finish(self) -> None:
        self.states = check_budgets(self.plan, self.rollouts, self.states)
        self.write()

    def write(self) -> None:
        plan = self.plan
        arms = {a.name: {"method": a.method, "label": a.label, "overrides": list(a.overrides)} for a in plan.arms}
        record = {
            "recipe": plan.recipe,
            "methods": [arm.name for arm in plan.arms],
            "arms": arms,
            "seeds": list(plan.seeds),
            "overrides": list(plan.overrides),
            "evaluate": list(plan.evaluate),
            "untrained": list(self._untrained),
            "written": datetime.now(UTC).isoformat(timespec="seconds"),
            "cells": {key: state.to_json() for key, state in self.states.items()},
        }
        write_atomically(plan.out / STATE, json.dumps(record, indent=1) + "\n")


def _portable(arguments: list[str]) -> tuple[str, ...]:
    """Without the target and the output folder, whose paths differ between machines."""
    return tuple(arguments[3:])


def commit() -> str | None:
    """The commit of this code, with a mark if files differ from it; without git, the variable AGON_COMMIT."""

    def git(*arguments: str) -> str:
        here = Path(__file__).parent
        return subprocess.run(["git", *arguments], cwd=here, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "HEAD") + (" and changes" if git("status", "--porcelain", "--", "..") else "")
    except (OSError, subprocess.CalledProcessError):
        return os.environ.get("AGON_COMMIT")
