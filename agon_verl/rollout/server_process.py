"""The process of vLLM's server, which starts early, and which other processes call without importing vLLM.

Ray imports the class of an actor in each process that gets a handle of it, and verl's server class imports vLLM. Its
constructor also needs to know the GPUs of the training processes, so verl starts it after them. `ServerProcess` imports
vLLM at once and only in its own process; verl's server is constructed inside it once its settings are there.
"""

import importlib
import inspect
import os
from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import Any

import ray
from omegaconf import DictConfig
from ray.actor import ActorHandle
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from verl.plugin.platform import get_platform

from agon_verl.config import gpus_per_replica
from agon_verl.rollout.wire import MPS_PRIORITY, NODE

# vLLM queues requests itself. With verl's 1,000, a ping would wait behind them and count as no answer.
MAX_CONCURRENCY = 1_000_000
METHODS = (  # of the server that verl and this package call
    "abort_all_requests",
    "abort_request",
    "check",
    "clear_kv_cache",
    "collective_rpc",
    "generate",
    "get_master_address",
    "get_rollout_config",
    "get_server_address",
    "launch_server",
    "open_submission_gate",
    "ping",
    "release_kv_cache",
    "resume_engine_generation",
    "resume_generation",
    "resume_kv_cache",
    "set_global_steps",
    "sleep",
    "start_profile",
    "stop_profile",
    "wait_for_requests_to_drain",
    "wake_up",
)
_started: dict[str, ActorHandle] = {}  # by the name under which verl will start it


class ServerProcess:
    """The first call to the server constructs it, and raises what its constructor raises."""

    def __init__(self, **settings: Any) -> None:
        # vLLM's processes inherit this environment.
        os.environ[NODE] = ray.get_runtime_context().get_node_id()
        os.environ.pop(MPS_PRIORITY, None)  # training gives way to decoding
        self._module, self._settings = importlib.import_module("agon_verl.rollout.server"), settings

    async def take_settings(self, **settings: Any) -> None:
        self._settings = settings

    @cached_property
    def _server(self) -> Any:
        return self._module.MultiAdapterServer(**self._settings)


def _forwarded(name: str) -> Callable[..., Awaitable[Any]]:
    async def call(self: ServerProcess, *args: Any, **kwargs: Any) -> Any:
        answer = getattr(self._server, name)(*args, **kwargs)
        return await answer if inspect.isawaitable(answer) else answer

    return call


for _name in METHODS:
    setattr(ServerProcess, _name, _forwarded(_name))


def start_servers(config: DictConfig) -> None:
    """Start the process of each vLLM replica, without waiting until it is ready."""
    for options in early_options(config):
        _started[options["name"]] = ray.remote(ServerProcess).options(**options).remote()


def early_options(config: DictConfig) -> list[dict[str, Any]]:
    """Ray's options of each server, as verl chooses them later.

    With several nodes only verl knows which server belongs to which node, once the training processes run: then none.
    """
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    if len(nodes) > 1:
        return []
    rollout, platform = config.actor_rollout_ref.rollout, get_platform()
    env_vars = {**dict.fromkeys(platform.ray_noset_envvars(), "1"), **platform.rollout_env_vars()}
    return [
        {
            "name": f"vllm_server_{replica}_0",
            "scheduling_strategy": NodeAffinitySchedulingStrategy(node_id=nodes[0], soft=False),
            "runtime_env": {"env_vars": env_vars},
            "max_concurrency": MAX_CONCURRENCY,
        }
        for replica in range(config.trainer.n_gpus_per_node // gpus_per_replica(rollout))
    ]


class ServerClass:
    """What verl takes for the server's Ray class: `options(…).remote(…)` returns a process that was started early."""

    def __init__(self, **options: Any) -> None:
        self._options = options

    def options(self, **options: Any) -> "ServerClass":
        return ServerClass(**options)

    def remote(self, **settings: Any) -> ActorHandle:
        server = _started.pop(self._options["name"], None)
        if server is None:
            return ray.remote(ServerProcess).options(**self._options).remote(**settings)
        ray.get(server.take_settings.remote(**settings))  # Ray may run a later call before it
        return server
