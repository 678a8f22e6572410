"""verl's synchronous trainer over the worker and the server that hold several adapters."""

from typing import Any

import ray
from verl.trainer.ppo.utils import Role
from verl.trainer.ppo.v1 import PPOTrainerSync
from verl.workers.rollout.replica import RolloutReplicaRegistry

from agon_verl.actor.worker import MultiAdapterWorker
from agon_verl.config import AgonConfig
from agon_verl.trainer.preflight import check_settings


class MultiAdapterTrainer(PPOTrainerSync):
    """The only change is which worker and which vLLM server verl starts."""

    def _build_replay_buffer(self) -> Any:
        """The first method that verl's constructor calls."""
        check_settings(self.config)
        self.game = AgonConfig.read(self.config)
        # verl compares the mode with this string where it means "on policy" (trainer_base.py:153 and others).
        self.trainer_mode = "sync"
        return super()._build_replay_buffer()

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()
        # With LoRA the reference policy is the actor's base, so this is the only worker.
        self.role_worker_mapping[Role.ActorRollout] = ray.remote(MultiAdapterWorker)
        register_replica()


def register_replica() -> None:
    """verl takes a replica's class from this registry, by the name of the rollout. Only this process is affected."""
    RolloutReplicaRegistry.register("vllm", _load_replica)


def _load_replica() -> type:
    from agon_verl.rollout.server import MultiAdapterReplica

    return MultiAdapterReplica
