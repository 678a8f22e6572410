"""Names and records that cross from one process of a run to another. Imports no verl and no vLLM."""

from collections.abc import Sequence
from typing import Any

from agon_verl.game.rewards import Outcome
from agon_verl.health.pair_statistics import Pair

MODEL_TYPE = "agon_pair"  # the key of our engine in verl's registry
ADAPTER = "adapter"  # the field of a row with the name of the adapter that generated it
NODE = "AGON_RAY_NODE"  # environment variable of vLLM's processes: the id of their Ray node
# Environment variable of training processes. On a GPU that NVIDIA's MPS shares, those with a lower priority give way.
MPS_PRIORITY, BELOW_NORMAL = "CUDA_MPS_CLIENT_PRIORITY", "1"
WORKER_EXTENSION = "agon_verl.rollout.extension.MultiAdapterWorkerExtension"  # of the processes that have vLLM's model
PROBLEM = "problem"  # names a problem among what the reward function returns for a challenge

_SOCKET = "/rl-colocate-zmq-"


def past_of(adapter: str) -> str:
    """The name of an adapter's snapshot from some steps ago (`agon.opponent`)."""
    return f"{adapter}_past"


def lora_ids(adapters: Sequence[str]) -> dict[str, int]:
    """The id in vLLM of each adapter and of each snapshot; 0 means no adapter."""
    return {name: number for number, name in enumerate((*adapters, *map(past_of, adapters)), start=1)}


def sync_name(adapter: str, lora_id: int, parameter: str) -> str:
    """The name of an adapter's parameter on its way to vLLM: all adapters travel in one transfer."""
    return f"{adapter}:{lora_id}:{parameter}"


def parse_sync_name(name: str) -> tuple[str, int, str]:
    adapter, lora_id, parameter = name.split(":", 2)
    return adapter, int(lora_id), parameter


def socket_of_run(handle: str, node: str) -> str:
    """verl's socket for a sync, with the id of the Ray node in its name.

    verl names it after the Ray job. The first jobs of two local Rays have the same id, so two runs on one machine would
    take each other's adapters if they synced at the same time.
    """
    return handle.replace(_SOCKET, f"{_SOCKET}{node[:16]}-")


def pair_of(extra_fields: dict[str, Any]) -> Pair:
    """The pair that a challenge's row contains as a plain dict."""
    fields = extra_fields["pair"]
    return Pair(**{**fields, "draft": Outcome(**fields["draft"]), "challenge": Outcome(**fields["challenge"])})
