"""Checkpoints between numbers of ranks: from two gloo ranks to one, and back to two. The base is bfloat16."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.real.runs import ROOT

# One of two processes. Both train and save; the first alone loads that and saves; both load that and save.
RANK = """
import os, sys, torch, torch.distributed
from pathlib import Path
from tests.real.test_engine import batch, make_engine, update

rank, tiny, folder = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])

def save(name, world, load=None):
    os.environ.update(LOCAL_RANK=str(rank), RANK=str(rank), WORLD_SIZE=str(world))
    store = f"file://{folder / name}.store"
    torch.distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=world)
    torch.manual_seed(rank)
    engine, loss = make_engine(
        tiny, "agon.opponent.share=0.5", "actor_rollout_ref.actor.fsdp_config.model_dtype=bf16"
    )
    if load:
        engine.load_checkpoint(str(folder / load))
    else:
        for seed, adapter in enumerate("ABA"):
            update(engine, loss, batch(adapter, rows=4, seed=seed))
            engine.lr_scheduler_step()
        engine.take_snapshot()
    engine.save_checkpoint(str(folder / name))
    torch.distributed.destroy_process_group()

save("first", world=2)
if rank == 0:
    save("second", world=1, load="first")
save("third", world=2, load="second")  # waits for the other process
"""


@pytest.fixture(scope="module")
def saves(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """By two ranks that trained, by one that loaded theirs, and by two that loaded that one's."""
    folder = tmp_path_factory.mktemp("ranks")
    command = [sys.executable, "-c", RANK]
    ranks = [subprocess.Popen([*command, str(rank), str(tiny), str(folder)], cwd=ROOT) for rank in range(2)]
    try:
        assert [rank.wait(timeout=240) for rank in ranks] == [0, 0]
    finally:
        for rank in ranks:
            rank.kill()
    return [folder / name for name in ("first", "second", "third")]


@pytest.mark.parametrize("other", [1, 2])
def test_nothing_changes_on_the_way_through_other_shards(saves: list[Path], other: int) -> None:
    first, second = saves[0], saves[other]
    for adapter in "AB":
        ours, theirs = (load_file(f / adapter / "adapter_model.safetensors") for f in (first, second))
        assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
        assert {tensor.dtype for tensor in ours.values()} == {torch.float32}
    ours, theirs = (torch.load(f / "training_state.pt", weights_only=True) for f in (first, second))
    for adapter in "AB":
        moments = [state["moments"][adapter] for state in (ours, theirs)]
        assert moments[0].keys() == moments[1].keys() != set()
        for name, values in moments[0].items():
            assert all(torch.equal(values[key], moments[1][name][key]) for key in values)
        assert ours["updates"][adapter] == theirs["updates"][adapter] > 0
        for name, tensor in ours["past"][adapter].items():
            assert torch.equal(tensor, theirs["past"][adapter][name])


def test_each_rank_keeps_its_random_state(saves: list[Path]) -> None:
    assert [len(list(folder.glob("rng_*.pt"))) for folder in saves] == [2, 1, 2]
    one, other = (torch.load(saves[0] / f"rng_{rank}.pt", weights_only=False)["cpu"] for rank in range(2))
    assert not torch.equal(one, other)
