"""A matrix on the real stack in two visits: the first ends in the middle of a cell, the second has the rest.

Between the two the folder moves, as it does to another machine. In the second visit both cells train at once, and one
vLLM evaluates both and the base.
"""

import json
import threading
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml
from safetensors.torch import load_file

from agon_verl.evaluate.results import Results
from agon_verl.matrix.__main__ import matrix
from agon_verl.matrix.plan import Plan, read_plan
from agon_verl.matrix.processes import Clock, Here
from agon_verl.pair import checkpoint
from tests.real.runs import PROMPTS, N, python_path, read_jsonl, sizes, wait_for_step

pytestmark = pytest.mark.timeout(2400)  # the first test waits for both visits
STEPS = 8  # enough that the request arrives before the last


@dataclass(frozen=True)
class Visits:
    plan: Plan
    after_first: dict[str, dict]
    saved: list[int]  # the first cell's checkpoints between the visits
    text: str


@pytest.fixture(scope="module")
def visits(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Visits:
    folder = tmp_path_factory.mktemp("matrix")
    overrides = [*sizes(tiny), "trainer.resume_mode=auto", "trainer.save_freq=100", "trainer.test_freq=-1"]
    overrides += [f"trainer.total_training_steps={STEPS}", "trainer.val_before_train=false"]
    values = {
        "recipe": "agon_cpu",
        "arms": {"grpo": None, "agon": {"method": "adv"}},
        "seeds": [0],
        "overrides": overrides,
        "evaluate": [
            "--data",
            str(tiny / "val.parquet"),
            "--max-tokens",
            "24",
            "--max-prompt",
            "256",
            "--dev-share",
            "0.25",
        ],
        "untrained": ["base"],
        "stagger": 15,
        "pairs": PROMPTS - 1,
        "checkpoints": False,
    }
    (folder / "plan.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    plan = read_plan(folder / "plan.yaml", folder / "first")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", python_path())
        patch.delenv("RAY_ADDRESS", raising=False)
        clock = Clock()

        def end_of_visit() -> None:
            wait_for_step(folder / "first" / "grpo" / "seed_0" / "metrics.jsonl", 1)
            clock.stop(grace=600)

        threading.Thread(target=end_of_visit, daemon=True).start()
        matrix(plan, Here(clock, plan.stagger), clock)
        after_first = json.loads((folder / "first" / "matrix.json").read_text())["cells"]
        saved = checkpoint.complete(folder / "first" / "grpo" / "seed_0" / "checkpoints")

        (folder / "first").rename(folder / "second")
        plan = replace(plan, out=folder / "second", at_once=2)
        clock = Clock(minutes=25)
        text, _ = matrix(plan, Here(clock, plan.stagger), clock)
    return Visits(plan, after_first, saved, text)


def test_the_first_visit_saves_the_cell_that_it_interrupts(visits: Visits) -> None:
    cell = visits.after_first["grpo/seed_0"]
    assert cell["state"] == "unfinished" and [cell["step"]] == visits.saved
    assert 1 <= cell["step"] < STEPS
    assert visits.after_first["agon/seed_0"]["state"] == "waiting"


def test_the_second_visit_has_the_budget_and_the_problems_of_an_uninterrupted_run(visits: Visits) -> None:
    """Agon's cell ran without a break: the interrupted one drew the same problems at each step."""
    cells = json.loads((visits.plan.out / "matrix.json").read_text())["cells"]
    assert {cell["state"] for cell in cells.values()} == {"evaluated"}
    assert {cell["parity"] for cell in cells.values()} == {"ok"}
    grpo, agon = (visits.plan.out / arm / "seed_0" for arm in ("grpo", "agon"))
    rows = {folder: read_jsonl(folder / "metrics.jsonl") for folder in (grpo, agon)}
    for logged in rows.values():
        assert [row["step"] for row in logged] == list(range(1, STEPS + 1))  # none twice: the step was saved
        assert {row["data"]["ledger/rollouts"] for row in logged} == {2 * N * PROMPTS}
    assert [r["data"]["A/actor/lr"] for r in rows[grpo] if "A/actor/lr" in r["data"]]
    for step in range(1, STEPS + 1):
        kept = [{r["problem"] for r in read_jsonl(f / "pairs" / f"{step}.jsonl")} for f in (grpo, agon)]
        assert len(kept[0]) == len(kept[1]) == PROMPTS - 1
        assert len(kept[0] | kept[1]) <= PROMPTS  # two choices of three among the same four problems


def test_what_is_kept_is_small_and_was_evaluated(visits: Visits, tiny: Path) -> None:
    for arm, adapters in (("grpo", "A"), ("agon", "AB")):
        folder = visits.plan.out / arm / "seed_0"
        assert not (folder / "checkpoints").exists()
        assert sorted(path.name for path in (folder / "adapters").iterdir()) == [*adapters, "pair.json"]
        tensors = load_file(folder / "adapters" / "A" / "adapter_model.safetensors")
        assert {str(tensor.dtype) for tensor in tensors.values()} == {"torch.bfloat16"}
        results = Results.read(folder / "eval")
        assert results.target == str(folder / "adapters") and results.left_out == 0
    (toy,) = results.sets.values()
    assert toy.problems == 6 and {"A_to_B", "B_to_A", "A", "B"} <= toy.modes.keys()
    log = (visits.plan.out / "eval.log").read_text()
    assert log.count("generation/s") >= 3  # a bar for each target, in one log of one command


def test_the_table_has_every_arm(visits: Visits) -> None:
    for name in ("zero-shot", "GRPO, 2N rollouts", "GRPO, two-pass self-cascade", "agon", "agon, direction post hoc"):
        assert f"| {name} | 1 |" in visits.text, name
    assert "| agon − GRPO, two-pass self-cascade |" in visits.text
    assert "not evaluated yet" not in visits.text and (visits.plan.out / "matrix.md").exists()
