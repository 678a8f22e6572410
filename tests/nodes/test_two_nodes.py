"""A run on two Ray nodes: training ranks and vLLM replicas on both, started by `ray job submit` from a third place.

The first run takes two steps on two nodes. The second continues it on the head alone, after the worker node has left.
The third continues that on two nodes on which the plugin is not installed: Ray's `py_modules` sends it.
"""

from pathlib import Path

import pytest
import torch

from agon_verl.pair import checkpoint
from tests.nodes.cluster import ADDRESSES, HEAD, WORKER, Cluster, cluster
from tests.not_installed import PACKAGES, ROOT, python_without_agon
from tests.real.runs import Run, main_ppo, read_jsonl, sizes, succeeded

pytestmark = pytest.mark.timeout(3600)  # the first test waits for all runs
STEPS = 2


def settings(tiny: Path, root: Path, steps: int) -> list[str]:
    return [
        *sizes(tiny),
        "trainer.resume_mode=auto",
        f"trainer.total_training_steps={steps}",
        "trainer.save_freq=1",
        "trainer.test_freq=2",
        "trainer.val_before_train=false",
        f"trainer.default_local_dir={root}",
        "agon.init_noise=0.3",
        "actor_rollout_ref.actor.optim.lr=0.01",
    ]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("run")


def probe(folder: Path) -> dict[str, str]:
    synced = {"NODE_SEEDS": "1", "NODE_SYNCED": str(folder / "synced.jsonl")}
    return {"VERL_USE_EXTERNAL_MODULES": "tests.nodes.node_probe", **synced}


@pytest.fixture(scope="module")
def run(nodes: Cluster, tiny: Path, root: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("two_nodes")
    return succeeded(nodes.submit(folder, *settings(tiny, root, STEPS), "trainer.nnodes=2", env=probe(folder)))


@pytest.fixture(scope="module")
def on_one(run: Run, nodes: Cluster, tiny: Path, root: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    nodes.stop(WORKER)
    return succeeded(nodes.submit(tmp_path_factory.mktemp("on_one"), *settings(tiny, root, STEPS + 1)))


@pytest.fixture(scope="module")
def sent(on_one: Run, nodes: Cluster, tiny: Path, root: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    python = python_without_agon(tmp_path_factory.mktemp("python"))
    nodes.stop(HEAD)
    with cluster({"PYTHONPATH": ""}, str(python)) as bare:
        bare.start(HEAD)
        bare.start(WORKER)
        folders = [str(ROOT / package) for package in PACKAGES]
        plugin = {"VERL_USE_EXTERNAL_MODULES": "agon_verl.plugin"}
        return succeeded(
            bare.submit(
                tmp_path_factory.mktemp("sent"),
                *settings(tiny, root, STEPS + 2),
                "trainer.nnodes=2",
                env=plugin,
                py_modules=folders,
            )
        )


@pytest.fixture(scope="module")
def one_machine(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The same first step by two ranks of one node."""
    folder = tmp_path_factory.mktemp("one_machine")
    two_ranks = ["trainer.n_gpus_per_node=2", "ray_kwargs.ray_init.num_gpus=2"]
    overrides = ["+recipe=agon_cpu", *settings(tiny, folder / "run", STEPS), *two_ranks]
    return succeeded(main_ppo(folder, *overrides, "trainer.test_freq=-1", env=probe(folder)))


def test_every_replica_takes_the_same_adapters_in_each_sync(run: Run) -> None:
    """The self-check syncs too, with marked adapters."""
    lines = read_jsonl(run.folder / "synced.jsonl")
    here, there = (
        [(line["adapter"], line["digest"]) for line in lines if line["node"] == ADDRESSES[node]]
        for node in (HEAD, WORKER)
    )
    assert here == there
    syncs = [dict(there[i : i + 2]) for i in range(0, len(there), 2)]
    assert all(sync.keys() == {"A", "B"} for sync in syncs)
    last = [sync["A"] for sync in syncs[-STEPS:]]
    assert len(set(last)) == STEPS  # each step trains both


def test_rollouts_of_both_nodes_match_training(run: Run) -> None:
    assert len(run.steps) == STEPS
    for step in run.steps:
        for adapter in "AB":
            assert step[f"{adapter}/training/rollout_probs_diff_mean"] < 1e-4


def test_gradients_are_those_of_one_node(run: Run, one_machine: Run, root: Path) -> None:
    """After one step the first moment is (1 - beta_1) times the gradient."""
    first = "global_step_1/actor/training_state.pt"
    states = [torch.load(folder / first, weights_only=True) for folder in (root, one_machine.folder / "run")]
    for adapter in "AB":
        here, there = (state["moments"][adapter] for state in states)
        assert here.keys() == there.keys() != set()
        for name in here:
            torch.testing.assert_close(here[name]["exp_avg"], there[name]["exp_avg"], atol=1e-7, rtol=1e-3)
    for name in ("A/actor/grad_norm", "B/actor/grad_norm", "A/actor/pg_loss", "draft/acc", "challenge/acc"):
        assert run.steps[0][name] == pytest.approx(one_machine.steps[0][name], rel=1e-3, abs=1e-6)


def test_validation_plays_every_mode(run: Run) -> None:
    assert any(name.startswith("val-core/") for name in run.steps[-1])
    assert "health/val/agreement" in run.steps[-1]


def test_a_run_continues_on_one_node_and_back_on_two(run: Run, on_one: Run, sent: Run, root: Path) -> None:
    for part, before in ((on_one, STEPS), (sent, STEPS + 1)):
        assert f"global_step_{before}, setting global step to {before}" in part.output
        assert [step["training/global_step"] for step in part.steps] == [before + 1]
    ranks = {
        step: len(list((root / f"global_step_{step}" / "actor").glob("rng_*.pt"))) for step in checkpoint.complete(root)
    }
    assert ranks == {1: 2, 2: 2, 3: 1, 4: 2}


def test_the_plugin_may_be_sent_to_both_nodes(sent: Run) -> None:
    step = sent.steps[-1]
    assert step["A/training/rollout_probs_diff_mean"] < 1e-4 and step["B/training/rollout_probs_diff_mean"] < 1e-4
