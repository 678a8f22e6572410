from pathlib import Path

import pytest

from tests.real import pair_run
from tests.real.runs import Run
from tests.tiny import make_data, make_model


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `model/`, `train.parquet` (64 problems) and `val.parquet` (8)."""
    folder = tmp_path_factory.mktemp("tiny")
    make_model(folder / "model")
    make_data(folder / "train.parquet", 64)
    make_data(folder / "val.parquet", 8)
    return folder


@pytest.fixture(scope="session")
def pair(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return pair_run.start(tiny, tmp_path_factory.mktemp("pair"))
