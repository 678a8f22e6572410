"""vLLM's server in a process that starts before the training processes, in Ray and with the tiny model."""

import asyncio
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from omegaconf import DictConfig, OmegaConf
from ray.actor import ActorHandle
from verl.workers.rollout.replica import RolloutMode
from vllm.v1.engine.exceptions import EngineDeadError

from agon_verl.game.roles import BASE
from agon_verl.rollout.replica import MultiAdapterReplica
from agon_verl.rollout.server_process import ServerClass, _started, early_options, start_servers
from agon_verl.rollout.wire import BELOW_NORMAL, MPS_PRIORITY
from tests.real.runs import sizes
from tests.recipes import composed


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    with (
        tempfile.TemporaryDirectory(prefix="agon", dir="/tmp", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv(MPS_PRIORITY, BELOW_NORMAL)
        ray.init(num_cpus=8, num_gpus=2, include_dashboard=False, _temp_dir=folder, log_to_driver=False)
        yield
        _started.clear()
        ray.shutdown()


class AskedOptions(ServerClass):
    """Keeps what verl asks for."""

    def options(self, **options: Any) -> ServerClass:
        self.asked = options
        return super().options(**options)


def replica_of(config: DictConfig, rank: int) -> MultiAdapterReplica:
    class Trainer:  # defined here, so that its process does not import this file, and vLLM with it
        """A training process: verl asks it for its node and its GPU."""

    parts = config.actor_rollout_ref
    replica = MultiAdapterReplica(rank, parts.rollout, parts.model, gpus_per_node=2)
    replica.rollout_mode, replica.workers = RolloutMode.HYBRID, [ray.remote(Trainer).options(num_gpus=1).remote()]
    replica.server_class = AskedOptions()
    return replica


def resolved(*overrides: str) -> DictConfig:
    config = composed("+recipe=agon_cpu", "trainer.n_gpus_per_node=2", *overrides)
    OmegaConf.resolve(config)
    return config


@pytest.fixture(scope="module")
def replica(tiny: Path) -> MultiAdapterReplica:
    """The second of two, with a server that was started early."""
    config = resolved(*sizes(tiny))
    start_servers(config)
    early = dict(_started)
    assert early.keys() == {"vllm_server_0_0", "vllm_server_1_0"}
    replica = replica_of(config, 1)
    asyncio.run(replica.launch_servers())
    assert replica.server_handle == early["vllm_server_1_0"] and _started.keys() == {"vllm_server_0_0"}

    _, planned = early_options(config)
    asked = replica.server_class.asked
    assert asked.pop("scheduling_strategy").node_id == planned.pop("scheduling_strategy").node_id
    assert asked == planned
    return replica


def test_a_server_that_was_started_early_serves(replica: MultiAdapterReplica) -> None:
    server: ActorHandle = replica.server_handle
    request = {"prompt_ids": [5, 6, 7], "sampling_params": {"max_tokens": 3, "logprobs": True}, "request_id": "1"}
    output = ray.get(server.generate.remote(**request, adapter=BASE))
    assert len(output.token_ids) == len(output.log_probs) == 3
    ray.get([server.check.remote(), server.ping.remote()])

    def imports_vllm(_: Any) -> bool:
        ray.get(ray.get_actor("vllm_server_1_0").check.remote())
        return "vllm" in sys.modules

    assert not ray.get(replica.workers[0].__ray_call__.remote(imports_vllm))


def test_training_gives_way_to_decoding(replica: MultiAdapterReplica) -> None:
    def priorities(_: Any) -> list[str | None]:
        """Of the processes that it has started, or its own."""
        import psutil

        this = psutil.Process()
        return [process.environ().get("CUDA_MPS_CLIENT_PRIORITY") for process in this.children(True) or [this]]

    assert ray.get(replica.workers[0].__ray_call__.remote(priorities)) == [BELOW_NORMAL]
    engine = ray.get(replica.server_handle.__ray_call__.remote(priorities))
    assert len(engine) > 0 and set(engine) == {None}


def test_a_ping_that_waits_when_the_engine_dies_says_so(replica: MultiAdapterReplica) -> None:
    """vLLM itself never answers such a call. The replica is of no use afterwards."""

    def send(_: Any, sent: signal.Signals) -> None:
        import psutil

        (engine,) = (child for child in psutil.Process().children(recursive=True) if "EngineCore" in child.name())
        engine.send_signal(sent)

    server: ActorHandle = replica.server_handle
    ray.get(server.__ray_call__.remote(send, signal.SIGSTOP))
    ping = server.ping.remote()
    answered, _ = ray.wait([ping], timeout=3)
    assert not answered
    ray.get(server.__ray_call__.remote(send, signal.SIGKILL))
    with pytest.raises(EngineDeadError):
        ray.get(ping, timeout=60)


def test_without_an_early_start_verl_starts_it_and_gets_the_constructors_error() -> None:
    replica = replica_of(resolved("actor_rollout_ref.model.path=no/such/model"), 2)
    with pytest.raises(ray.exceptions.RayTaskError, match="no/such/model"):
        asyncio.run(replica.launch_servers())


def test_with_several_nodes_none_is_started_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "nodes", lambda: [{"NodeID": "a", "Alive": True}, {"NodeID": "b", "Alive": True}])
    assert early_options(resolved()) == []


@pytest.mark.parametrize(("tensor", "servers"), [(1, 2), (2, 1)])
def test_one_server_per_replica(tensor: int, servers: int) -> None:
    config = resolved(f"actor_rollout_ref.rollout.tensor_model_parallel_size={tensor}")
    assert [options["name"] for options in early_options(config)] == [f"vllm_server_{n}_0" for n in range(servers)]
