"""The matrix: what is run, what is not run again, what a failed cell leaves behind, and whether budgets are equal.

Training and evaluation are commands; here a function that writes their files stands in for both. `tests/real` runs
the real ones.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from agon_verl.evaluate.results import Results
from agon_verl.matrix.__main__ import matrix, split_arguments
from agon_verl.matrix.cells import MatrixError, parity, steps

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


class Commands:
    """Stands in for verl and the evaluation."""

    def __init__(self, failing: str = "", rollouts: int = 2 * N * 4) -> None:
        self.failing, self.rollouts, self.ran = failing, rollouts, []

    def __call__(self, command: Sequence[str], env: Mapping[str, str], log: Path) -> int:
        self.ran.append(command[2])
        log.write_text("a line\n")
        if self.failing and self.failing in " ".join(command):
            return 1
        if command[2] == "verl.trainer.main_ppo":
            line = {"step": 1, "data": {"ledger/rollouts": self.rollouts, "ledger/problems": 4}}
            Path(env["VERL_FILE_LOGGER_PATH"]).write_text(json.dumps(line) + "\n")
            return 0
        out = Path(command[command.index("--out") + 1])
        modes = command[command.index("--modes") + 1 : command.index("--data")]
        results({mode: RIGHT[mode] for mode in modes}).write(out / "results.json")
        return 0


def play(out: Path, run: Commands, *more: str) -> str:
    own = ["--out", str(out), "--methods", "grpo", "adv", "--seeds", "0", "1", *more]
    return matrix(*split_arguments([*own, "--evaluate", "--data", "toy.parquet"]), run=run)


def test_the_table_has_the_rows_of_each_method(tmp_path: Path) -> None:
    text = play(tmp_path, Commands())
    rows = {
        line.split("|")[1].strip(): [c.strip() for c in line.split("|")[2:-1]]
        for line in text.splitlines()
        if "|" in line
    }
    assert rows["zero-shot"][:2] == ["1", "0.0"]
    assert rows["Mixture-of-Agents, untrained"][1] == "25.0"
    assert rows["GRPO, 2N rollouts"][:4] == ["2", "25.0", "0.0", "25.0 to 25.0"]
    assert rows["GRPO, two-pass self-cascade"][1] == "75.0"
    assert rows["Agon"][1] == "25.0"  # the direction chosen beforehand
    assert rows["Agon, direction post hoc"][1] == "50.0"
    assert rows["Agon"][4:] == ["10", "20"]


def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    play(tmp_path, Commands())
    again = Commands()
    play(tmp_path, again)
    assert "verl.trainer.main_ppo" not in again.ran  # the evaluation itself generates only what is missing
    more = Commands()
    play(tmp_path, more, "--seeds", "0", "1", "2")
    assert more.ran.count("verl.trainer.main_ppo") == 2


def test_a_failed_cell_is_marked_and_tried_again(tmp_path: Path) -> None:
    text = play(tmp_path, Commands(failing="adv/seed_1"))
    cells = json.loads((tmp_path / "matrix.json").read_text())["cells"]
    assert cells["adv/seed_1"]["state"] == "failed" and "train.log" in cells["adv/seed_1"]["error"]
    assert cells["adv/seed_0"]["state"] == cells["grpo/seed_1"]["state"] == "evaluated"
    assert "| Agon | 1 (1 failed) |" in text
    mended = Commands()
    assert "| Agon | 2 |" in play(tmp_path, mended)
    assert mended.ran.count("verl.trainer.main_ppo") == 1


def test_other_settings_for_the_same_folder_are_refused(tmp_path: Path) -> None:
    play(tmp_path, Commands())
    own = ["--out", str(tmp_path), "--methods", "adv", "--seeds", "0", "--evaluate", "--data", "toy.parquet"]
    matrix(*split_arguments([*own, "--", "actor_rollout_ref.actor.optim.lr=1e-3"]), run=Commands())
    cell = json.loads((tmp_path / "matrix.json").read_text())["cells"]["adv/seed_0"]
    assert cell["state"] == "trained" and "optim.lr=1e-3" in cell["error"]


def test_unequal_budgets_are_reported(tmp_path: Path) -> None:
    text = play(tmp_path, Commands(rollouts=2 * N * 4 - 2))
    assert "**Unequal budgets:** grpo/seed_0: step 1 generated 62 rollouts for 4 problems, not 64" in text


def test_overrides_that_do_not_compose(tmp_path: Path) -> None:
    with pytest.raises(MatrixError, match="does not compose"):
        own = ["--out", str(tmp_path), "--methods", "adv", "--seeds", "0", "--evaluate", "--data", "toy.parquet"]
        matrix(*split_arguments([*own, "--", "nonsense=1"]), run=Commands())


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
        split_arguments(["--out", "x"])
    assert "--evaluate --data SET" in capsys.readouterr().err
