"""Checkpoints between numbers of ranks: from two gloo ranks to one, and back to two."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.real.runs import ROOT

# One rank: load (if there is something), train both adapters on all rows, save.
RANK = """
import sys, torch, torch.distributed
from pathlib import Path
rank, world, tiny, store, load, save = sys.argv[1:]
torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=int(rank), world_size=int(world))
import os
os.environ["LOCAL_RANK"], os.environ["RANK"], os.environ["WORLD_SIZE"] = rank, rank, world
from tests.real.test_engine import batch, make_engine, update
torch.manual_seed(int(rank))
engine, loss = make_engine(Path(tiny), "agon.opponent.share=0.5")
if load != "-":
    engine.load_checkpoint(load)
else:
    for seed, adapter in enumerate("ABA"):
        update(engine, loss, batch(adapter, rows=4, seed=seed))
        engine.lr_scheduler_step()
    engine.take_snapshot()
engine.save_checkpoint(save)
torch.distributed.destroy_process_group()
"""


def run(world: int, tiny: Path, folder: Path, load: str, save: Path) -> None:
    """Every rank as a process of its own."""
    store = folder / f"store_{save.name}"
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(r), str(world), str(tiny), str(store), load, str(save)], cwd=ROOT
        )
        for r in range(world)
    ]
    assert [rank.wait(timeout=240) for rank in ranks] == [0] * world


@pytest.fixture(scope="module")
def saves(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """By two ranks that trained, by one that loaded theirs, and by two that loaded that one's."""
    folder = tmp_path_factory.mktemp("ranks")
    saved = [folder / name for name in ("first", "second", "third")]
    run(2, tiny, folder, "-", saved[0])
    run(1, tiny, folder, str(saved[0]), saved[1])
    run(2, tiny, folder, str(saved[1]), saved[2])
    return saved


@pytest.mark.parametrize("other", [1, 2])
def test_nothing_changes_on_the_way_through_other_shards(saves: list[Path], other: int) -> None:
    first, second = saves[0], saves[other]
    for adapter in "AB":
        ours, theirs = (load_file(f / adapter / "adapter_model.safetensors") for f in (first, second))
        assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
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
