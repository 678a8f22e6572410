"""Breaks on purpose what vLLM takes from a sync of the adapters: the faults that the self-check is there for.

verl imports this module in each of its processes (VERL_USE_EXTERNAL_MODULES=tests.faults), vLLM's workers among
them. The environment variable FAULT says which:

swapped   each adapter's weights get the slot of the next one
stale     vLLM keeps the first weights of A that it got
base      B's weights are all zero: the base answers for B
scaled    vLLM applies every adapter at half its strength
"""

import os
from collections.abc import Callable
from typing import Any

import torch
import wrapt

from agon_verl.rollout.wire import parse_sync_name, sync_name

Weights = list[tuple[str, torch.Tensor]]


def spoiled(fault: str, sync: int, weights: Weights) -> Weights:
    """What vLLM gets in place of the weights of the `sync`-th transfer, counted from 1."""
    parsed = [(*parse_sync_name(name), tensor) for name, tensor in weights]
    ids = list(dict.fromkeys(lora_id for _, lora_id, _, _ in parsed))
    following = dict(zip(ids, [*ids[1:], ids[0]], strict=True))
    if fault == "swapped":
        return [(sync_name(adapter, following[i], name), tensor) for adapter, i, name, tensor in parsed]
    if fault == "stale":
        return [(sync_name(*head), tensor) for *head, tensor in parsed if sync == 1 or head[0] != "A"]
    if fault == "base":
        return [(sync_name(*head), torch.zeros_like(tensor) if head[0] == "B" else tensor) for *head, tensor in parsed]
    if fault == "scaled":
        return [(name, tensor * 0.5 if ".lora_B." in name else tensor) for name, tensor in weights]
    return weights


def _break(module: Any) -> None:
    """Wraps the method in classes that are yet to be defined: this runs while the one concerned is being imported."""

    def wrap(cls: type, **kwargs: Any) -> None:
        if "_update_weights" in vars(cls):
            cls._update_weights = _faulty(cls._update_weights)  # type: ignore[attr-defined]

    module.vLLMColocateWorkerExtension.__init_subclass__ = classmethod(wrap)


def _faulty(update: Callable) -> Callable:
    syncs = 0

    def _update_weights(self: Any, weights: Weights, *args: Any, **kwargs: Any) -> None:
        nonlocal syncs
        syncs += 1
        update(self, spoiled(os.environ["FAULT"], syncs, weights), *args, **kwargs)

    return _update_weights


if "FAULT" in os.environ:
    wrapt.register_post_import_hook(_break, "verl.workers.rollout.vllm_rollout.utils")
