"""The worker node lost in a step, in a sync and in a save, and the link to it cut, for 30 seconds and for ever.

One folder, one command: each run continues where the one before was broken off, with the node back in the cluster. A
run must end with a reason, or go on; `TIME_LIMIT` in `tests/real/runs.py` is what counts as a hang. `faults.md` in
pytest's folder has what happened, as a table.
"""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from agon_verl.pair import checkpoint
from tests.nodes.cluster import WORKER, Cluster
from tests.real.runs import Run, sizes, wait_for_step

LAST = 100  # no run gets there
CUT = 30.0  # seconds
# A fault: the point of a step that it hits, and whether the run goes on.
FAULTS = {
    "raylet killed in an update": "update",
    "raylet killed in a sync": "sync",
    "raylet killed in a save": "save",
    "link cut for 30 s": "update",
    "link cut for ever": "update",
}
SENTENCE = re.compile(r"RunFailed: |CheckpointError: |agon-verl: the trainer's process ")


@dataclass(frozen=True)
class Outcome:
    run: Run
    before: int  # the newest checkpoint when the fault came
    step: int  # the step that it hit
    after: int  # the newest checkpoint when the run had ended
    seconds: float  # from the fault to the end

    @property
    def sentence(self) -> str:
        lines = [line for line in self.run.output.splitlines() if SENTENCE.search(line)]
        return lines[-1] if lines else ""


def newest(root: Path) -> int:
    return max(checkpoint.complete(root), default=0) if root.exists() else 0


def command(tiny: Path, root: Path, *more: str) -> list[str]:
    return [
        *sizes(tiny),
        "trainer.nnodes=2",
        "trainer.resume_mode=auto",
        "trainer.total_epochs=100",
        f"trainer.total_training_steps={LAST}",
        "trainer.save_freq=1",
        "trainer.max_actor_ckpt_to_keep=2",
        "trainer.val_before_train=false",
        f"trainer.default_local_dir={root}",
        *more,
    ]


def act(nodes: Cluster, name: str, goes_on: Callable[[], None]) -> None:
    if name.startswith("raylet"):
        nodes.kill_raylet(WORKER)
        goes_on()
        return
    nodes.link(WORKER, "down")
    goes_on()
    if name.endswith("30 s"):
        time.sleep(CUT)
        nodes.link(WORKER, "up")


def broken(nodes: Cluster, tiny: Path, root: Path, folder: Path, name: str) -> Outcome:
    """Start the command, let it take a step, and break it in the next."""
    seen: dict[str, float] = {}
    start, metrics = newest(root), folder / "metrics.jsonl"

    def meanwhile() -> None:
        wait_for_step(metrics, start + 1)
        (folder / "at").write_text(FAULTS[name])
        while not (folder / "reached").exists():
            time.sleep(0.05)
        seen.update(before=newest(root), time=time.time())
        (folder / "at").unlink()
        act(nodes, name, (folder / "done").touch)
        if name.endswith("30 s"):  # it goes on: stop it two steps later
            wait_for_step(metrics, start + 4)
            seen["time"] = time.time()
            nodes.kill_raylet(WORKER)

    env = {"VERL_USE_EXTERNAL_MODULES": "tests.nodes.node_probe", "NODE_FAULT": str(folder)}
    run = nodes.submit(folder, *command(tiny, root), env=env, meanwhile=meanwhile)
    return Outcome(run, int(seen["before"]), start + 2, newest(root), time.time() - seen["time"])


@pytest.fixture(scope="module")
def outcomes(nodes: Cluster, tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    base = tmp_path_factory.mktemp("faults")
    found, table = {}, base / "faults.md"
    for number, name in enumerate(FAULTS):
        folder = base / str(number)
        folder.mkdir()
        found[name] = out = broken(nodes, tiny, base / "run", folder, name)
        with table.open("a") as file:
            cells = [name, f"{out.seconds:.0f}", out.before, out.step, out.after, out.sentence]
            file.write("| " + " | ".join(map(str, cells)) + " |\n")
        nodes.link(WORKER, "up")
        nodes.stop(WORKER)
        nodes.start(WORKER)
    return found


@pytest.mark.parametrize("name", FAULTS)
def test_a_run_ends_with_a_sentence(outcomes: dict[str, Outcome], name: str) -> None:
    assert outcomes[name].run.returncode != 0 and outcomes[name].sentence


@pytest.mark.parametrize("name", FAULTS)
def test_at_most_one_step_is_lost(outcomes: dict[str, Outcome], name: str) -> None:
    out = outcomes[name]
    done = max(step["training/global_step"] for step in out.run.steps)
    assert out.after >= max(out.before, done)


def test_the_same_command_goes_on_after_each(outcomes: dict[str, Outcome]) -> None:
    for earlier, later in zip(list(outcomes.values())[:-1], list(outcomes.values())[1:], strict=True):
        assert f"global_step_{earlier.after}, setting global step to {earlier.after}" in later.run.output


def test_a_short_cut_costs_nothing(outcomes: dict[str, Outcome]) -> None:
    steps = [step["training/global_step"] for step in outcomes["link cut for 30 s"].run.steps]
    assert len(steps) >= 4 and steps == list(range(steps[0], steps[0] + len(steps)))
