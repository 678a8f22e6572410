"""The worker node lost in a step, in a sync and in a save, and the link to it cut, for 30 seconds and for ever.

One folder, one command: each run continues where the one before was broken off, with the node back in the cluster. A
run must end with a reason, or go on; `TIME_LIMIT` in `tests/real/runs.py` is what counts as a hang. What happened is
written to `faults.md` in pytest's folder, as a table.
"""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from agon_verl.pair import checkpoint
from tests.nodes.cluster import WORKER, Cluster
from tests.real.runs import Run, sizes, succeeded, wait_for_step

STEPS = 100  # more than the faults leave time for
CUT = 30.0  # seconds
UPDATE, SYNC, SAVE, CABLE = FAULTS = (
    "raylet killed in an update",
    "raylet killed in a sync",
    "raylet killed in a save",
    "link cut in an update",
)
SENTENCE = re.compile(r"RunFailed: |CheckpointError: |agon-verl: the trainer's process ")


@dataclass(frozen=True)
class Outcome:
    run: Run
    after: int  # the newest checkpoint when the run had ended
    seconds: float  # from the last fault to the end

    @property
    def sentence(self) -> str:
        lines = [line for line in self.run.output.splitlines() if SENTENCE.search(line)]
        return lines[-1] if lines else ""

    @property
    def steps(self) -> list[int]:
        return [int(step["training/global_step"]) for step in self.run.steps]


def newest(root: Path) -> int:
    return max(checkpoint.complete(root), default=0) if root.exists() else 0


def command(tiny: Path, root: Path, steps: int = STEPS) -> list[str]:
    return [
        *sizes(tiny),
        "trainer.nnodes=2",
        "trainer.resume_mode=auto",
        "trainer.total_epochs=100",
        f"trainer.total_training_steps={steps}",
        "trainer.save_freq=1",
        "trainer.val_before_train=false",
        f"trainer.default_local_dir={root}",
    ]


def broken(nodes: Cluster, tiny: Path, root: Path, folder: Path, fault: str) -> Outcome:
    """Start the command, let it take a step, and break it in the next; a link is cut for a while before."""
    broken_at: list[float] = []
    start, metrics = newest(root), folder / "metrics.jsonl"

    def hit(point: str, act: Callable[[], None]) -> None:
        (folder / "at").write_text(point)
        while not (folder / "reached").exists():
            time.sleep(0.05)
        broken_at.append(time.time())
        act()
        (folder / "reached").unlink()
        (folder / "at").unlink()

    def meanwhile() -> None:
        wait_for_step(metrics, start + 1)
        if fault == CABLE:
            hit("update", lambda: nodes.link(WORKER, "down"))
            time.sleep(CUT)
            nodes.link(WORKER, "up")
            wait_for_step(metrics, start + 3)
            hit("update", lambda: nodes.link(WORKER, "down"))
        else:
            hit(fault.split()[-1], lambda: nodes.kill_raylet(WORKER))

    env = {"VERL_USE_EXTERNAL_MODULES": "tests.nodes.node_probe", "NODE_FAULT": str(folder)}
    run = nodes.submit(folder, *command(tiny, root), env=env, meanwhile=meanwhile)
    return Outcome(run, newest(root), time.time() - broken_at[-1])


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("run")


@pytest.fixture(scope="module")
def outcomes(nodes: Cluster, tiny: Path, root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    base, ended = tmp_path_factory.mktemp("faults"), {}
    for fault in FAULTS:
        folder = base / fault.replace(" ", "_")
        folder.mkdir()
        ended[fault] = out = broken(nodes, tiny, root, folder, fault)
        with (base / "faults.md").open("a") as table:
            table.write(f"| {fault} | {out.seconds:.0f} s | {out.steps} | {out.after} | {out.sentence} |\n")
        nodes.link(WORKER, "up")
        nodes.stop(WORKER)
        nodes.start(WORKER)
    return ended


@pytest.mark.parametrize("fault", FAULTS)
def test_a_run_ends_with_a_sentence(outcomes: dict[str, Outcome], fault: str) -> None:
    assert outcomes[fault].run.returncode != 0
    assert "start the same command again" in outcomes[fault].sentence


@pytest.mark.parametrize("fault", FAULTS)
def test_at_most_one_step_is_lost(outcomes: dict[str, Outcome], fault: str) -> None:
    """A step is logged when it is complete."""
    assert outcomes[fault].after >= outcomes[fault].steps[-1]


def test_a_link_that_comes_back_costs_nothing(outcomes: dict[str, Outcome]) -> None:
    """The step that was hit and the next are complete, in the same run."""
    first, *others = outcomes[CABLE].steps
    assert others == [first + 1, first + 2]


def test_the_same_command_goes_on_after_each(
    outcomes: dict[str, Outcome], nodes: Cluster, tiny: Path, root: Path, tmp_path: Path
) -> None:
    last = newest(root)
    final = succeeded(nodes.submit(tmp_path / "final", *command(tiny, root, steps=last + 1)))
    runs = [outcomes[fault].run for fault in FAULTS[1:]]
    for before, run in zip(FAULTS, [*runs, final], strict=True):
        assert f"global_step_{outcomes[before].after}, setting global step to" in run.output
