"""Starting verl as a user does, as a command, and reading what it logged."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
TIME_LIMIT = 900  # a run takes two or three minutes; a hang must not eat the suite's time
PROMPTS, N = 4, 4


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
    return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]


def sizes(tiny: Path, n: int = N) -> list[str]:
    """The overrides that make a run small."""
    return [
        f"actor_rollout_ref.model.path={tiny / 'model'}",
        f"data.train_files={tiny / 'train.parquet'}",
        f"data.val_files={tiny / 'val.parquet'}",
        f"data.train_batch_size={PROMPTS}",
        "data.max_prompt_length=256",
        "data.max_response_length=32",
        f"actor_rollout_ref.rollout.n={n}",
        f"reward.custom_reward_function.path={ROOT / 'benchmarks' / 'coin_reward.py'}",
        "trainer.logger=[console,file]",
        "trainer.resume_mode=disable",
    ]


def main_ppo(
    folder: Path,
    *overrides: str,
    env: dict[str, str] | None = None,
    meanwhile: Callable[[str], None] | None = None,
) -> Run:
    """`python -m verl.trainer.main_ppo` in `folder`, with every process it started gone afterwards.

    `meanwhile` runs in a thread and gets the environment variable that marks the run's processes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    more = {"VERL_FILE_LOGGER_PATH": str(folder / "metrics.jsonl"), **(env or {})}
    with ray_environment(more) as (environment, mark), (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "verl.trainer.main_ppo", *overrides],
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        if meanwhile is not None:
            threading.Thread(target=meanwhile, args=(mark,), daemon=True).start()
        try:
            returncode = process.wait(timeout=TIME_LIMIT)
        finally:
            kill_marked(mark)
    return Run(folder, returncode, (folder / "log").read_text())


@contextmanager
def ray_environment(more: dict[str, str] | None = None) -> Iterator[tuple[dict[str, str], str]]:
    """The environment of a command that starts Ray, and the variable in it that marks the command's processes.

    A folder of its own for Ray, so that it joins no cluster that is there already.
    """
    # Ray's sockets live below this path, and a socket's path may have no more than 107 characters.
    with tempfile.TemporaryDirectory(prefix="agon", dir="/tmp", ignore_cleanup_errors=True) as ray_dir:
        run = {"RAY_TMPDIR": ray_dir, "PYTHONPATH": python_path()}
        own = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
        yield {**own, **run, **(more or {})}, f"RAY_TMPDIR={ray_dir}"


def python_path() -> str:
    """This clone first, and what is on the path already: an environment may be no more than folders on it."""
    return os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])


def marked(variable: str) -> Iterator[Path]:
    """The processes that carry this environment variable, as folders of /proc."""
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                if variable.encode() in (entry / "environ").read_bytes().split(b"\0"):
                    yield entry
        except OSError:
            continue  # gone, or not ours


def kill_marked(variable: str, name: str = "", sent: signal.Signals = signal.SIGKILL) -> int:
    """Send it to those of them whose name starts with `name`, and count them: Ray's outlive a command that fails."""
    killed = 0
    for entry in marked(variable):
        try:
            if (entry / "cmdline").read_bytes().decode(errors="replace").startswith(name):
                os.kill(int(entry.name), sent)
                killed += 1
        except OSError:
            continue
    return killed


def wait_for_step(metrics: Path, step: int) -> None:
    """Until the run has logged `step`."""
    while not (metrics.exists() and any(line["step"] >= step for line in read_jsonl(metrics))):
        time.sleep(0.2)


def changed(update: dict) -> set[str]:
    """Which parts of the state an update touched, on any rank."""
    ranks = zip(update["before"], update["after"], strict=True)
    return {part for before, after in ranks for part in before if before[part] != after[part]}


def succeeded(run: Run) -> Run:
    assert run.returncode == 0, f"the run failed, see {run.folder / 'log'}:\n{run.output[-4000:]}"
    return run
