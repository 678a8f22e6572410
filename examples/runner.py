"""Runs an example: builds its model and data once, trains the pair with verl in the background, shows what came of it.

Nothing is done twice. What is built and what is trained lie in folders named after a hash of all that decides them, and
get their final name or mark only when they are complete.
"""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from tqdm import tqdm

from agon_verl.report.read import read_metrics
from examples.report import plot, table

ROOT = Path(__file__).resolve().parents[1]
# What the log says as start-up goes on. Most of it is a dozen processes importing verl and vLLM.
PHASES = (
    ("", "starting verl"),
    ("Started a local Ray instance", "starting the processes"),
    ("Total training steps", "loading the model to train"),
    ("reward loop manager initialized", "loading the model into vLLM"),
    ("Creating file logger", "held-out accuracy before training"),
)
ERROR = re.compile(r"^(?:[\w.]*(?:Error|Exception|Timeout)\b.*|agon-verl: .*|.*\bout of memory\b.*)", re.IGNORECASE)
PREFIX = re.compile(r"\x1b\[[\d;]*m|^\([^)]* pid=\d+[^)]*\) ?")
POLL_SECONDS = 1.0


class TrainingFailed(RuntimeError):
    """The command ended early; the message is what its log says about it."""


@dataclass(frozen=True)
class Example:
    """One example. `build` fills an empty folder with `model/`, `train.parquet` and `test.parquet`."""

    name: str
    title: str
    data_source: str
    build: Callable[[Path], None]
    built_from: str
    overrides: Sequence[str]
    steps: int

    def run(self, out: Path, rerun: bool) -> None:
        inputs = build_once(out / f"inputs-{digest([self.built_from])}", self.build)
        overrides = [*self.overrides, f"trainer.total_training_steps={self.steps}"]
        folder = out / f"run-{digest([self.built_from, *overrides])}"
        if rerun or not is_finished(folder):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            train(folder, [*files(inputs, folder), *overrides], self.steps)
            (folder / "finished.json").write_text(json.dumps({"example": self.name, "overrides": overrides}, indent=1))
        else:
            print(f"This run is already there (--rerun repeats it): {folder}")
        metrics = read_metrics(folder / "metrics.jsonl")
        n = len(pd.read_parquet(inputs / "test.parquet"))
        plot(metrics, self.data_source, n, self.title, folder / "curves.png")
        print(f"\n{table(metrics, self.data_source, n)}\n")
        for what, where in (("curves", "curves.png"), ("pairs", "pairs"), ("adapters", "checkpoints")):
            print(f"{what:<10}{folder / where}")


def digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:10]


def is_finished(folder: Path) -> bool:
    return (folder / "finished.json").exists()


def build_once(folder: Path, build: Callable[[Path], None]) -> Path:
    """Builds beside `folder` and renames, so that an interrupted build leaves nothing that looks complete."""
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="building-", dir=folder.parent) as scratch:
            (part := Path(scratch) / "inputs").mkdir()
            build(part)
            part.rename(folder)
    return folder


def files(inputs: Path, folder: Path) -> list[str]:
    return [
        f"actor_rollout_ref.model.path={inputs / 'model'}",
        f"data.train_files={inputs / 'train.parquet'}",
        f"data.val_files={inputs / 'test.parquet'}",
        f"trainer.default_local_dir={folder / 'checkpoints'}",
        f"trainer.rollout_data_dir={folder / 'pairs'}",
    ]


def train(folder: Path, overrides: Sequence[str], steps: int) -> None:
    """verl's own command as a subprocess: output in `train.log`, metrics in `metrics.jsonl`, progress on the screen."""
    log, metrics = folder / "train.log", folder / "metrics.jsonl"
    command = [sys.executable, "-m", "verl.trainer.main_ppo", "+recipe=agon_cpu", "trainer.logger=[file,console]"]
    command += ["trainer.resume_mode=disable", f"hydra.run.dir={folder / 'hydra'}", *overrides]
    print(f"Training for {steps} steps, log in {log}")
    # Ray's sockets lie below this folder, and a socket's path may have no more than 107 characters.
    with tempfile.TemporaryDirectory(prefix="agon", dir="/tmp", ignore_cleanup_errors=True) as ray_dir:
        mark = {"RAY_TMPDIR": ray_dir}
        environment = {**os.environ, **mark, "VERL_FILE_LOGGER_PATH": str(metrics), "PYTHONUNBUFFERED": "1"}
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        try:
            _show_progress(process, log, metrics, steps)
        finally:
            _end(process, f"RAY_TMPDIR={ray_dir}")
    if process.returncode or read_metrics(metrics).last_step < steps:
        raise TrainingFailed(f"{what_matters(log.read_text(errors='replace'))}\nthe whole log: {log}")


def _show_progress(process: subprocess.Popen, log: Path, metrics: Path, steps: int) -> None:
    """A bar for start-up, whose length is not known, and one for the steps, with the time left."""
    live = sys.stderr.isatty()  # a file gets a line when something happened, not one a second
    with tqdm(total=len(PHASES), bar_format="start-up {n}/{total}: {desc} [{elapsed} of about 02:00]") as bar:
        while process.poll() is None and 0 not in read_metrics(metrics).by_step:
            number = phase(log.read_text(errors="replace")) + 1
            news, bar.n = number > bar.n, number
            bar.set_description_str(PHASES[number - 1][1], refresh=live or news)
            time.sleep(POLL_SECONDS)
    with tqdm(total=steps, desc="training the pair", unit="step", disable=process.poll() is not None) as bar:
        while process.poll() is None:
            time.sleep(POLL_SECONDS)
            seen = read_metrics(metrics)
            news = seen.last_step - bar.n
            if news:
                _, drafts = seen.curve("draft/acc")
                _, challenges = seen.curve("challenge/acc")
                bar.set_postfix(drafts=f"{drafts[-1]:.0%}", challenges=f"{challenges[-1]:.0%}", refresh=False)
                bar.update(news)
            if live or news:
                bar.refresh()


def phase(log: str) -> int:
    """How far start-up has come: the number of the last phase whose sign is in the log."""
    return max(i for i, (sign, _) in enumerate(PHASES) if sign in log)


def _end(process: subprocess.Popen, mark: str) -> None:
    """Ends the command and all it started: Ray's processes leave the group, but keep the mark in their environment."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)
        except OSError:  # gone meanwhile, or another user's
            continue
    process.wait()


def what_matters(log: str, lines: int = 12) -> str:
    """The errors a log names, each once, or its last lines where it names none."""
    clean = [PREFIX.sub("", PREFIX.sub("", line)).rstrip() for line in log.splitlines()]
    errors = list(dict.fromkeys(line for line in clean if ERROR.match(line)))
    return "\n".join(f"  {line[:300]}" for line in (errors or [line for line in clean if line])[-lines:])


def main(example: Example, out: Path, rerun: bool) -> None:
    """Runs an example from the command line: errors become a message and an exit status, and no process is left."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        example.run(out.resolve(), rerun)
    except TrainingFailed as error:
        sys.exit(f"\nThe training ended before its last step:\n{error}")
    except KeyboardInterrupt:
        sys.exit("\nInterrupted; everything that was started has been ended.")
