"""Whether a server that has more requests than it can compute still answers the watchdog, in Ray."""

import asyncio
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest
import ray

from agon_verl.rollout.replica import MultiAdapterReplica
from tests.recipes import composed

REQUESTS = 1319  # validation sends all its problems at once: those of GSM8K


@pytest.fixture(autouse=True)
def cluster() -> Iterator[None]:
    with tempfile.TemporaryDirectory(prefix="agon", dir="/tmp", ignore_cleanup_errors=True) as folder:
        ray.init(num_cpus=1, include_dashboard=False, _temp_dir=folder, log_to_driver=False)
        yield
        ray.shutdown()


def busy_server(concurrency: int) -> Any:
    class Server:  # defined here, so that its process does not import this file, and vLLM with it
        async def generate(self) -> None:
            await asyncio.Event().wait()

        async def ping(self) -> None: ...

    return ray.remote(Server).options(num_cpus=0, max_concurrency=concurrency).remote()


def test_a_ping_does_not_wait_behind_the_requests() -> None:
    """Ray starts the calls of an actor in their order, and no more at a time than the replica says."""
    replica = MultiAdapterReplica(0, composed("+recipe=agon").actor_rollout_ref.rollout, None, gpus_per_node=1)
    server = busy_server(replica.max_concurrency)
    ray.get(server.ping.remote())  # once it has started
    requests = [server.generate.remote() for _ in range(REQUESTS)]
    answered, _ = ray.wait([server.ping.remote()], timeout=60)
    assert answered and not ray.wait(requests, timeout=0)[0]
