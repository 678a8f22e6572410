"""Starting verl as a user does, as a command, and reading what it logged."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
TIME_LIMIT = 900  # a run takes two or three minutes; a hang must not eat the suite's time


@dataclass(frozen=True)
class Run:
    folder: Path
    returncode: int
    output: str

    @property
    def steps(self) -> list[dict]:
        """The metrics of each training step, validation before the first left out."""
        return [line["data"] for line in self._lines() if line["step"] > 0]

    @property
    def before_training(self) -> dict:
        return next(line["data"] for line in self._lines() if line["step"] == 0)

    def _lines(self) -> list[dict]:
        return read_jsonl(self.folder / "metrics.jsonl")


def read_jsonl(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def main_ppo(folder: Path, *overrides: str, env: dict[str, str] | None = None) -> Run:
    """`python -m verl.trainer.main_ppo` in `folder`, with every process it started gone afterwards."""
    folder.mkdir(parents=True, exist_ok=True)
    # Ray's sockets live below this path, and a socket's path may have no more than 107 characters.
    with tempfile.TemporaryDirectory(prefix="agon", dir="/tmp") as ray_dir:
        environment = {
            **os.environ,
            "RAY_TMPDIR": ray_dir,
            "VERL_FILE_LOGGER_PATH": str(folder / "metrics.jsonl"),
            "PYTHONPATH": str(ROOT),
            **(env or {}),
        }
        command = [sys.executable, "-m", "verl.trainer.main_ppo", *overrides]
        with (folder / "log").open("w") as log:
            process = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
            try:
                returncode = process.wait(timeout=TIME_LIMIT)
            finally:
                kill_marked(f"RAY_TMPDIR={ray_dir}")
        return Run(folder, returncode, (folder / "log").read_text())


def kill_marked(variable: str) -> None:
    """End the processes that carry this environment variable: Ray's outlive the command where it fails."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if variable.encode() in (entry / "environ").read_bytes().split(b"\0"):
                    os.kill(int(entry.name), signal.SIGKILL)
            except (OSError, ProcessLookupError):
                continue  # gone, or not ours


def succeeded(run: Run) -> Run:
    assert run.returncode == 0, f"the run failed, see {run.folder / 'log'}:\n{run.output[-4000:]}"
    return run
