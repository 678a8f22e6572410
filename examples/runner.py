"""Runs an example: builds its model and data once, trains the pair with verl as a subprocess, and shows the results.

Finished work is not repeated. The inputs and the run are kept in folders named after a hash of everything that
determines them. Inputs get their final name, and a run its `finished.json`, only when they are complete.
"""

import hashlib
import json
import os
import re
import shlex
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

from agon_verl.evaluate.statistics import exact_interval
from agon_verl.pair import checkpoint
from agon_verl.pair.run_folder import Metrics, read_metrics
from agon_verl.report.__main__ import write_report
from agon_verl.report.runs import ReportError

ROOT = Path(__file__).resolve().parents[1]
# A line of the log that begins each phase of start-up. Most of the time goes into importing verl and vLLM.
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
ENVIRONMENT = {
    "VLLM_USE_FLASHINFER_SAMPLER": "0",  # FlashInfer's needs a compiler on the machine; vLLM has its own
}
WAYS = {
    "A_to_B": "A drafts, B challenges",
    "B_to_A": "B drafts, A challenges",
    "A_alone": "A alone",
    "B_alone": "B alone",
}


class TrainingFailed(RuntimeError):
    """The training command ended early; the message has the errors from its log."""


@dataclass(frozen=True)
class Example:
    """One example. `build` writes `train.parquet`, `heldout_file` and perhaps `model/` into an empty folder.

    `built_from` is everything that determines what `build` writes, as text. `model` is a path or hub name, if it is not
    the model that was built. `start_up` is how long the start takes, for the progress bar.
    """

    name: str
    title: str
    build: Callable[[Path], None]
    built_from: str
    overrides: Sequence[str]
    steps: int
    recipe: str = "agon_cpu"
    model: str | None = None
    heldout_file: str = "test.parquet"
    start_up: str = "02:00"

    def inputs(self, out: Path) -> Path:
        return out / f"inputs-{digest([self.built_from])}"

    def folder(self, out: Path) -> Path:
        return out / f"run-{digest([self.built_from, str(self.model), *self._settings()])}"

    def command(self, out: Path) -> list[str]:
        """verl's command, which needs the inputs."""
        inputs, folder = self.inputs(out), self.folder(out)
        return [
            *(sys.executable, "-m", "verl.trainer.main_ppo", f"+recipe={self.recipe}"),
            f"actor_rollout_ref.model.path={self.model or inputs / 'model'}",
            f"data.train_files={inputs / 'train.parquet'}",
            f"data.val_files={inputs / self.heldout_file}",
            f"trainer.default_local_dir={folder / 'checkpoints'}",
            f"trainer.rollout_data_dir={folder / 'pairs'}",
            "trainer.logger=[file,console]",
            "trainer.resume_mode=disable",
            f"hydra.run.dir={folder / 'hydra'}",
            *self._settings(),
        ]

    def _settings(self) -> list[str]:
        return [*self.overrides, f"trainer.total_training_steps={self.steps}"]

    def run(self, out: Path, rerun: bool) -> None:
        inputs, folder = build_once(self.inputs(out), self.build), self.folder(out)
        if not rerun and not is_finished(folder) and (saved := checkpoint.latest(folder / "checkpoints")):
            command = shlex.join([*self.command(out), "trainer.resume_mode=auto"])
            sys.exit(f"This run ended early and left {saved}. Continue it with\n{command}\nor start again with --rerun")
        if rerun or not is_finished(folder):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            train(folder, self.command(out), self.steps, self.start_up)
            done = {"example": self.name, "overrides": self._settings()}
            (folder / "finished.json").write_text(json.dumps(done, indent=1))
        else:
            print(f"This run is finished already (--rerun repeats it): {folder}")
        held_out = pd.read_parquet(inputs / self.heldout_file)
        (source,) = set(held_out["data_source"])
        print(f"\n{accuracy_table(read_metrics(folder / 'metrics.jsonl'), source, len(held_out))}\n")
        try:
            report = str(write_report([folder], folder, self.title))
        except ReportError as error:  # what was trained is there all the same
            report = f"not written: {error}. Then the same command writes it"
        for name, path in (("report", report), ("pairs", folder / "pairs"), ("adapters", folder / "checkpoints")):
            print(f"{name:<10}{path}")


def accuracy_table(metrics: Metrics, data_source: str, problems: int) -> str:
    """Held-out accuracy before the first step and after the last, with exact 95 % intervals over the problems."""

    def cell(share: float) -> str:
        interval = exact_interval(round(share * problems), problems)
        return f"{100 * share:.1f} % [{100 * interval.low:.0f}, {100 * interval.high:.0f}]"

    head = f"{f'held-out accuracy, n = {problems}':<28}{'before':>18}{'after':>18}{'change':>10}"
    lines = [head, "-" * len(head)]
    for way, label in WAYS.items():
        steps, shares = metrics.curve(f"val-core/{data_source}/{way}/acc/mean@1")
        if len(steps) < 2:
            raise ValueError(f"metrics.jsonl needs the held-out accuracy of {way} before and after training")
        before, after = shares[0], shares[-1]
        lines.append(f"{label:<28}{cell(before):>18}{cell(after):>18}{100 * (after - before):>+10.1f}")
    return "\n".join(lines)


def digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:10]


def is_finished(folder: Path) -> bool:
    return (folder / "finished.json").exists()


def build_once(folder: Path, build: Callable[[Path], None]) -> Path:
    """Builds in a temporary folder and renames it, so that an interrupted build leaves nothing behind."""
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="building-", dir=folder.parent) as scratch:
            (part := Path(scratch) / "inputs").mkdir()
            build(part)
            part.rename(folder)
    return folder


def train(folder: Path, command: Sequence[str], steps: int, start_up: str) -> None:
    """Runs verl's command as a subprocess: output in `train.log`, metrics in `metrics.jsonl`, progress on stderr."""
    log, metrics = folder / "train.log", folder / "metrics.jsonl"
    print(f"Training for {steps} steps, log in {log}")
    # Ray puts its sockets into this folder, and the path of a socket has at most 107 characters.
    with tempfile.TemporaryDirectory(prefix="agon", dir="/tmp", ignore_cleanup_errors=True) as ray_dir:
        mark = {"RAY_TMPDIR": ray_dir}
        logger = {"VERL_FILE_LOGGER_PATH": str(metrics), "PYTHONUNBUFFERED": "1"}
        environment = {**ENVIRONMENT, **os.environ, **mark, **logger}
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        try:
            _show_progress(process, log, metrics, steps, start_up)
        finally:
            _end(process, f"RAY_TMPDIR={ray_dir}")
    if process.returncode or read_metrics(metrics).last_step < steps:
        raise TrainingFailed(f"{error_lines(log.read_text(errors='replace'))}\nfull log: {log}")


def _show_progress(process: subprocess.Popen, log: Path, metrics: Path, steps: int, start_up: str) -> None:
    """One bar for the phases of start-up, then one for the training steps with the estimated time left."""
    live = sys.stderr.isatty()  # in a file: one line per change, not one per second
    layout = f"start-up {{n}}/{{total}}: {{desc}} [{{elapsed}} of about {start_up}]"
    with tqdm(total=len(PHASES), bar_format=layout) as bar:
        while process.poll() is None and 0 not in read_metrics(metrics).by_step:
            number = phase(log.read_text(errors="replace")) + 1
            changed, bar.n = number > bar.n, number
            bar.set_description_str(PHASES[number - 1][1], refresh=live or changed)
            time.sleep(POLL_SECONDS)
    with tqdm(total=steps, desc="training the pair", unit="step", disable=process.poll() is not None) as bar:
        while process.poll() is None:
            time.sleep(POLL_SECONDS)
            logged = read_metrics(metrics)
            new_steps = logged.last_step - bar.n
            if new_steps:
                _, drafts = logged.curve("draft/acc")
                _, challenges = logged.curve("challenge/acc")
                bar.set_postfix(drafts=f"{drafts[-1]:.0%}", challenges=f"{challenges[-1]:.0%}", refresh=False)
                bar.update(new_steps)
            if live or new_steps:
                bar.refresh()


def phase(log: str) -> int:
    """The number of the last phase of start-up whose first line is in the log."""
    return max(i for i, (first_line, _) in enumerate(PHASES) if first_line in log)


def _end(process: subprocess.Popen, mark: str) -> None:
    """Ends the command and all its processes: Ray's leave the process group, but have `mark` in their environment."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)
        except OSError:  # the process has ended, or belongs to another user
            continue
    process.wait()


def error_lines(log: str, lines: int = 12) -> str:
    """The errors in a log, each once; without any, the last lines of the log."""
    clean = [PREFIX.sub("", PREFIX.sub("", line)).rstrip() for line in log.splitlines()]
    errors = list(dict.fromkeys(line for line in clean if ERROR.match(line)))
    return "\n".join(f"  {line[:300]}" for line in (errors or [line for line in clean if line])[-lines:])


def main(example: Example, out: Path, rerun: bool) -> None:
    """Runs an example from the command line: a failure becomes a message and an exit status."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        example.run(out.resolve(), rerun)
    except TrainingFailed as error:
        sys.exit(f"\nThe training ended before its last step:\n{error}")
    except KeyboardInterrupt:
        sys.exit("\nInterrupted; all processes of the run have ended.")
