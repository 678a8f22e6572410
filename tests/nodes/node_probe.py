"""What the tests of several nodes look at, and where they wait for a fault; verl imports it in each of its processes.

Environment variables say what it does:

NODE_SEEDS    any value: each rollout has a seed of its own, by problem and number, whichever replica samples it
NODE_SYNCED   a file: a line for each adapter that a vLLM takes, with its node and a digest of its tensors
NODE_FAULT    a folder: a training process that comes to the point that its file `at` names (update, sync or save)
              makes `reached` and waits until `at` is gone, so that a fault hits it there
NODE_TRAINER  the address of the trainer's node; Ray would choose one at random
"""

import functools
import hashlib
import json
import os
import time
import zlib
from pathlib import Path
from typing import Any

import ray
import ray.actor
import wrapt

WAIT = 20.0  # seconds at the point of a fault: the test sees `reached` and acts


def _seed_rollouts(agent_loop: Any) -> None:
    run = agent_loop.AgentLoopWorker._run_agent_loop

    async def seeded(self: Any, sampling_params: dict, *args: Any, **kwargs: Any) -> Any:
        text = f"{list(kwargs['raw_prompt'])}/{kwargs['session_id']}"
        return await run(self, {**sampling_params, "seed": zlib.crc32(text.encode())}, *args, **kwargs)

    agent_loop.AgentLoopWorker._run_agent_loop = seeded


def _log_synced(vllm: Any) -> None:
    """Inside vLLM's worker, where each adapter that arrives becomes one of these requests."""
    request = vllm.TensorLoRARequest

    def logged(**kwargs: Any) -> Any:
        digest = hashlib.sha256()
        for name, tensor in sorted(kwargs["lora_tensors"].items()):
            digest.update(name.encode() + tensor.contiguous().float().numpy().tobytes())
        line = {"node": ray.util.get_node_ip_address(), "adapter": kwargs["lora_name"], "digest": digest.hexdigest()}
        with Path(os.environ["NODE_SYNCED"]).open("a") as log:
            log.write(json.dumps(line) + "\n")
        return request(**kwargs)

    vllm.TensorLoRARequest = logged


def _wait_at(point: str) -> None:
    folder = Path(os.environ["NODE_FAULT"])
    try:
        fault = (folder / "at").read_text()
    except FileNotFoundError:
        return
    if fault == point:
        (folder / "reached").touch()
        end = time.monotonic() + WAIT
        while time.monotonic() < end and (folder / "at").exists():
            time.sleep(0.1)


def _wait_for_faults(workers: Any) -> None:
    def paused(cls: type, name: str, point: str) -> None:
        method = getattr(cls, name)

        @functools.wraps(method)
        def waiting(*args: Any, **kwargs: Any) -> Any:
            _wait_at(point)
            return method(*args, **kwargs)

        setattr(cls, name, waiting)

    paused(workers.TrainingWorker, "train_batch", "update")
    paused(workers.ActorRolloutRefWorker, "update_weights", "sync")
    paused(workers.ActorRolloutRefWorker, "save_checkpoint", "save")


def _place_trainer() -> None:
    """In the process of the command, which creates the trainer's."""
    node = {f"node:{os.environ['NODE_TRAINER']}": 0.001}
    create = ray.actor.ActorClass.remote

    def remote(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.__ray_metadata__.class_name == "TaskRunnerV1":
            return self.options(resources=node).remote(*args, **kwargs)
        return create(self, *args, **kwargs)

    ray.actor.ActorClass.remote = remote


if "NODE_TRAINER" in os.environ:
    _place_trainer()
if "NODE_SEEDS" in os.environ:
    wrapt.register_post_import_hook(_seed_rollouts, "verl.experimental.agent_loop.agent_loop")
if "NODE_SYNCED" in os.environ:
    wrapt.register_post_import_hook(_log_synced, "verl.utils.vllm")
if "NODE_FAULT" in os.environ:
    wrapt.register_post_import_hook(_wait_for_faults, "verl.workers.engine_workers")
