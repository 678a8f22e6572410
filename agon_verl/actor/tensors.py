"""Adapter tensors: full, as PEFT stores them; sharded, as FSDP2 trains them; and saved to disk."""

import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.distributed.tensor import DTensor, distribute_tensor

from agon_verl.errors import CheckpointError

# What a pickled NumPy array consists of: NumPy's random state, which verl's get_rng_state returns, has one.
_ARRAYS: list[Any] = [np.empty(0).__reduce__()[0], np.ndarray, np.dtype, type(np.dtype(np.uint32))]


def adapter_parameters(module: torch.nn.Module, adapter: str) -> dict[str, torch.nn.Parameter]:
    return {name: p for name, p in module.named_parameters() if "lora_" in name and f".{adapter}." in name}


def save(value: Any, path: Path) -> None:
    """torch.save that raises the system's own error: torch reports a full disk as an unexpected position."""
    try:
        with path.open("wb") as file:
            torch.save(value, file)
    except RuntimeError as error:
        if isinstance(error.__context__, OSError):
            raise error.__context__ from error
        raise


def load(path: Path) -> Any:
    """What `save` wrote. Anything but plain values, tensors and NumPy arrays is refused: unpickling it runs code."""
    try:
        with torch.serialization.safe_globals(_ARRAYS):
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        named = re.search(r"GLOBAL:? (\S+)", str(error))
        raise CheckpointError(
            f"{path} contains {named[1] if named else 'an object'}, not only plain values: loading it could run code"
        ) from None


def adapter_distance(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    """How far apart two adapters are as changes of the base: |dA - dB| / (|dA| + |dB|), Frobenius, over all layers.

    Between 0 (the same policy) and 1 (opposite changes, or only one adapter changed anything); 0.71 for two unrelated
    changes of equal size. Both changes are products of thin matrices, so their inner product is computed from those.
    """
    squares = dict.fromkeys(("aa", "bb", "ab"), 0.0)
    for name in a:
        if "lora_A" in name:
            other = name.replace("lora_A", "lora_B")
            down, up = (a[name].double(), b[name].double()), (a[other].double(), b[other].double())
            for key, i, j in (("aa", 0, 0), ("bb", 1, 1), ("ab", 0, 1)):
                squares[key] += float(((up[i].T @ up[j]) * (down[i] @ down[j].T)).sum())
    apart = max(0.0, squares["aa"] + squares["bb"] - 2 * squares["ab"]) ** 0.5
    size = squares["aa"] ** 0.5 + squares["bb"] ** 0.5
    return apart / size if size else 0.0


def gather(value: Any) -> Any:
    """A parameter or moment as a full tensor on the CPU."""
    if isinstance(value, DTensor):
        value = value.full_tensor()
    return value.detach().cpu().clone() if isinstance(value, torch.Tensor) else value


def shard_like(value: Any, like: torch.Tensor) -> Any:
    """A full tensor on the device and with the sharding of `like`; a step count is returned as it is."""
    if not isinstance(value, torch.Tensor) or value.shape != like.shape:
        return value
    if isinstance(like, DTensor):
        return distribute_tensor(value.to(like.device), like.device_mesh, like.placements)
    return value.to(like.device)


def misfits(tensors: Mapping[str, torch.Tensor], targets: Mapping[str, torch.Tensor]) -> str:
    """How an adapter's tensors differ from the parameters that they are meant for, as text."""
    here = {name: tuple(target.shape) for name, target in targets.items()}
    there = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    missing, unexpected = sorted(here.keys() - there.keys()), sorted(there.keys() - here.keys())
    shapes = [name for name in here if name in there and here[name] != there[name]]
    differences = []
    if missing:
        differences.append(f"it lacks {missing[0]} and {len(missing) - 1} more")
    if unexpected:
        differences.append(f"it has {unexpected[0]} and {len(unexpected) - 1} more, not in the run's target_modules")
    if shapes:
        differences.append(f"{shapes[0]} is {there[shapes[0]]} there and {here[shapes[0]]} here")
    return "; ".join(differences)
