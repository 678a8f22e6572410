from pathlib import Path

import pytest

from tests.real import pair_run
from tests.real.runs import Run
from tests.tiny import make_folder


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def pair(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return pair_run.start(tiny, tmp_path_factory.mktemp("pair"))
