"""Somebody else's checkpoint: loading it runs none of its code."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from verl.utils.checkpoint.checkpoint_manager import BaseCheckpointManager

from agon_verl.actor.tensors import load, save
from agon_verl.errors import CheckpointError
from agon_verl.pair.checkpoint import check_owner
from agon_verl.trainer.resumable import ResumableTrainer

OTHER_USER = 4242


class Planted:
    """Pickled, it creates a file when it is loaded."""

    def __init__(self, trace: Path) -> None:
        self._trace = trace

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self._trace),)


def trainer(**settings: Any) -> Any:
    return SimpleNamespace(config=OmegaConf.create({"agon": settings}))


def test_all_that_a_checkpoint_needs_is_loaded(tmp_path: Path) -> None:
    rng = BaseCheckpointManager.get_rng_state()
    save({"rng": rng, "carried": {"kl": 0.1, "past": None}, "metrics": {"pair/leak": 0.5}}, tmp_path / "trainer.pt")
    drawn = np.random.random(3)
    state = load(tmp_path / "trainer.pt")
    BaseCheckpointManager.load_rng_state(state["rng"])
    assert (np.random.random(3) == drawn).all()
    assert state["carried"] == {"kl": 0.1, "past": None} and torch.equal(state["rng"]["cpu"], rng["cpu"])


def test_an_object_that_runs_code_is_refused_and_does_not_run(tmp_path: Path) -> None:
    save({"rng": Planted(tmp_path / "trace")}, tmp_path / "trainer.pt")
    with pytest.raises(CheckpointError, match=r"trainer.pt contains posix.mkdir, not only plain values"):
        load(tmp_path / "trainer.pt")
    assert not (tmp_path / "trace").exists()


def test_verls_part_is_read_before_verl_loads_it(tmp_path: Path) -> None:
    folder = tmp_path / "global_step_1"
    folder.mkdir()
    save({"_num_yielded": 3, "_snapshot": {"state": torch.ones(2)}}, folder / "data.pt")
    ResumableTrainer._check_content(trainer(), folder)
    save({"sampler": Planted(tmp_path / "trace")}, folder / "data.pt")
    with pytest.raises(CheckpointError, match="data.pt contains posix.mkdir.*agon.trust_checkpoint=true"):
        ResumableTrainer._check_content(trainer(), folder)
    ResumableTrainer._check_content(trainer(trust_checkpoint=True), folder)
    assert not (tmp_path / "trace").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file of another user")
@pytest.mark.parametrize("theirs", [".", "data.pt"])
def test_a_folder_of_another_user_is_refused_unless_trusted(tmp_path: Path, theirs: str) -> None:
    folder = tmp_path / "global_step_1"
    folder.mkdir()
    save({}, folder / "data.pt")
    check_owner(folder, trust=False)
    os.chown(folder / theirs, OTHER_USER, -1)
    with pytest.raises(CheckpointError, match=f"belongs to user {OTHER_USER}, not to you.*agon.trust_checkpoint=true"):
        check_owner(folder, trust=False)
    check_owner(folder, trust=True)
