"""Checkpoints on disk: what a kill, a full disk or a wrong folder leaves behind."""

import json
import logging
import os
import random
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from agon_verl.errors import CheckpointError
from agon_verl.pair import checkpoint
from agon_verl.pair.checkpoint import Manifest, committing, complete, latest, prune, to_resume

LORA = {"lora_rank": 16, "lora_alpha": 32, "target_modules": "all-linear"}


def manifest(step: int) -> Manifest:
    return Manifest(step=step, base="/models/b", base_hash="0123", lora=LORA, game={}, versions={}, metrics={"x": 1.0})


def save(root: Path, step: int) -> None:
    with committing(root, step) as folder:
        (folder / "actor").mkdir()
        (folder / "actor" / "weights").write_text(f"{step} " * 50_000)
        manifest(step).write(folder)


def test_the_newest_is_found_and_reads_back(tmp_path: Path) -> None:
    assert latest(tmp_path) is None and latest(tmp_path / "nowhere") is None
    for step in (2, 10):
        save(tmp_path, step)
    assert complete(tmp_path) == [2, 10]
    found = latest(tmp_path)
    assert found == tmp_path / "global_step_10" and Manifest.read(found) == manifest(10)
    assert (tmp_path / checkpoint.POINTER).read_text() == "10"


def test_a_failed_save_leaves_no_trace(tmp_path: Path) -> None:
    save(tmp_path, 1)
    with pytest.raises(OSError, match="No space left"):
        with committing(tmp_path, 2) as folder:
            (folder / "weights").symlink_to("/dev/full")  # a disk without room, as far as the writer can tell
            (folder / "weights").write_text("x")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["global_step_1", checkpoint.POINTER]


def test_old_checkpoints_go_after_the_new_one_is_complete(tmp_path: Path) -> None:
    for step in (1, 2, 3, 9):
        save(tmp_path, step)
    prune(tmp_path, newest=3, keep=2)
    assert complete(tmp_path) == [2, 3, 9]  # 9 belongs to a line that this run went back from
    prune(tmp_path, newest=9, keep=None)
    assert complete(tmp_path) == [2, 3, 9]


def test_a_step_saved_again_replaces_the_first(tmp_path: Path) -> None:
    for step in (4, 5, 4):
        save(tmp_path, step)
    assert latest(tmp_path) == tmp_path / "global_step_4"
    save(tmp_path, 6)
    assert not [entry for entry in tmp_path.iterdir() if entry.name.startswith(".")]


def test_a_pointer_without_its_folder_means_the_newest_complete_one(tmp_path: Path) -> None:
    for step in (1, 2):
        save(tmp_path, step)
    (tmp_path / checkpoint.POINTER).write_text("7")
    (tmp_path / "global_step_8").mkdir()  # no manifest: not ours, or torn by hand
    assert latest(tmp_path) == tmp_path / "global_step_2"


SAVER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from agon_verl.pair.checkpoint import Manifest, committing, latest, prune
root = Path(sys.argv[1])
found = latest(root)
step = int(found.name.rsplit("_", 1)[1]) if found else 0
print("ready", flush=True)
while True:
    step += 1
    with committing(root, step) as folder:
        (folder / "weights").write_text(f"{step} " * 50_000)
        Manifest(step, "base", "0123", {}, {}, {}, {}).write(folder)
    prune(root, newest=step, keep=2)
"""


def test_killed_at_any_moment_it_leaves_a_complete_checkpoint(tmp_path: Path) -> None:
    """20 kills at random moments of a process that does nothing but save and prune."""
    root, chance, inside, seen = tmp_path / "run", random.Random(0), 0, 0
    longest = 0.05  # seconds until a kill
    for _ in range(20):
        command = [sys.executable, "-c", SAVER, str(root), str(Path(__file__).parents[3])]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        time.sleep(chance.uniform(0, longest))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        if not root.exists():
            continue
        inside += any(entry.name.startswith(".") for entry in root.iterdir())
        found = latest(root)
        step = Manifest.read(found).step if found else 0
        assert found is None or (found / "weights").read_text() == f"{step} " * 50_000
        assert step >= seen
        longest *= 1.5 if step == seen else 1  # a busy machine saves more slowly
        seen = step
    assert inside and seen > 1  # some kills hit a save, and restarts went on


def test_what_to_resume(tmp_path: Path) -> None:
    save(tmp_path, 3)
    folder = tmp_path / "global_step_3"
    assert to_resume("disable", str(tmp_path), None) is None
    assert to_resume("auto", str(tmp_path), None) == folder
    assert to_resume("resume_path", "", f"{folder}/") == folder
    for mode, path in (("resume_path", None), ("resume_path", str(tmp_path)), ("latest", None)):
        with pytest.raises(CheckpointError, match=r"trainer\.resume"):
            to_resume(mode, str(tmp_path), path)


def test_differences_are_named() -> None:
    saved = manifest(1)
    assert saved.differences("/moved/b", "0123", LORA) == []
    (base,) = saved.differences("/models/c", "4567", LORA)
    assert base == "its base is /models/b (0123), the run's is /models/c (4567)"
    (rank,) = saved.differences("/models/b", "0123", {**LORA, "lora_rank": 8})
    assert rank == "its lora_rank is 16, the run's is 8"
    (modules,) = saved.differences("/models/b", "0123", {**LORA, "target_modules": ["q_proj"]})
    assert "all-linear" in modules and "q_proj" in modules


def test_a_checkpoint_of_another_rank_is_refused(tmp_path: Path) -> None:
    config = OmegaConf.create({"actor_rollout_ref": {"model": {"path": "/models/b", **LORA}}})
    with committing(tmp_path, 1) as folder:
        Manifest(1, "/models/b", "0123", checkpoint.lora_settings(config), {}, {}, {}).write(folder)
    checkpoint.check_fit(tmp_path / "global_step_1", config, "0123")
    config.actor_rollout_ref.model.lora_rank = 8
    with pytest.raises(CheckpointError, match="its lora_rank is 16, the run's is 8"):
        checkpoint.check_fit(tmp_path / "global_step_1", config, "0123")


GAME = {"reward": "adv", "format_weight": 0.5, "seed": 0, "reasoning_tags": ["<think>", "</think>"], "lr": {"A": None}}
JUDGE = {"path": "pkg://reward_fns.math_answer", "name": "compute_score", "reward_kwargs": {"workers": 2}}


def of_game(mode: str = "auto", judge: dict[str, Any] = JUDGE, **game: Any) -> DictConfig:
    sections = {"agon": {**GAME, **game}, "reward": {"custom_reward_function": judge}}
    return OmegaConf.create({**sections, "trainer": {"resume_mode": mode}})


@pytest.fixture
def played(tmp_path: Path) -> Path:
    with committing(tmp_path, 1) as folder:
        replace(manifest(1), game=GAME, verifier=JUDGE).write(folder)
    return tmp_path / "global_step_1"


@pytest.mark.parametrize(
    ("config", "difference"),
    [
        (of_game(reward="margin"), "its agon.reward is adv, the run's is margin"),
        (of_game(seed=1), "its agon.seed is 0, the run's is 1"),
        (of_game(format_weight=0.1), "its agon.format_weight is 0.5, the run's is 0.1"),
        (of_game(reasoning_tags=["<t>", "</t>"]), "its agon.reasoning_tags is ['<think>', '</think>'], the run's is"),
        (
            of_game(judge={**JUDGE, "path": "/a/b/mine.py"}),
            "compute_score of reward_fns.math_answer, the run's is comp",
        ),
    ],
)
def test_automatic_resume_refuses_another_game(played: Path, config: DictConfig, difference: str) -> None:
    with pytest.raises(CheckpointError, match=re.escape(difference)) as caught:
        checkpoint.check_game(played, config)
    assert f"trainer.resume_mode=resume_path trainer.resume_from_path={played}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_checkpoint_chosen_by_name_goes_on_with_another_game(played: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        checkpoint.check_game(played, of_game("resume_path", reward="coop"))
    (record,) = caplog.records
    assert "goes on from" in record.message and "its agon.reward is adv, the run's is coop" in record.message


def test_automatic_resume_accepts_what_may_change_and_what_was_not_recorded(
    played: Path, caplog: pytest.LogCaptureFixture
) -> None:
    moved = {**JUDGE, "reward_kwargs": {"workers": 8}}
    checkpoint.check_game(played, of_game(judge=moved, lr={"A": 1e-5}, frozen=["B"], withhold="value"))
    manifest(1).write(played)  # as the first checkpoints
    checkpoint.check_game(played, of_game(judge={**JUDGE, "name": "other"}, seed=3))
    assert caplog.records == []


def test_a_manifest_of_another_format_is_refused(tmp_path: Path) -> None:
    manifest(1).write(tmp_path)
    values = json.loads((tmp_path / checkpoint.MANIFEST).read_text())
    (tmp_path / checkpoint.MANIFEST).write_text(json.dumps({**values, "format": 99}))
    with pytest.raises(CheckpointError, match="format 99"):
        Manifest.read(tmp_path)
    with pytest.raises(CheckpointError, match="not a checkpoint of a pair"):
        Manifest.read(tmp_path / "nowhere")
