"""Which server verl starts for which model, by its own registry."""

import pytest
from verl.workers.rollout.replica import RolloutReplicaRegistry, get_rollout_replica_class
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer

from agon_verl.rollout.server import MultiAdapterServer
from agon_verl.trainer import multi_adapter
from tests.recipes import composed


@pytest.mark.parametrize(
    ("role", "server"),
    [
        ({}, MultiAdapterServer),
        ({"is_reward_model": True}, vLLMHttpServer),
        ({"is_teacher_model": True}, vLLMHttpServer),
    ],
)
def test_only_the_pair_gets_the_server_with_its_adapters(
    monkeypatch: pytest.MonkeyPatch, role: dict[str, bool], server: type
) -> None:
    monkeypatch.setattr(RolloutReplicaRegistry, "_registry", dict(RolloutReplicaRegistry._registry))
    multi_adapter.register_replica()
    rollout = composed("+recipe=agon_cpu").actor_rollout_ref.rollout
    replica = get_rollout_replica_class(rollout.name)(0, rollout, None, gpus_per_node=1, **role)
    assert replica.server_class.__ray_metadata__.modified_class.__bases__ == (server,)
