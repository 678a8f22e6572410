"""One cell of a matrix: a method and a seed, trained by verl's own command and evaluated by `agon_verl.evaluate`.

    OUT/<method>/seed_<s>/
      settings.json     what it was started with; another command for the same folder is refused
      metrics.jsonl     what verl's file logger wrote
      pairs/            one JSON line a pair
      checkpoints/      from which a cell that was stopped goes on
      trained.json      written when training came to its end
      eval/             of `agon_verl.evaluate`
      train.log, eval.log

A cell fails by itself: its state says why, the others go on, and the same command tries it again.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from agon_verl.errors import AgonError
from agon_verl.files import write_atomically

BASE = "base"  # the untrained model has a folder of its own


class MatrixError(AgonError, RuntimeError):
    """One sentence: what is in the way, and what to do."""


@dataclass(frozen=True)
class Plan:
    """What all cells share."""

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
        """Run a command to its end, and give its exit status."""


def run_here(command: Sequence[str], env: Mapping[str, str], log: Path) -> int:
    with log.open("a") as out:
        return subprocess.run(command, env={**os.environ, **env}, stdout=out, stderr=subprocess.STDOUT).returncode


def train(plan: Plan, method: str, seed: int, run: Runner) -> None:
    """Train a cell, or go on with it; nothing if it is trained already."""
    folder = plan.folder(method, seed)
    _hold_to(folder / "settings.json", plan.training(method, seed))
    if (folder / "trained.json").exists():
        return
    command = [sys.executable, "-m", "verl.trainer.main_ppo", *plan.training(method, seed)]
    status = run(command, {"VERL_FILE_LOGGER_PATH": str(folder / "metrics.jsonl")}, folder / "train.log")
    if status:
        raise MatrixError(f"training ended with status {status}: see {folder / 'train.log'}")
    write_atomically(folder / "trained.json", json.dumps({"method": method, "seed": seed}) + "\n")


def evaluate(plan: Plan, target: Path | str, folder: Path, seed: int, modes: Sequence[str], run: Runner) -> None:
    """Evaluate into `folder`; `agon_verl.evaluate` itself does only what is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "agon_verl.evaluate", str(target), "--out", str(folder), "--seed", str(seed)]
    status = run([*command, "--modes", *modes, *plan.evaluation], {}, folder.parent / "eval.log")
    if status:
        raise MatrixError(f"evaluation ended with status {status}: see {folder.parent / 'eval.log'}")


def _hold_to(path: Path, settings: Sequence[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        write_atomically(path, json.dumps(list(settings), indent=1) + "\n")
        return
    before = json.loads(path.read_text())
    if differ := [each for each in {*before, *settings} if (each in before) != (each in settings)]:
        raise MatrixError(
            f"{path.parent} was started with other settings ({', '.join(sorted(differ)[:4])}): give another --out, or "
            "remove the folder"
        )
