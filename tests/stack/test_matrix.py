"""The matrix: what is run, what is not run again, what a failed cell leaves behind, and whether budgets are equal.

Training and evaluation are commands; here a function that writes their files stands in for both. `tests/real` runs
the real ones.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import agon_verl.matrix.__main__ as command
from agon_verl.evaluate.__main__ import split_at
from agon_verl.evaluate.results import Results
from agon_verl.files import lock
from agon_verl.matrix.__main__ import arguments_to_plan, matrix
from agon_verl.matrix.cells import join_metrics, notice, parity, seconds_needed, set_aside_metrics, steps
from agon_verl.matrix.plan import Cell, MatrixError, Plan, read_plan
from agon_verl.matrix.processes import Clock, Ended, Here, Stopping
from tests.ended import gone
from tests.stack.test_export import make_checkpoint

N = 8


def results(modes: Mapping[str, Sequence[int]]) -> Results:
    """Of an evaluation in which every mode takes the same tokens."""
    final, per_pass = {"generated": 40, "prefilled": 20}, {"generated": 20.0, "prefilled": 5.0}
    counts = {"problems": 4, "answers": 4, "left_out": 0, "interval": None, "length": 10.0, "truncated": 0.0}
    counts |= {"format": 1.0, "ledger": {"final": final, "per_pass": per_pass}}
    shares = {mode: sum(rights) / len(rights) for mode, rights in modes.items()}
    both = {"A_to_B", "B_to_A"} <= modes.keys()
    toy = {
        "problems": 4,
        "modes": {mode: {**counts, "pass@1": share} for mode, share in shares.items()},
        "tests": [],
        "post_hoc": max(("A_to_B", "B_to_A"), key=lambda m: shares[m]) if both else None,
        "outcomes": {m: {f"p{i}": [right] for i, right in enumerate(rights)} for m, rights in modes.items()},
    }
    return Results(
        target="run",
        samples=1,
        settings={},
        versions={},
        direction={"chosen": "B_to_A" if both else None, "why": ""},
        sets={"toy": toy},
        development=None,
        ledger={"generations": 4, "generated": 40, "prefilled": 20},
        left_out=0,
    )


RIGHT = {
    "base": [0, 0, 0, 0],
    "moa": [1, 0, 0, 0],
    "A": [1, 0, 0, 0],
    "B": [0, 0, 0, 0],
    "A_to_A": [1, 1, 1, 0],
    "B_to_B": [0, 0, 0, 0],
    "A_to_B": [1, 1, 0, 0],
    "B_to_A": [1, 0, 0, 0],
}


class Left(Clock):
    """So many seconds are left, however long a test takes."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    @property
    def left(self) -> float:
        return self._seconds


@pytest.fixture(scope="module", autouse=True)
def composed_once() -> Iterator[None]:
    """A composed configuration takes seconds, and differs between these tests in its output folder only."""
    made: dict[tuple[str, ...], Any] = {}
    compose = command.configured

    def configured(plan: Plan, cell: Cell) -> Any:
        key = tuple(plan.comparable(plan.training(cell)))
        if key not in made:
            made[key] = compose(plan, cell)
        return made[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "configured", configured)
        yield


def base_model(parent: Path) -> Path:
    folder = parent / "base_model"
    folder.mkdir(exist_ok=True)
    save_file({"weight": torch.arange(12.0)}, folder / "model.safetensors")
    return folder


class Commands:
    """Stands in for verl and the evaluation. `time`: as many steps as fit into a visit; the cell has two."""

    def __init__(self, failing: str = "", rollouts: int = 2 * N * 4, time: int = 99) -> None:
        self.failing, self.rollouts, self.time, self.ran, self.commands = failing, rollouts, time, [], []

    def __call__(self, command: Sequence[str], env: Mapping[str, str], log: Path, stopping: Stopping) -> Ended:
        self.ran.append(command[2])
        self.commands.append(command)
        log.write_text("a line\n")
        if command[2] == "verl.trainer.main_ppo":
            if self.failing and self.failing in " ".join(command):
                return Ended(1)
            return self._train(command, Path(env["VERL_FILE_LOGGER_PATH"]), stopping)
        status = 0
        for part in split_at("--and", command[3:]):
            if self.failing and self.failing in " ".join(part):
                status = 1
                continue
            modes = part[part.index("--modes") + 1 : part.index("--data")]
            right = results({mode: RIGHT[mode] for mode in modes})
            out = Path(part[part.index("--out") + 1])
            out.mkdir(parents=True, exist_ok=True)
            right.write(out / "results.json")
        return Ended(status)

    def _train(self, command: Sequence[str], metrics: Path, stopping: Stopping) -> Ended:
        folder = metrics.parent
        metrics.write_text("")  # as verl's file logger does, also where a run continues
        root = folder / "checkpoints"
        done = [int(path.name[12:]) for path in root.glob("global_step_*")]
        for step in range(max(done, default=0) + 1, 3):
            data = {"ledger/rollouts": self.rollouts, "ledger/problems": 4, "timing_s/step": 30.0}
            with metrics.open("a") as log:
                log.write(json.dumps({"step": step, "data": data}) + "\n")
            self.time -= 1
            if step == 2 or self.time == 0:
                players = "one" if "+method=grpo" in command else "pair"
                make_checkpoint(root, base_model(folder.parents[2]), step, game={"players": players})
                (folder / "pairs").mkdir(exist_ok=True)
                pairs = [{"uid": f"{step}-{problem}", "n": n} for problem in range(4) for n in range(N)]
                (folder / "pairs" / f"{step}.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
            if self.time == 0 and step < 2:
                stopping.ask(0)
                assert (root / "stop").exists()
                return Ended(1, stopped=True)
        return Ended(0)


def command_line(out: Path, *more: str) -> list[str]:
    own = ["--out", str(out), "--methods", "grpo", "adv", "--seeds", "0", "1", *more]
    return [*own, "--evaluate", "--data", "toy.parquet"]


def play(out: Path, run: Commands, *more: str, overrides: Sequence[str] = ()) -> str:
    options, plan = arguments_to_plan([*command_line(out, *more), "--", *overrides])
    return matrix(plan, run, Clock(), options.only)[0]


def test_the_table_has_the_rows_of_each_method(tmp_path: Path) -> None:
    text = play(tmp_path, Commands())
    rows = {
        line.split("|")[1].strip(): [c.strip() for c in line.split("|")[2:-1]]
        for line in reversed(text.splitlines())
        if "|" in line
    }
    assert rows["zero-shot"][:2] == ["1", "0.0"]
    assert rows["Mixture-of-Agents, untrained"][1] == "25.0"
    assert rows["GRPO, 2N rollouts"][:2] == ["2", "25.0"]
    assert rows["GRPO, 2N rollouts"][3:5] == ["0.0", "25.0 to 25.0"]
    assert rows["GRPO, two-pass self-cascade"][1] == "75.0"
    assert rows["Agon"][1] == "25.0"  # the direction chosen beforehand
    assert rows["Agon, direction post hoc"][1] == "50.0"
    assert rows["Agon"][5:] == ["10", "20", "5", "–"]  # B is never right: its errors correlate with nothing
    assert rows["Agon − GRPO, two-pass self-cascade"][0] == "−50.0" and rows["Agon − GRPO, 2N rollouts"][0] == "+0.0"
    assert rows["Agon − GRPO, two-pass self-cascade"][5] == "−50.0, −50.0"  # each seed
    by_seed = [line for line in text.splitlines() if line.startswith("| Agon | 25.0 B_to_A")]
    assert by_seed == ["| Agon | 25.0 B_to_A; 25.0 [0.6, 80.6] | 25.0 B_to_A; 25.0 [0.6, 80.6] |"]  # Clopper-Pearson


def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    play(tmp_path, Commands())
    again = Commands()
    play(tmp_path, again)
    assert again.ran == []
    other = ["--out", str(tmp_path), "--methods", "grpo", "adv", "--seeds", "0", "1", "--evaluate", "--data", "more"]
    matrix(arguments_to_plan(other)[1], again, Clock())
    assert again.ran == ["agon_verl.evaluate"]  # which generates only what is missing
    more = Commands()
    play(tmp_path, more, "--seeds", "0", "1", "2")
    assert more.ran.count("verl.trainer.main_ppo") == 2


def test_a_failed_cell_is_marked_and_tried_again(tmp_path: Path) -> None:
    text = play(tmp_path, Commands(failing="adv/seed_1"))
    cells = json.loads((tmp_path / "matrix.json").read_text())["cells"]
    assert cells["adv/seed_1"]["state"] == "failed" and "train.log" in cells["adv/seed_1"]["error"]
    assert cells["adv/seed_0"]["state"] == cells["grpo/seed_1"]["state"] == "evaluated"
    assert "| Agon | 1 of 2 (1 failed) |" in text
    mended = Commands()
    assert "| Agon | 2 |" in play(tmp_path, mended)
    assert mended.ran.count("verl.trainer.main_ppo") == 1


def test_an_evaluation_that_fails_does_not_lose_the_others(tmp_path: Path) -> None:
    play(tmp_path, Commands(failing="adv/seed_1/eval"))
    cells = json.loads((tmp_path / "matrix.json").read_text())["cells"]
    assert cells["adv/seed_1"]["state"] == "trained" and "eval.log" in cells["adv/seed_1"]["error"]
    assert {cells[key]["state"] for key in cells if key != "adv/seed_1"} == {"evaluated"}
    mended = Commands()
    play(tmp_path, mended)
    assert mended.ran == ["agon_verl.evaluate"] and "--and" not in mended.commands[0]


def test_other_settings_for_the_same_folder_are_refused(tmp_path: Path) -> None:
    play(tmp_path, Commands())
    again = Commands()
    with pytest.raises(MatrixError, match=r"other settings \(actor_rollout_ref.actor.optim.lr=1e-3"):
        play(tmp_path, again, overrides=["actor_rollout_ref.actor.optim.lr=1e-3"])
    assert again.ran == []


def test_a_folder_that_was_copied_in_part_is_refused(tmp_path: Path) -> None:
    """A copy ended before trained.json: after hours of training its adapters would have stood for the new ones."""
    (tmp_path / "grpo" / "seed_0" / "adapters" / "A").mkdir(parents=True)
    run = Commands()
    with pytest.raises(MatrixError, match=r"grpo/seed_0 has adapters/ but no trained\.json: copy the folder whole"):
        play(tmp_path, run)
    assert run.ran == []


def test_a_folder_that_was_moved_continues(tmp_path: Path) -> None:
    """Another machine has it somewhere else."""
    play(tmp_path / "here", Commands(time=1), "--only", "train")
    (tmp_path / "here").rename(tmp_path / "there")
    run = Commands()
    play(tmp_path / "there", run)
    assert run.ran == ["verl.trainer.main_ppo", "agon_verl.evaluate"]
    assert "/there/grpo/seed_0/checkpoints" in " ".join(run.commands[0])


def test_unequal_budgets_are_reported_and_not_compared(tmp_path: Path) -> None:
    text = play(tmp_path, Commands(rollouts=2 * N * 4 - 2))
    named = "**Unequal budgets, not compared:** grpo/seed_0: step 1 generated 62 rollouts for 4 problems, not 64"
    assert named in text and "Agon − GRPO" not in text


def test_overrides_that_do_not_compose(tmp_path: Path) -> None:
    with pytest.raises(MatrixError, match="does not compose with the overrides of grpo/seed_0"):
        play(tmp_path, Commands(), overrides=["nonsense=1"])


def test_parity_by_hand(tmp_path: Path) -> None:
    step = {"ledger/rollouts": 64, "ledger/problems": 4}
    assert parity([step, step], n=8, problems=8) == "ok"
    assert parity([step], n=8, problems=8) == "trained on 4 problems, not 8"
    assert "not 128" in parity([step], n=16, problems=4)
    assert parity([], n=8, problems=4) == "no step was logged"


def test_a_step_that_was_run_again_counts_once(tmp_path: Path) -> None:
    lines = [{"step": s, "data": {"ledger/rollouts": r, "ledger/problems": 4}} for s, r in ((1, 64), (2, 1), (2, 64))]
    torn = '{"step": 3, "data": {"ledger'
    (tmp_path / "metrics.jsonl").write_text("\n".join([*map(json.dumps, lines), torn]))
    assert [s["ledger/rollouts"] for s in steps(tmp_path / "metrics.jsonl")] == [64, 64]


def test_the_evaluation_needs_data(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        arguments_to_plan(["--out", "x"])
    assert "--evaluate --data SET" in capsys.readouterr().err


PLAN = """
recipe: agon
arms:
  grpo: {}
  agon_value: {method: adv, overrides: [agon.withhold=value], label: Agon with values}
  margin: {wave: 2, modes: [A_to_B, B_to_A]}
seeds: [0, 1]
overrides: [trainer.total_training_steps=2]
evaluate: [--data, toy.parquet]
untrained: [base]
start: 1
cache_gib: 0.5
pairs: 1
checkpoints: false
"""


BESIDE = PLAN + "evaluate_beside: true\n"
TRAIN, EVALUATE = "verl.trainer.main_ppo", "agon_verl.evaluate"


def planned(tmp_path: Path, text: str = PLAN, *options: str) -> tuple:
    (tmp_path / "plan.yaml").write_text(text)
    return arguments_to_plan([str(tmp_path / "plan.yaml"), "--out", str(tmp_path / "out"), *options])


def states(tmp_path: Path) -> dict[str, str]:
    cells = json.loads((tmp_path / "out" / "matrix.json").read_text())["cells"]
    return {key: cell["state"] for key, cell in cells.items()}


def test_a_plan_runs_seed_by_seed_and_wave_by_wave(tmp_path: Path) -> None:
    _, plan = planned(tmp_path)
    order = ["grpo/seed_0", "agon_value/seed_0", "grpo/seed_1", "agon_value/seed_1", "margin/seed_0", "margin/seed_1"]
    assert [cell.key for cell in plan.cells] == order
    run = Commands()
    text, _ = matrix(plan, run, Clock())
    ran = [next(each for each in command if "default_local_dir" in each) for command in run.commands[:-1]]
    assert [each.rpartition("/out/")[2] for each in ran] == [f"{key}/checkpoints" for key in order]
    value = run.commands[1]
    assert "+method=adv" in value and value.index("agon.withhold=value") > value.index("+method=adv")
    assert "+actor_rollout_ref.rollout.engine_kwargs.vllm.kv_cache_memory_bytes=536870912" in value
    # vLLM refuses to start where this share of the GPU is not free, as beside other cells
    assert "actor_rollout_ref.rollout.gpu_memory_utilization=0.05" in value
    evaluated = split_at("--and", run.commands[-1][3:])
    assert [part[0].rpartition("/out/")[2] for part in evaluated[1:]] == [f"{key}/adapters" for key in order]
    assert evaluated[-1][evaluated[-1].index("--modes") + 1 :] == ["A_to_B", "B_to_A", "--data", "toy.parquet"]
    assert "| Agon with values | 2 |" in text and "| Agon with values, direction post hoc | 2 |" in text
    assert "| Agon with values − GRPO, two-pass self-cascade |" in text
    assert "| zero-shot | 1 |" in text and "Mixture-of-Agents" not in text  # it was not asked for
    record = json.loads((tmp_path / "out" / "matrix.json").read_text())
    cell = record["cells"]["agon_value/seed_1"]
    assert cell["log"] == "agon_value/seed_1/train.log" and "verl.trainer.main_ppo +recipe=agon" in cell["command"]
    assert cell["parity"] == "ok" and cell["step"] == 2 and len(cell["commit"]) >= 40


def test_a_trained_cell_of_another_matrix(tmp_path: Path) -> None:
    """A sweep's cell with the settings of a plan's, put into the folder of the plan's, is that cell."""
    sweep = PLAN.replace("grpo: {}", "lr_1e-4: {method: grpo, overrides: [actor_rollout_ref.actor.optim.lr=1e-4]}")
    plans = [sweep, PLAN.replace("overrides: [", "overrides: [actor_rollout_ref.actor.optim.lr=1e-4, ")]
    _, plan = planned(tmp_path, plans[0])
    matrix(plan, Commands(), Clock(), only="train")
    (tmp_path / "out").rename(tmp_path / "sweep")
    (tmp_path / "out" / "grpo").mkdir(parents=True)
    (tmp_path / "sweep" / "lr_1e-4" / "seed_0").rename(tmp_path / "out" / "grpo" / "seed_0")
    _, plan = planned(tmp_path, plans[1])
    run = Commands()
    matrix(plan, run, Clock())
    trained = " ".join(" ".join(command) for command in run.commands[:-1])
    assert len(run.commands) == 6 and "grpo/seed_1" in trained and "grpo/seed_0" not in trained
    cell = json.loads((tmp_path / "out" / "matrix.json").read_text())["cells"]["grpo/seed_0"]
    assert "lr_1e-4/seed_0" in cell["command"] and len(cell["commit"]) >= 40 and cell["step"] == 2
    assert cell["log"] == "grpo/seed_0/train.log" and cell["state"] == "evaluated" and cell["parity"] == "ok"


def test_a_mode_that_an_arm_leaves_out_has_no_row(tmp_path: Path) -> None:
    _, plan = planned(tmp_path, PLAN.replace("grpo: {}", "grpo: {modes: [A]}"))
    text, _ = matrix(plan, Commands(), Clock())
    assert "| GRPO, 2N rollouts |" in text and "self-cascade" not in text and "margin − GRPO, 2N rollouts" in text


def test_only_what_a_table_needs_is_kept(tmp_path: Path) -> None:
    _, plan = planned(tmp_path)
    matrix(plan, Commands(), Clock())
    pair, one = (tmp_path / "out" / name / "seed_0" for name in ("agon_value", "grpo"))
    assert not (pair / "checkpoints").exists()
    assert sorted(path.name for path in (pair / "adapters").iterdir()) == ["A", "B", "pair.json"]
    assert sorted(path.name for path in (one / "adapters").iterdir()) == ["A", "pair.json"]  # B was never trained
    (tensor,) = load_file(pair / "adapters" / "B" / "adapter_model.safetensors").values()
    assert tensor.dtype == torch.bfloat16 and float(tensor[0, 0]) == 3.0
    kept = [json.loads(line) for line in (pair / "pairs" / "2.jsonl").read_text().splitlines()]
    assert len(kept) == N and len({each["uid"] for each in kept}) == 1  # all pairs of one problem


def test_the_results_of_a_cell_are_enough_once_it_is_evaluated(tmp_path: Path) -> None:
    """Its adapters may stay behind: another visit has the same table, and runs the other cells."""
    _, plan = planned(tmp_path, PLAN.replace("seeds: [0, 1]", "seeds: [0]"))
    table = matrix(plan, Commands(), Clock())
    for cell in plan.cells:
        for left_behind in ("adapters", "pairs", "train.log"):
            place = plan.folder(cell) / left_behind
            shutil.rmtree(place) if place.is_dir() else place.unlink()
    again = Commands()
    assert matrix(plan, again, Clock()) == table and again.ran == []
    other = replace(plan, evaluate=(*plan.evaluate, "--seed", "7"), untrained=())
    assert matrix(other, again, Clock())[1] == [] and again.ran == []  # without adapters there is nothing to evaluate
    _, more = planned(tmp_path)
    matrix(more, again, Clock())
    assert again.ran == [TRAIN] * 3 + [EVALUATE] and set(states(tmp_path).values()) == {"evaluated"}


def test_a_visit_that_ends_early_is_continued(tmp_path: Path) -> None:
    """The first cell is stopped after its first step; a visit later it goes on from there, and so do the others."""
    _, plan = planned(tmp_path)
    first = Commands(time=1)
    clock = Clock()

    def run(*arguments: object) -> Ended:
        ended = first(*arguments)  # type: ignore[arg-type]
        if ended.stopped:
            clock.stop()
        return ended

    text, _ = matrix(plan, run, clock)
    assert first.ran == ["verl.trainer.main_ppo"] and "6 of 6 cells are not evaluated yet" in text
    assert states(tmp_path) == {
        cell.key: "unfinished" if cell.key == "grpo/seed_0" else "waiting" for cell in plan.cells
    }
    cell = tmp_path / "out" / "grpo" / "seed_0"
    assert sorted(path.name for path in (cell / "checkpoints").glob("global*")) == ["global_step_1"]
    assert len((cell / "pairs" / "1.jsonl").read_text().splitlines()) == N
    matrix(plan, Commands(), Clock())
    assert set(states(tmp_path).values()) == {"evaluated"}
    assert [step["ledger/rollouts"] for step in steps(cell / "metrics.jsonl")] == [2 * N * 4] * 2
    assert json.loads((tmp_path / "out" / "matrix.json").read_text())["cells"]["grpo/seed_0"]["parity"] == "ok"


def test_metrics_of_a_start_that_was_killed_with_its_machine_are_kept(tmp_path: Path) -> None:
    rows = [json.dumps({"step": s, "data": {"ledger/rollouts": r}}) + "\n" for s, r in ((1, 1), (2, 1), (2, 2), (3, 2))]
    (tmp_path / "metrics.jsonl").write_text(rows[0] + rows[1])
    set_aside_metrics(tmp_path)
    (tmp_path / "metrics.jsonl").write_text(rows[2] + rows[3][:9])  # killed while it wrote
    set_aside_metrics(tmp_path)
    assert not (tmp_path / "metrics.jsonl").exists()
    (tmp_path / "metrics.jsonl").write_text(rows[3])
    join_metrics(tmp_path)
    assert [step["ledger/rollouts"] for step in steps(tmp_path / "metrics.jsonl")] == [1, 2, 2]
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_a_cell_whose_checkpoint_was_left_behind_starts_anew(tmp_path: Path) -> None:
    _, plan = planned(tmp_path)
    matrix(plan, Commands(time=1), Clock(), only="train")
    cell = tmp_path / "out" / "grpo" / "seed_0"
    assert states(tmp_path)["grpo/seed_0"] == "unfinished"
    shutil.rmtree(cell / "checkpoints")
    matrix(plan, Commands(), Clock(), only="train")
    assert len((cell / "metrics.jsonl").read_text().splitlines()) == 2  # no row of the first start


def test_a_visit_that_is_too_short_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, plan = planned(tmp_path)
    run = Commands()
    matrix(plan, run, Left(90))
    message = "grpo/seed_0 waits: it needs about 2.0 minutes for its start and a step, and 1.5 are left."
    assert message in capsys.readouterr().out and run.ran == []


def test_a_cell_that_must_run_whole_waits_for_a_visit_with_room_for_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Steps of the same arm took 30 seconds: two of them, the start and the save take three minutes."""
    _, plan = planned(tmp_path, PLAN + "whole: true\n")
    matrix(plan, Commands(), Clock(), only="train")
    again = [*plan.seeds, 2]
    _, plan = planned(tmp_path, PLAN.replace("[0, 1]", str(again)) + "whole: true\n")
    run = Commands()
    matrix(plan, run, Left(179), only="train")
    assert "needs about 3.0 minutes for all of its steps" in capsys.readouterr().out and run.ran == []
    matrix(plan, run, Left(181), only="train")
    assert run.ran == ["verl.trainer.main_ppo"] * 3
    unfinished = plan.cells[0]
    assert seconds_needed(plan, unfinished, 2) == 60 + 2 * 30 + 60


class Beside(Commands):
    """The last training ends only when `before` has been evaluated; `most` is how many commands ran at a time."""

    def __init__(self, last: str, before: Sequence[str]) -> None:
        super().__init__()
        self._last, self._evaluated = last, {key: threading.Event() for key in before}
        self._lock, self._running, self.most = threading.Lock(), 0, 0

    def __call__(self, command: Sequence[str], env: Mapping[str, str], log: Path, stopping: Stopping) -> Ended:
        with self._lock:
            self._running += 1
            self.most = max(self.most, self._running)
        if command[2] == TRAIN and f"{self._last}/" in " ".join(command):
            assert all(each.wait(timeout=30) for each in self._evaluated.values())
        time.sleep(0.05)  # so that commands overlap
        try:
            return super().__call__(command, env, log, stopping)
        finally:
            for key, each in self._evaluated.items():
                if command[2] == EVALUATE and f"{key}/eval" in command:
                    each.set()
            with self._lock:
                self._running -= 1


def test_cells_are_evaluated_while_others_train(tmp_path: Path) -> None:
    """Those of this visit, those that an earlier one had no time for, and the base; with room for one command more."""
    _, first = planned(tmp_path, BESIDE.replace("seeds: [0, 1]", "seeds: [0]"))
    matrix(first, Commands(), Clock(), only="train")
    _, plan = planned(tmp_path, BESIDE)
    before = [str(plan.out / each) for each in ("base", "margin/seed_0", "grpo/seed_0", "grpo/seed_1")]
    run = Beside("margin/seed_1", before)
    matrix(plan, run, Clock())
    assert set(states(tmp_path).values()) == {"evaluated"} and run.most == plan.at_once + 1 == 2


def test_each_cell_is_evaluated_when_it_is_trained(tmp_path: Path) -> None:
    """One command for each, and for the base, in place of one for all; the last visit has nothing left to evaluate."""
    _, plan = planned(tmp_path, BESIDE)
    run = Commands()
    matrix(plan, run, Clock())
    assert set(states(tmp_path).values()) == {"evaluated"}
    targets = [made[3] for made in run.commands if made[2] == EVALUATE]
    assert len(targets) == len(set(targets)) == len(plan.cells) + 1
    assert not any("--and" in made for made in run.commands)
    assert (tmp_path / "out" / "base" / "eval" / "results.json").exists()
    assert not (tmp_path / "out" / "eval.log").exists() and (tmp_path / "out" / plan.cells[0].key / "eval.log").exists()
    again = Commands()
    matrix(plan, again, Clock())
    assert again.ran == []


def test_engines_that_run_beside_others_keep_no_compiled_code(tmp_path: Path) -> None:
    class Environments(Commands):
        def __call__(self, command: Sequence[str], env: Mapping[str, str], log: Path, stopping: Stopping) -> Ended:
            kept.append((command[2], env.get("VLLM_DISABLE_COMPILE_CACHE")))
            return super().__call__(command, env, log, stopping)

    for text, expected in [(PLAN, {(TRAIN, None), (EVALUATE, None)}), (BESIDE, {(TRAIN, "1"), (EVALUATE, "1")})]:
        kept: list[tuple[str, str | None]] = []
        (tmp_path / str(len(text))).mkdir()
        _, plan = planned(tmp_path / str(len(text)), text)
        matrix(plan, Environments(), Clock())
        assert set(kept) == expected


def test_an_evaluation_beside_that_fails_is_tried_again_with_the_rest(tmp_path: Path) -> None:
    _, plan = planned(tmp_path, BESIDE)
    failed = plan.cells[1].key
    run = Commands(failing=f"{failed}/eval")
    matrix(plan, run, Clock())
    assert run.ran.count(EVALUATE) == len(plan.cells) + 2
    assert (
        states(tmp_path)[failed] == "trained"
        and list(states(tmp_path).values()).count("evaluated") == len(plan.cells) - 1
    )
    matrix(plan, Commands(), Clock())
    assert set(states(tmp_path).values()) == {"evaluated"}


@pytest.mark.parametrize("failing", ["margin/seed_1/checkpoints", "margin/seed_1/eval", "base/eval"])
def test_a_command_that_failed_is_in_the_exit_status(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After the tables; the base's evaluation, which is no cell, too. The same command then ends well."""
    planned(tmp_path, BESIDE)
    arguments = [str(tmp_path / "plan.yaml"), "--out", str(tmp_path / "out")]
    monkeypatch.setattr(command, "_stop_on_signals", lambda clock: None)
    monkeypatch.setattr(command, "Here", lambda clock, stagger: Commands(failing=failing))
    assert command.main(arguments) == 1
    printed = capsys.readouterr()
    key = failing.rpartition("/")[0]
    assert "## Cells" in printed.out and f"\n  {key}: " in printed.err and printed.err.count("\n") == 2
    monkeypatch.setattr(command, "Here", lambda clock, stagger: Commands())
    assert command.main(arguments) == 0 and capsys.readouterr().err == ""


def test_nothing_is_evaluated_beside_if_only_training_is_wanted_or_time_is_short(tmp_path: Path) -> None:
    _, plan = planned(tmp_path, BESIDE)
    run = Commands()
    matrix(plan, run, Clock(), only="train")
    assert run.ran == [TRAIN] * len(plan.cells)
    late = Commands()
    matrix(plan, late, Left(60))  # less than the two minutes that an evaluation takes to start
    assert late.ran == []


def test_the_notice_of_a_run_is_its_longest_step_and_room_to_save(tmp_path: Path) -> None:
    assert notice(tmp_path) == 60
    data = {"ledger/rollouts": 1, "timing_s/step": 20.0, "timing_s/testing": 30.0}
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"step": 1, "data": data}) + "\n")
    assert notice(tmp_path) == 1.2 * 50 + 60


@pytest.mark.parametrize(
    ("change", "to", "message"),
    [
        ("evaluate: [--data, toy.parquet]", "", "needs recipe, arms, seeds, evaluate"),
        ("overrides: [trainer.total_training_steps=2]", "at_onec: 2", "at_onec is not a field"),
        ("  grpo: {}", "  grpo: {method: gpro}", "method=gpro is unknown"),
        ("seeds: [0, 1]", "seeds: 3", "seeds=3 must be a list"),
        ("seeds: [0, 1]", "seeds: [0, 0]", "must be different whole numbers"),
        ("seeds: [0, 1]", "seeds: [one]", "must be different whole numbers"),
        ("  grpo: {}", "  grpo: {overrides: a=1}", "arm grpo: overrides='a=1' must be a list"),
        ("  grpo: {}", "  grpo: {modes: A}", "arm grpo: modes='A' must be a list"),
        ("  grpo: {}", "  grpo: {modes: [C]}", "modes=C is unknown"),
        ("overrides: [trainer.total_training_steps=2]", "at_once: 0", "at_once=0 must be a whole number from 1 on"),
    ],
)
def test_a_plan_that_cannot_be_read(tmp_path: Path, change: str, to: str, message: str) -> None:
    path = tmp_path / "plan.yaml"
    assert change in PLAN
    path.write_text(PLAN.replace(change, to))
    with pytest.raises(MatrixError, match=message):
        read_plan(path, tmp_path)


# Commands on this machine

STEPS = """
import subprocess, sys, time
from pathlib import Path
# As vLLM's processes, which outlive a command that fails and give themselves a title.
title = "import setproctitle, time; setproctitle.setproctitle('engine' * 99); print(flush=True); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", title], start_new_session=True, stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
Path(sys.argv[2]).touch()
while not Path(sys.argv[1]).exists():
    time.sleep(0.05)
sys.exit(3)
"""


@pytest.mark.parametrize("obeys", [True, False])
def test_a_command_is_asked_to_end_and_killed_at_the_limit(tmp_path: Path, obeys: bool) -> None:
    script, request, began = tmp_path / "steps.py", tmp_path / "stop", tmp_path / "began"
    script.write_text(STEPS)
    clock, asked = Clock(minutes=10), []

    def ask(pid: int) -> None:
        asked.append(pid)
        if obeys:
            request.touch()
        else:
            clock.stop(grace=0.0)

    def soon() -> float:  # asked once it has begun
        return float("inf") if began.exists() else 0.0

    command = [sys.executable, str(script), str(request), str(began)]
    ended = Here(clock)(command, {}, tmp_path / "log", Stopping(ask, soon))
    assert ended == Ended(3 if obeys else -signal.SIGKILL, stopped=True) and len(asked) == 1
    assert gone([int((tmp_path / "log").read_text())], 5)


def test_a_command_without_a_limit_runs_to_its_end_and_its_output_is_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / "not there yet"))
    never = Stopping(lambda _: pytest.fail("asked"), lambda: 1e9)
    for number in (0, 5):
        command = [sys.executable, "-c", f"import os; print(os.environ['RAY_TMPDIR']); exit({number})"]
        assert Here(Clock())(command, {}, tmp_path / "log", never) == Ended(number)
    folders = (tmp_path / "log").read_text().splitlines()
    assert len(set(folders)) == 2 and not any(map(os.path.exists, folders))


def test_starts_are_staggered(tmp_path: Path) -> None:
    run = Here(Clock(), stagger=3.0)
    for _ in range(2):
        command = [sys.executable, "-c", "import time; print(time.time())"]
        run(command, {}, tmp_path / "log", Stopping(lambda _: None, lambda: 0.0))
    first, second = map(float, (tmp_path / "log").read_text().split())
    assert second - first >= 1.5  # a command alone takes less than a second


def test_a_command_whose_turn_comes_too_late_is_not_started(tmp_path: Path) -> None:
    clock = Clock()
    clock.stop()
    never = Stopping(lambda _: pytest.fail("asked"), lambda: 0.0)
    assert Here(clock)(["false"], {}, tmp_path / "log", never) == Ended(1, stopped=True)
    assert not (tmp_path / "log").exists()


def test_a_command_joins_a_running_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`ray start` leaves this file; without it the command's Ray has a folder of its own, below the user's."""
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    command = [sys.executable, "-c", "import os; print(os.environ['RAY_TMPDIR'])"]
    for cluster in (False, True):
        if cluster:
            (tmp_path / "ray").mkdir()
            (tmp_path / "ray" / "ray_current_cluster").write_text("10.0.0.1:6379")
        Here(Clock())(command, {}, tmp_path / "log", Stopping(lambda _: None, lambda: 0.0))
    alone, joined = map(Path, (tmp_path / "log").read_text().split())
    assert joined == tmp_path and alone.parent == tmp_path


def test_two_matrices_into_one_folder(tmp_path: Path) -> None:
    play(tmp_path, Commands())
    with (tmp_path / ".lock").open("w") as held:
        lock(held)
        with pytest.raises(MatrixError, match="is in use by another matrix"):
            play(tmp_path, Commands())
    play(tmp_path, Commands())


def test_an_interrupted_matrix_stops_its_commands(tmp_path: Path) -> None:
    """One SIGTERM: the running cell is asked to stop, and the state is written."""
    (tmp_path / "plan.yaml").write_text(PLAN)
    script = (
        "import sys, time, agon_verl.matrix.visit as visit, agon_verl.matrix.cells as cells\n"
        "from pathlib import Path\n"
        "waits = 'import sys, time; from pathlib import Path\\np = Path(sys.argv[1])\\n' "
        "'p.with_name(\"began\").touch()\\nwhile not p.exists(): time.sleep(0.05)\\nsys.exit(1)'\n"
        "def command(plan, cell):\n"
        "    (plan.folder(cell) / 'checkpoints').mkdir(parents=True, exist_ok=True)\n"
        "    return [sys.executable, '-c', waits, str(plan.folder(cell) / 'checkpoints' / 'stop')]\n"
        "visit.command_of = cells.command_of = command\n"
        "from agon_verl.matrix.__main__ import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "plan.yaml"), "--out", str(tmp_path / "out")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    began = tmp_path / "out" / "grpo" / "seed_0" / "checkpoints" / "began"
    while not began.exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0 and "grpo/seed_0: unfinished" in output
    assert states(tmp_path)["agon_value/seed_0"] == "waiting"
