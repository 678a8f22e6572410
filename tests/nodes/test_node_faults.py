"""The worker node lost in a step, in a sync and in a save, and the link to it cut for 30 s and for ever.

One folder, one command: each run continues where the one before was broken off, with the node back in the cluster. A
run must end with a reason; `TIME_LIMIT` in `tests/real/runs.py` is what counts as a hang. What happened is written to
`faults.md` in pytest's folder, as a table.
"""

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from agon_verl.pair import checkpoint
from tests.nodes.cluster import ADDRESSES, HEAD, WORKER, Cluster, cluster
from tests.real.runs import Run, sizes, succeeded, wait_for_step

pytestmark = pytest.mark.timeout(3600)  # the first test waits for all runs
STEPS = 100  # more than the faults leave time for
CUT = 30.0  # seconds
SHORT_CUT = "link cut for 30 s in an update"
# With Ray's own settings it is a matter of seconds whether a node outlives such a cut. These go to `ray start`.
PATIENT = {"RAY_health_check_failure_threshold": "10", "RAY_grpc_keepalive_timeout_ms": "120000"}
# Each fault with the node of verl's trainer, for which Ray would choose one at random.
TRAINER = {
    "raylet killed in an update": WORKER,
    "raylet killed in a sync": WORKER,
    "raylet killed in a save": HEAD,
    SHORT_CUT: HEAD,
    "link cut for ever in an update": HEAD,
}
FAULTS = tuple(TRAINER)
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


def hit(folder: Path, point: str, act: Callable[[], None]) -> None:
    """Act when the training processes have come to this point, and let them go on."""
    (folder / "at").write_text(point)
    while not (folder / "reached").exists():
        time.sleep(0.05)
    act()
    (folder / "at").unlink()


def probe(folder: Path, trainer: str) -> dict[str, str]:
    fault = {"NODE_FAULT": str(folder), "NODE_TRAINER": ADDRESSES[trainer]}
    return {"VERL_USE_EXTERNAL_MODULES": "tests.nodes.node_probe", **fault}


def broken(nodes: Cluster, tiny: Path, root: Path, folder: Path, fault: str) -> Outcome:
    """Start the command, let it take a step, and break it in the next. A run that outlives it takes two more."""
    broken_at: list[float] = []
    start = newest(root)
    goal = start + 4 if fault == SHORT_CUT else STEPS

    def act() -> None:
        broken_at.append(time.time())
        if fault.startswith("raylet"):
            nodes.kill_raylet(WORKER)
        else:
            nodes.link(WORKER, "down")
        if fault == SHORT_CUT:
            threading.Timer(CUT, nodes.link, (WORKER, "up")).start()

    def meanwhile() -> None:
        wait_for_step(folder / "metrics.jsonl", start + 1)
        hit(folder, fault.split()[-1], act)

    run = nodes.submit(folder, *command(tiny, root, goal), env=probe(folder, TRAINER[fault]), meanwhile=meanwhile)
    return Outcome(run, newest(root), time.time() - broken_at[0])


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
    """Where Ray keeps the node through a short cut, the run goes on to its end."""
    ended = outcomes[fault]
    if fault != SHORT_CUT or ended.run.returncode != 0:
        assert ended.run.returncode != 0
        assert "start the same command again" in ended.sentence


@pytest.mark.parametrize("fault", FAULTS)
def test_at_most_one_step_is_lost(outcomes: dict[str, Outcome], fault: str) -> None:
    """A step is logged when it is complete."""
    assert outcomes[fault].after >= outcomes[fault].steps[-1]


def test_the_same_command_goes_on_after_each(
    outcomes: dict[str, Outcome], nodes: Cluster, tiny: Path, root: Path, tmp_path: Path
) -> None:
    """After the last fault too, with the node and its link back: one more step, to the end."""
    last = succeeded(nodes.submit(tmp_path, *command(tiny, root, steps=newest(root) + 1)))
    assert len(last.steps) == 1
    runs = [outcomes[fault].run for fault in FAULTS[1:]]
    for before, run in zip(FAULTS, [*runs, last], strict=True):
        assert f"global_step_{outcomes[before].after}, setting global step to" in run.output


def test_a_run_goes_on_after_a_short_cut_where_ray_is_patient(namespaces: None, tiny: Path, tmp_path: Path) -> None:
    with cluster(PATIENT) as nodes:
        nodes.start(HEAD)
        nodes.start(WORKER)
        ended = broken(nodes, tiny, tmp_path / "run", tmp_path / "patient", SHORT_CUT)
    succeeded(ended.run)
    assert ended.steps == [1, 2, 3, 4]
    assert ended.after == 4
