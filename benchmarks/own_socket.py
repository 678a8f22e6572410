"""A socket of its own for each run of stock verl on a machine, so that several can start up together.

verl imports this module in each of its processes (VERL_USE_EXTERNAL_MODULES). verl names the socket of a weight
transfer after the Ray job, and the first jobs of two local Rays have the same id: a run would take another run's
weights. Agon's runs have their own (`agon_verl/rollout/wire.py`).
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import wrapt


def of_run(handle: str) -> str:
    """`step_time.py` gives each run a folder for Ray."""
    return handle.replace(".sock", f"-{Path(os.environ['RAY_TMPDIR']).name}.sock")


def receive(utils: Any) -> None:
    """`utils` is verl's module of vLLM's worker."""

    @wrapt.patch_function_wrapper(utils.vLLMColocateWorkerExtension, "_get_zmq_handle")
    def handle(wrapped: Callable[[], str], _: Any, args: Any, kwargs: Any) -> str:
        return of_run(wrapped(*args, **kwargs))


def send(vllm_rollout: Any) -> None:
    """`vllm_rollout` is verl's module of the training process."""

    @wrapt.patch_function_wrapper(vllm_rollout.ServerAdapter, "__init__")
    def init(wrapped: Callable[..., None], instance: Any, args: Any, kwargs: Any) -> None:
        wrapped(*args, **kwargs)
        instance.zmq_handle = of_run(instance.zmq_handle)


wrapt.register_post_import_hook(receive, "verl.workers.rollout.vllm_rollout.utils")
wrapt.register_post_import_hook(send, "verl.workers.rollout.vllm_rollout.vllm_rollout")
