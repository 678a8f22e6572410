"""verl's vLLM replica over the server with a slot per adapter."""

from typing import Any

from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMReplica

from agon_verl.rollout.server_process import MAX_CONCURRENCY, ServerClass


class MultiAdapterReplica(vLLMReplica):
    """verl takes the replica of every model that vLLM serves from one registry; only the pair's has adapters."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not (self.is_reward_model or self.is_teacher_model):
            self.server_class = ServerClass()

    @property
    def max_concurrency(self) -> int:
        return MAX_CONCURRENCY
