"""One cell of a matrix: an arm and a seed, trained by verl's own command and evaluated by `agon_verl.evaluate`.

    OUT/<arm>/seed_<s>/
      settings.json     the overrides it was started with; other overrides for the same folder are refused
      metrics.jsonl     written by verl's file logger; rows of earlier starts are added when it ends
      pairs/            one JSON line per pair
      checkpoints/      a cell that was stopped continues from here
      trained.json      written when training is complete: the command and its commit, so that the folder can be moved
                        into another matrix
      adapters/         what is kept of the checkpoints, if the plan says so (keep.py)
      eval/             the output of `agon_verl.evaluate`
      train.log, eval.log

A cell that fails does not stop the others. Its state has the reason, and the same command tries it again.
"""

import json
import os
import shutil
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from agon_verl.files import write_atomically
from agon_verl.matrix.keep import ADAPTERS_FOLDER, CHECKPOINTS, PAIRS, keep_adapters, keep_pairs
from agon_verl.matrix.plan import Cell, MatrixError, Plan
from agon_verl.matrix.processes import Ended, Runner, Stopping
from agon_verl.pair.checkpoint import STOP_REQUEST, latest
from agon_verl.pair.run_folder import METRICS, read_metrics

TRAINED, SETTINGS, EARLIER = "trained.json", "settings.json", "metrics_earlier.jsonl"
SAVE_S = 60.0  # for a checkpoint and the end of all processes
EVALUATION_NOTICE_S = 45.0
WAITING, UNFINISHED, TRAINED_STATE, EVALUATED, FAILED = "waiting", "unfinished", "trained", "evaluated", "failed"


@dataclass(frozen=True)
class CellState:
    """`state` is waiting, unfinished, trained, evaluated or failed. `parity` is "ok", or how the budget differs.

    `command`, `commit` and `log` are those of the last training command; `evaluation` are the arguments that the
    results were made with.
    """

    state: str
    error: str | None = None
    parity: str | None = None
    step: int | None = None
    command: str | None = None
    commit: str | None = None
    log: str | None = None
    evaluation: tuple[str, ...] | None = None

    def to_json(self) -> dict[str, object]:
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_json(cls, values: Mapping[str, object]) -> "CellState":
        evaluation = values.get("evaluation")
        texts = {name: value for name, value in values.items() if name in cls.__dataclass_fields__}
        return cls(**{**texts, "evaluation": tuple(evaluation) if isinstance(evaluation, list) else None})  # type: ignore[arg-type]


def command_of(plan: Plan, cell: Cell) -> list[str]:
    return [sys.executable, "-m", "verl.trainer.main_ppo", *plan.training(cell)]


def train(plan: Plan, cell: Cell, run: Runner, origin: CellState) -> bool:
    """Train a cell, or continue its training. Returns whether it is complete; if not, time was up.

    `origin` has the command and the commit, for its folder.
    """
    folder = plan.folder(cell)
    if not (folder / TRAINED).exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / SETTINGS, json.dumps(plan.comparable(plan.training(cell)), indent=1) + "\n")
        root = folder / CHECKPOINTS
        (root / STOP_REQUEST).unlink(missing_ok=True)  # of a command that was killed
        if latest(root) is None:  # it starts anew: rows of an earlier start would be mixed with its own
            (folder / METRICS).unlink(missing_ok=True)
            (folder / EARLIER).unlink(missing_ok=True)
            shutil.rmtree(folder / PAIRS, ignore_errors=True)
        set_aside_metrics(folder)
        alone = plan.at_once == 1 and not plan.evaluate_beside
        env, log = {"VERL_FILE_LOGGER_PATH": str(folder / METRICS), **own_compiled_code(alone)}, folder / "train.log"
        ended = run(command_of(plan, cell), env, log, Stopping(lambda _: _request(root), lambda: notice(folder)))
        join_metrics(folder)
        if ended.status and not ended.stopped:
            raise MatrixError(f"training ended with status {ended.status}: see {log}")
        if ended.status:
            tidy(plan, cell)
            return False
        made = {"method": cell.arm.method, "seed": cell.seed, "command": origin.command, "commit": origin.commit}
        write_atomically(folder / TRAINED, json.dumps(made) + "\n")
    tidy(plan, cell)
    return True


def own_compiled_code(alone: bool) -> dict[str, str]:
    """Environment variables: engines that start together would write one cache of compiled code.

    See keep_compiled in preflight.py.
    """
    return {} if alone else {"VLLM_DISABLE_COMPILE_CACHE": os.environ.get("VLLM_DISABLE_COMPILE_CACHE", "1")}


def set_aside_metrics(folder: Path) -> None:
    """verl's file logger begins with an empty file, also where a run continues."""
    join_metrics(folder)  # of a command that was killed with its machine
    if (folder / METRICS).exists():
        (folder / METRICS).rename(folder / EARLIER)


def join_metrics(folder: Path) -> None:
    """Put the rows of earlier starts before those of the last one; of a step that is in both, the last counts."""
    metrics, earlier = folder / METRICS, folder / EARLIER
    if earlier.exists():
        rows = [path.read_text() for path in (earlier, metrics) if path.exists()]
        write_atomically(metrics, "".join(row if row.endswith("\n") else row + "\n" for row in rows if row))
        earlier.unlink()


def _request(checkpoints: Path) -> None:
    checkpoints.mkdir(parents=True, exist_ok=True)
    (checkpoints / STOP_REQUEST).touch()


def notice(folder: Path) -> float:
    """Seconds that a run needs to end its step and to save it: its longest step so far, and some room."""
    logged = [*steps(folder / EARLIER), *steps(folder / METRICS)]
    longest = max((step.get("timing_s/step", 0.0) + step.get("timing_s/testing", 0.0) for step in logged), default=0.0)
    return 1.2 * longest + SAVE_S


def seconds_needed(plan: Plan, cell: Cell, total: int | None) -> float:
    """What a cell needs to be worth a start: its start and one step, or all of its steps if it must run whole.

    A step takes what those of this cell took, else those of the same arm or of any cell; unknown, nothing.
    """
    own, arm = plan.folder(cell), plan.out / cell.arm.name
    logged = next(
        (rows for paths in ([own], arm.glob("seed_*"), plan.out.glob("*/seed_*")) if (rows := _all_steps(paths))), []
    )
    timed = [step["timing_s/step"] for step in logged if "timing_s/step" in step]
    per_step = sum(timed) / len(timed) if timed else 0.0
    count = (total - done(own)) if plan.whole and total else 1
    return 60 * plan.start + count * per_step + SAVE_S


def _all_steps(folders: Iterable[Path]) -> list[dict[str, float]]:
    return [step for folder in folders for step in steps(folder / METRICS)]


def done(folder: Path) -> int:
    """The step that a cell continues from."""
    newest = latest(folder / CHECKPOINTS)
    return int(newest.name.rpartition("_")[2]) if newest else 0


def tidy(plan: Plan, cell: Cell) -> None:
    """Remove what the plan does not keep. Done again after every visit, so a kill in between costs nothing."""
    folder = plan.folder(cell)
    if plan.pairs is not None:
        keep_pairs(folder, plan.pairs)
    if not plan.checkpoints and (folder / TRAINED).exists():
        keep_adapters(folder)


def evaluation_of(plan: Plan, cell: Cell) -> list[str]:
    """The arguments with which a trained cell is evaluated.

    The verifier is trusted: the plan's own overrides chose it, and training has run it.
    """
    folder = plan.folder(cell)
    adapters = folder / ADAPTERS_FOLDER
    target = adapters if adapters.exists() else folder / CHECKPOINTS
    return arguments_of(plan, str(target), folder / "eval", cell.seed, cell.arm.evaluated)


def arguments_of(plan: Plan, target: str, out: Path, seed: int, modes: Sequence[str]) -> list[str]:
    own = [target, "--out", str(out), "--seed", str(seed), "--trust-verifier", "--modes", *modes]
    return [*own, *plan.evaluate]


def evaluate(arguments: Sequence[str], log: Path, run: Runner, alone: bool = True) -> Ended:
    """`agon_verl.evaluate` generates only what is missing; it keeps what it has made when it is stopped."""
    log.parent.mkdir(parents=True, exist_ok=True)
    stopping = Stopping(lambda pid: os.kill(pid, signal.SIGINT), lambda: EVALUATION_NOTICE_S)
    return run([sys.executable, "-m", "agon_verl.evaluate", *arguments], own_compiled_code(alone), log, stopping)


def check_folder(plan: Plan, cell: Cell) -> None:
    """Refuse a folder that was started with other settings, and one that was copied in part.

    Adapters without trained.json: the cell would be trained anew, and its end would take them for the new ones and
    remove the checkpoints (keep.py).
    """
    folder = plan.folder(cell)
    if (folder / ADAPTERS_FOLDER).exists() and not (folder / TRAINED).exists():
        raise MatrixError(f"{folder} has {ADAPTERS_FOLDER}/ but no {TRAINED}: copy the folder whole, or remove it")
    path = folder / SETTINGS
    if not path.exists():
        return
    settings, before = plan.comparable(plan.training(cell)), plan.comparable(json.loads(path.read_text()))
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


def check_budgets(plan: Plan, rollouts: int, cells: Mapping[str, CellState]) -> dict[str, CellState]:
    """Compare each trained cell with the others: the same rollouts for the same number of problems."""
    trained = [key for key, cell in cells.items() if cell.state in (TRAINED_STATE, EVALUATED)]
    logged = {key: steps(plan.out / key / METRICS) for key in trained}
    problems = max((sum(int(s["ledger/problems"]) for s in each) for each in logged.values()), default=0)
    return {
        key: replace(cell, parity=parity(logged[key], rollouts, problems)) if key in logged else cell
        for key, cell in cells.items()
    }
