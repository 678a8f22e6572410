"""The files of `python -m agon_verl.data` in verl's own dataset."""

from pathlib import Path

import pytest
from omegaconf import OmegaConf
from transformers import AutoTokenizer

from agon_verl.trainer.preflight import check_files
from tests.recipes import composed
from tests.tiny import make_model
from tests.unit.data.test_command import deepmath, lines, run, split


@pytest.fixture
def table(tmp_path: Path) -> str:
    return lines(tmp_path / "deepmath.jsonl", deepmath())


def test_preflight_and_verl_take_the_files(table: str, tmp_path: Path) -> None:
    from verl.utils.dataset.rl_dataset import RLHFDataset

    run(*split(table, tmp_path / "out"))
    model, files = (
        make_model(tmp_path / "model"),
        [str(tmp_path / "out" / f"{n}.parquet") for n in ("train", "heldout")],
    )
    config = composed(
        "+recipe=agon_cpu",
        f"actor_rollout_ref.model.path={model}",
        f"data.train_files={files[0]}",
        f"data.val_files={files[1]}",
        "data.train_batch_size=4",
        "data.max_prompt_length=1024",
    )
    check_files(config)
    OmegaConf.set_struct(config, False)
    options = OmegaConf.merge(config.data, {"cache_dir": str(tmp_path / "cache"), "filter_overlong_prompts_workers": 1})
    loaded = RLHFDataset(files[0], AutoTokenizer.from_pretrained(model), options)
    assert len(loaded) == 20
    assert loaded[0]["raw_prompt"][0]["content"].startswith("Let K") and loaded[0]["index"] == 0
    assert loaded[0]["reward_model"]["ground_truth"].isdecimal()
