from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nodes.cluster import HEAD, WORKER, Cluster, cluster, missing
from tests.tiny import make_data, make_model


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `model/`, `train.parquet` (64 problems) and `val.parquet` (8), on storage that all nodes see."""
    folder = tmp_path_factory.mktemp("tiny")
    make_model(folder / "model")
    make_data(folder / "train.parquet", 64)
    make_data(folder / "val.parquet", 8)
    return folder


@pytest.fixture(scope="session")
def namespaces() -> None:
    if reason := missing():
        pytest.skip(reason)


@pytest.fixture(scope="module")
def nodes(namespaces: None) -> Iterator[Cluster]:
    with cluster() as made:
        made.start(HEAD)
        made.start(WORKER)
        yield made
