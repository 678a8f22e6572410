"""verl's synchronous trainer over the worker and the server that hold several adapters."""

import importlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ray
from verl.trainer.ppo.utils import Role
from verl.trainer.ppo.v1 import PPOTrainerSync
from verl.workers.rollout.llm_server import LLMServerClient
from verl.workers.rollout.replica import RolloutReplicaRegistry

from agon_verl.actor.worker import MultiAdapterWorker
from agon_verl.config import AgonConfig
from agon_verl.rollout.one_server import OneServerClient
from agon_verl.rollout.server_process import start_servers
from agon_verl.trainer.preflight import check_settings


class MultiAdapterTrainer(PPOTrainerSync):
    """The only change is which processes verl starts, and when.

    Most of a start are imports, and verl starts one process after the other. vLLM's servers and the agent loop workers
    come last, but need nothing of the others while they import: here they start before the training processes.
    """

    def _build_replay_buffer(self) -> Any:
        """The first method that verl's constructor calls."""
        check_settings(self.config)
        self.game = AgonConfig.read(self.config)
        # verl compares the mode with this string where it means "on policy" (trainer_base.py:153 and others).
        self.trainer_mode = "sync"
        return super()._build_replay_buffer()

    def _init_resource_pool_mgr(self) -> None:
        # Not above: verl loads a user's trainer, and this module with it, while `loop` imports verl.
        from agon_verl.rollout.loop import start_workers

        super()._init_resource_pool_mgr()
        # With LoRA the reference policy is the actor's base, so this is the only worker.
        self.role_worker_mapping[Role.ActorRollout] = ray.remote(MultiAdapterWorker)
        register_replica()
        self._agent_loop_workers = start_workers(self.config)  # the workers end when nobody holds their handles

    def _setup(self) -> None:
        start_servers(self.config)
        super()._setup()
        if self._has_one_server:
            ray.kill(self.llm_server_manager.global_load_balancer)  # before it has imported much

    @property
    def _has_one_server(self) -> bool:
        chosen = self.config.actor_rollout_ref.rollout.get("router_config_path")  # a user's own load balancer
        return chosen is None and len(self.llm_server_manager.get_replicas()) == 1

    def get_llm_client(self) -> LLMServerClient:
        manager = self.llm_server_manager
        if self._has_one_server:
            return OneServerClient(self.config, manager.server_addresses[0], manager.server_handles[0])
        return super().get_llm_client()


def register_replica() -> None:
    """verl takes a replica's class from this registry, by the name of the rollout. Only this process is affected.

    The class imports vLLM: a thread does it while the training processes start.
    """
    imported = ThreadPoolExecutor(1).submit(importlib.import_module, "agon_verl.rollout.replica")
    RolloutReplicaRegistry.register("vllm", lambda: imported.result().MultiAdapterReplica)
