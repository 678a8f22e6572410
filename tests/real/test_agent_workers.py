"""Agent loop workers that start before vLLM, and the client of one server, in Ray and with the real TransferQueue."""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import ray
import transfer_queue as tq
from omegaconf import DictConfig, OmegaConf
from verl.workers.rollout.llm_server import LLMServerClient
from verl.workers.rollout.replica import TokenOutput

from agon_verl.rollout.loop import AgonAgentLoopManager, start_workers
from agon_verl.rollout.one_server import OneServerClient
from agon_verl.trainer.multi_adapter import MultiAdapterTrainer
from tests.real.runs import ROOT, sizes
from tests.recipes import composed


@pytest.fixture
def config(tiny: Path) -> Iterator[DictConfig]:
    config = composed("+recipe=agon_cpu", *sizes(tiny))
    OmegaConf.resolve(config)
    with tempfile.TemporaryDirectory(prefix="agon", dir="/tmp", ignore_cleanup_errors=True) as folder:
        ray.init(num_cpus=8, include_dashboard=False, _temp_dir=folder, log_to_driver=False)
        yield config
        ray.shutdown()


def test_a_worker_starts_once_and_is_connected_later(config: DictConfig) -> None:
    tq.init(config.transfer_queue)
    started = start_workers(config)
    before = started[0].__ray_call__.remote(lambda self: type(self.llm_client).__name__)
    client = OneServerClient(config, "host:1", started[0])
    manager = AgonAgentLoopManager.create(config=config, llm_client=client, reward_loop_worker_handles=started)
    assert manager.agent_loop_workers == started and ray.get(before) == "LLMServerClient"
    after = started[0].__ray_call__.remote(
        lambda self: (type(self.llm_client).__name__, len(self.reward_loop_worker_handles))
    )
    assert ray.get(after) == ("OneServerClient", 1)
    tq.close()


def test_a_users_trainer_is_loaded_while_a_worker_imports_its_class() -> None:
    command = [sys.executable, "-c", "import agon_verl.rollout.loop"]
    subprocess.run(command, env={**os.environ, "VERL_USE_EXTERNAL_MODULES": "tests.real.probe"}, cwd=ROOT, check=True)


class Server:
    async def generate(self, prompt_ids: list[int], adapter: str, **_: object) -> TokenOutput:
        return TokenOutput(token_ids=[*prompt_ids, 7], extra_fields={"adapter": adapter})


def trainer(config: DictConfig, servers: int, server: object) -> MultiAdapterTrainer:
    trainer = object.__new__(MultiAdapterTrainer)  # its constructor starts a run
    trainer.config = config
    trainer.llm_server_manager = SimpleNamespace(
        get_replicas=lambda: [None] * servers,
        get_client=lambda: LLMServerClient(config),
        server_addresses=["host:1"] * servers,
        server_handles=[server] * servers,
    )
    return trainer


def test_one_server_needs_no_load_balancer(config: DictConfig) -> None:
    server = ray.remote(Server).remote()
    client = trainer(config, 1, server).get_llm_client()
    output = asyncio.run(client.generate("1", prompt_ids=[5], sampling_params={}, adapter="B"))
    assert (output.token_ids, output.extra_fields["adapter"]) == ([5, 7], "B")
    assert type(trainer(config, 2, server).get_llm_client()) is LLMServerClient
    config.actor_rollout_ref.rollout.router_config_path = "mine.yaml"
    assert type(trainer(config, 1, server).get_llm_client()) is LLMServerClient
