"""One cell of a matrix: a method and a seed, trained by verl's own command and evaluated by `agon_verl.evaluate`.

    OUT/<method>/seed_<s>/
      settings.json     the overrides it was started with; other overrides for the same folder are refused
      metrics.jsonl     written by verl's file logger
      pairs/            one JSON line per pair
      checkpoints/      a cell that was stopped continues from here
      trained.json      written when training is complete
      eval/             the output of `agon_verl.evaluate`
      train.log, eval.log

A cell that fails does not stop the others. Its state has the reason, and the same command tries it again.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Protocol

from agon_verl.errors import AgonError
from agon_verl.files import write_atomically
from agon_verl.matrix.rows import MODES, PAIR
from agon_verl.pair.run_folder import METRICS, read_metrics

TRAINED = "trained.json"


class MatrixError(AgonError, RuntimeError):
    """A cell or the matrix cannot run; the message has the reason and the fix."""


@dataclass(frozen=True)
class CellState:
    """`state` is evaluated, trained or failed. `parity` is "ok", or how the budget differs."""

    state: str
    error: str | None = None
    parity: str | None = None

    def to_json(self) -> dict[str, str]:
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class Plan:
    """The settings that all cells share."""

    out: Path
    recipe: str
    overrides: Sequence[str]
    evaluation: Sequence[str]  # arguments of `agon_verl.evaluate`

    def training(self, method: str, seed: int) -> list[str]:
        folder = self.folder(method, seed)
        return [
            f"+recipe={self.recipe}",
            f"+method={method}",
            *self.overrides,
            f"agon.seed={seed}",
            f"data.seed={seed}",
            f"actor_rollout_ref.rollout.seed={seed}",
            f"trainer.default_local_dir={folder / 'checkpoints'}",
            f"trainer.rollout_data_dir={folder / 'pairs'}",
            "trainer.logger=[console,file]",
        ]

    def folder(self, method: str, seed: int) -> Path:
        return self.out / method / f"seed_{seed}"


class Runner(Protocol):
    def __call__(self, command: Sequence[str], env: Mapping[str, str], log: Path) -> int:
        """Run a command to its end and return its exit status."""


def run_here(command: Sequence[str], env: Mapping[str, str], log: Path) -> int:
    with log.open("a") as out:
        return subprocess.run(command, env={**os.environ, **env}, stdout=out, stderr=subprocess.STDOUT).returncode


def train(plan: Plan, method: str, seed: int, run: Runner) -> None:
    """Train a cell, or continue its training; does nothing if it is trained already."""
    folder, overrides = plan.folder(method, seed), plan.training(method, seed)
    _check_settings(folder / "settings.json", overrides)
    if (folder / TRAINED).exists():
        return
    command = [sys.executable, "-m", "verl.trainer.main_ppo", *overrides]
    if status := run(command, {"VERL_FILE_LOGGER_PATH": str(folder / METRICS)}, folder / "train.log"):
        raise MatrixError(f"training ended with status {status}: see {folder / 'train.log'}")
    write_atomically(folder / TRAINED, json.dumps({"method": method, "seed": seed}) + "\n")


def evaluate(plan: Plan, target: Path | str, folder: Path, seed: int, modes: Sequence[str], run: Runner) -> None:
    """Evaluate into `folder`; `agon_verl.evaluate` generates only what is missing.

    The verifier is trusted: this command's own overrides chose it, and training has run it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "agon_verl.evaluate", str(target), "--out", str(folder), "--seed", str(seed)]
    command += ["--trust-verifier"]
    if status := run([*command, "--modes", *modes, *plan.evaluation], {}, folder.parent / "eval.log"):
        raise MatrixError(f"evaluation ended with status {status}: see {folder.parent / 'eval.log'}")


def _check_settings(path: Path, settings: Sequence[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        write_atomically(path, json.dumps(list(settings), indent=1) + "\n")
        return
    before = json.loads(path.read_text())
    if differ := [each for each in {*before, *settings} if (each in before) != (each in settings)]:
        raise MatrixError(
            f"{path.parent} was started with other settings ({', '.join(sorted(differ)[:4])}): use another --out, or "
            "remove the folder"
        )


def steps(metrics: Path) -> list[dict[str, float]]:
    """The metrics of each training step."""
    by_step = read_metrics(metrics).by_step
    return [by_step[step] for step in sorted(by_step) if "ledger/rollouts" in by_step[step]]


def parity(logged: Sequence[dict[str, float]], n: int, problems: int) -> str:
    """`ok`, or how the run differs from 2N rollouts, as generated, on each of `problems` problems."""
    if not logged:
        return "no step was logged"
    for number, step in enumerate(logged, start=1):
        made, drawn = step["ledger/rollouts"], step["ledger/problems"]
        if made != 2 * n * drawn:
            return f"step {number} generated {made:.0f} rollouts for {drawn:.0f} problems, not {2 * n * drawn:.0f}"
    seen = sum(step["ledger/problems"] for step in logged)
    return "ok" if seen == problems else f"trained on {seen:.0f} problems, not {problems}"


def run_cell(plan: Plan, method: str, seed: int, run: Runner) -> CellState:
    """Train and evaluate one cell, as far as that is not done yet."""
    folder, cell = plan.folder(method, seed), CellState("evaluated")
    try:
        train(plan, method, seed, run)
        evaluate(plan, folder / "checkpoints", folder / "eval", seed, MODES.get(method, PAIR), run)
    except MatrixError as error:
        cell = CellState("trained" if (folder / TRAINED).exists() else "failed", error=str(error))
    print(f"{method}, seed {seed}: {cell.state}{' - ' + cell.error if cell.error else ''}", flush=True)
    return cell


def check_budgets(plan: Plan, rollouts: int, cells: Mapping[str, CellState]) -> dict[str, CellState]:
    """Compare each trained cell with the others: the same rollouts for the same number of problems."""
    logged = {key: steps(plan.out / key / METRICS) for key, cell in cells.items() if cell.state != "failed"}
    problems = max((sum(int(s["ledger/problems"]) for s in each) for each in logged.values()), default=0)
    return {
        key: replace(cell, parity=parity(logged[key], rollouts, problems)) if key in logged else cell
        for key, cell in cells.items()
    }
