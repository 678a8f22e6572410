from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nodes.cluster import HEAD, WORKER, Cluster, cluster, missing
from tests.tiny import make_folder


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("tiny"))


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
