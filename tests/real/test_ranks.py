"""Checkpoints between numbers of ranks: saved by two gloo ranks, loaded by one, and the other way round."""

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


@pytest.mark.parametrize(("saved_by", "loaded_by"), [(2, 1), (1, 2)])
def test_a_checkpoint_loads_with_another_number_of_ranks(
    tiny: Path, tmp_path: Path, saved_by: int, loaded_by: int
) -> None:
    """What was loaded is saved again at once: nothing may have changed on the way through the other shards."""
    first, second = tmp_path / "first", tmp_path / "second"
    run(saved_by, tiny, tmp_path, "-", first)
    run(loaded_by, tiny, tmp_path, str(first), second)
    for adapter in "AB":
        ours, theirs = (load_file(f / adapter / "adapter_model.safetensors") for f in (first, second))
        assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
    ours, theirs = (torch.load(f / "training_state.pt", weights_only=True) for f in (first, second))
    for adapter in "AB":
        moments = [state["optimizers"][adapter]["moments"] for state in (ours, theirs)]
        assert moments[0].keys() == moments[1].keys() != set()
        for name, values in moments[0].items():
            assert all(torch.equal(values[key], moments[1][name][key]) for key in values)
        assert ours["optimizers"][adapter]["groups"] == theirs["optimizers"][adapter]["groups"]
        assert ours["lr_schedulers"][adapter] == theirs["lr_schedulers"][adapter]
        for name, tensor in ours["past"][adapter].items():
            assert torch.equal(tensor, theirs["past"][adapter][name])
    assert len(list(first.glob("rng_*.pt"))) == saved_by
