"""verl's client where there is one vLLM replica: a request needs no load balancer.

verl's load balancer is an actor with a process of its own, and each request calls it twice. With one replica it always
gives the same answer.
"""

from typing import Any

from omegaconf import DictConfig
from ray.actor import ActorHandle
from verl.workers.rollout.llm_server import LLMServerClient


class OneServerClient(LLMServerClient):
    def __init__(self, config: DictConfig, address: str, server: ActorHandle) -> None:
        super().__init__(config)
        self._server = address, server

    async def _acquire_server(self, request_id: str, **_: Any) -> tuple[str, ActorHandle]:
        return self._server

    def _release_server(self, server_id: str, request_id: str | None = None) -> None: ...
