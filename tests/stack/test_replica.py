"""Which server verl starts for which model, by its own registry."""

import argparse
import asyncio
import inspect

import pytest
import verl
from omegaconf import DictConfig, OmegaConf
from verl.workers.rollout.replica import RolloutReplicaRegistry, get_rollout_replica_class
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer
from vllm import ModelRegistry
from vllm.model_executor.models import registry

from agon_verl.cpu.platform import ONE_PROCESS
from agon_verl.rollout import server as servers
from agon_verl.rollout.server import MultiAdapterServer
from agon_verl.rollout.server_process import METHODS, ServerClass, ServerProcess
from agon_verl.trainer import multi_adapter
from tests.recipes import composed


@pytest.mark.parametrize("role", [{}, {"is_reward_model": True}, {"is_teacher_model": True}])
def test_only_the_pair_gets_the_server_with_its_adapters(
    monkeypatch: pytest.MonkeyPatch, role: dict[str, bool]
) -> None:
    monkeypatch.setattr(RolloutReplicaRegistry, "_registry", dict(RolloutReplicaRegistry._registry))
    multi_adapter.register_replica()
    rollout = composed("+recipe=agon_cpu").actor_rollout_ref.rollout
    replica = get_rollout_replica_class(rollout.name)(0, rollout, None, gpus_per_node=1, **role)
    if role:
        assert replica.server_class.__ray_metadata__.modified_class.__bases__ == (vLLMHttpServer,)
    else:
        assert isinstance(replica.server_class, ServerClass)


def test_every_method_of_the_server_can_be_called() -> None:
    public = {name for name, _ in inspect.getmembers(MultiAdapterServer) if not name.startswith("_")}
    inside = {"run_server", "run_headless", "lora_as_adapter"}
    refused = {"set_pd_peer"}  # of disaggregated servers: preflight refuses them
    newer = {"get_rollout_config", "open_submission_gate", "resume_engine_generation"}  # than verl 0.9.0
    missing = set() if verl.__version__ == "0.9.1" else newer
    assert public - inside - refused == set(METHODS) - missing
    assert all(inspect.iscoroutinefunction(getattr(ServerProcess, name)) for name in METHODS)


def test_vllm_starts_no_process_to_look_at_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """What vLLM sees of a class that was loaded here is what it would see in a process of its own."""
    monkeypatch.setattr(ModelRegistry, "models", dict(ModelRegistry.models))
    # vLLM's cache is a JSON file, from which a tuple comes back as a list
    monkeypatch.setattr(registry._LazyRegisteredModel, "_load_modelinfo_from_cache", lambda *_: None)
    name = "Qwen2ForCausalLM"
    expected = ModelRegistry.models[name].inspect_model_cls()

    def started(*_: object) -> None:
        raise AssertionError("vLLM started a process")

    monkeypatch.setattr(registry, "_run_in_subprocess", started)
    with pytest.raises(AssertionError, match="started a process"):
        ModelRegistry.models[name].inspect_model_cls()
    servers.load_class_here(name)
    servers.load_class_here("OfALaterVersion")  # vLLM has its own message
    assert ModelRegistry.models[name].inspect_model_cls() == expected


def parallel(tensor: int, pipeline: int, data: int) -> argparse.Namespace:
    sizes = {"tensor_parallel_size": tensor, "pipeline_parallel_size": pipeline, "data_parallel_size": data}
    return argparse.Namespace(**sizes, distributed_executor_backend="mp", scheduler_cls=None)


@pytest.mark.parametrize("sizes", [(2, 1, 1), (1, 2, 1), (1, 1, 2)])
def test_several_workers_have_a_process_each(monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, int, int]) -> None:
    monkeypatch.setattr(servers, "cpu_only", lambda: True)
    assert not servers.in_one_process(parallel(*sizes))


@pytest.mark.parametrize(("cpu", "backend"), [(True, ONE_PROCESS), (False, "mp")])
@pytest.mark.parametrize("chosen", [{}, {"distributed_executor_backend": "mp"}])
def test_on_a_cpu_one_worker_runs_in_the_engine_unless_a_user_decides(
    monkeypatch: pytest.MonkeyPatch, chosen: dict[str, str], cpu: bool, backend: str
) -> None:
    started: list[argparse.Namespace] = []

    async def run_server(self: vLLMHttpServer, args: argparse.Namespace) -> None:
        self.engine = None
        started.append(args)

    monkeypatch.setattr(vLLMHttpServer, "run_server", run_server)
    monkeypatch.setattr(servers, "cpu_only", lambda: cpu)
    server = object.__new__(MultiAdapterServer)  # its constructor needs Ray
    config = composed("+recipe=agon_cpu")
    OmegaConf.resolve(config)
    OmegaConf.update(config.actor_rollout_ref.model, "architectures", ["Qwen2ForCausalLM"], force_add=True)
    server.model_config = config.actor_rollout_ref.model
    server.config = DictConfig({"engine_kwargs": {"vllm": chosen}})
    asyncio.run(server.run_server(parallel(1, 1, 1)))
    assert started[0].distributed_executor_backend == chosen.get("distributed_executor_backend", backend)
