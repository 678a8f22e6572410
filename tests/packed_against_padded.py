"""One stream's forward and backward pass through the real engine, with packed rows and with padded ones.

`compare` needs a process group of one rank (`one_rank`) and works on any device and with any model's folder.
"""

import gc
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from omegaconf import DictConfig
from tensordict import NonTensorData, NonTensorStack, TensorDict
from verl.utils import tensordict_utils as tu
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.utils.losses import ppo_loss
from verl.workers.utils.padding import response_from_nested

from agon_verl.actor.engine import MultiAdapterEngine
from agon_verl.actor.on_policy import on_policy
from agon_verl.actor.packed_attention import PACKED_SDPA
from agon_verl.actor.tensors import adapter_parameters, gather
from agon_verl.rollout.wire import ADAPTER
from tests.recipes import composed

PROMPT = 3  # tokens of a row that carry no loss, unless the caller says otherwise


@contextmanager
def one_rank(folder: Path, backend: str = "gloo") -> Iterator[None]:
    torch.distributed.init_process_group(backend, init_method=f"file://{folder / 'store'}", rank=0, world_size=1)
    os.environ.setdefault("LOCAL_RANK", "0")
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


def make_engine(model: Path, recipe: str, *overrides: str, packed: bool) -> tuple[MultiAdapterEngine, Any]:
    layout = [
        f"actor_rollout_ref.model.use_remove_padding={packed}",
        f"++actor_rollout_ref.model.override_config.attn_implementation={PACKED_SDPA if packed else 'sdpa'}",
    ]
    return engine_of(composed(f"+recipe={recipe}", f"actor_rollout_ref.model.path={model}", *layout, *overrides))


def engine_of(config: DictConfig) -> tuple[MultiAdapterEngine, Any]:
    config.actor_rollout_ref.actor.optim.total_training_steps = 10
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    settings = omega_conf_to_dataclass(config.actor_rollout_ref.model)
    engine = MultiAdapterEngine(settings, actor.engine, actor.optim, actor.checkpoint)
    engine.initialize()
    return engine, partial(ppo_loss, config=actor)


def make_rows(
    lengths: Sequence[int], vocabulary: int, *, packed: bool, cap: int, prompt: int = PROMPT, seed: int = 0
) -> TensorDict:
    """Random rows of adapter B with random advantages. A row does not depend on the others' lengths."""

    def nested(values: list[torch.Tensor]) -> torch.Tensor:
        return torch.nested.as_nested_tensor(values, layout=torch.jagged)

    generators = [torch.Generator().manual_seed(seed * 1000 + row) for row in range(len(lengths))]
    ids = [torch.randint(4, vocabulary, (n,), generator=g) for n, g in zip(lengths, generators, strict=True)]
    masks = [torch.ones(n - prompt, dtype=torch.int64) for n in lengths]
    data = TensorDict(
        {
            "input_ids": nested(ids),
            "position_ids": nested([torch.arange(n) for n in lengths]),
            "prompts": nested([row[:prompt] for row in ids]),
            "responses": nested([row[prompt:] for row in ids]),
            "response_mask": nested(masks),
            "loss_mask": nested([mask.clone() for mask in masks]),
            "advantages": nested(
                [torch.randn(1, generator=g) * mask for g, mask in zip(generators, masks, strict=True)]
            ),
            ADAPTER: NonTensorStack(*[NonTensorData("B") for _ in lengths]),
        },
        batch_size=len(lengths),
    )
    tu.assign_non_tensor(
        data,
        temperature=1.0,
        use_remove_padding=packed,
        use_dynamic_bsz=True,
        max_token_len_per_gpu=cap,
        calculate_entropy=True,
        global_batch_size=len(lengths),
    )
    return data


@dataclass(frozen=True)
class Pass:
    log_probs: list[torch.Tensor]  # of each row's response, on the CPU
    entropy: list[torch.Tensor]
    gradients: dict[str, torch.Tensor]


def one_pass(engine: MultiAdapterEngine, loss: Any, data: TensorDict) -> Pass:
    """Log-probs and entropies by row, and the gradients of adapter B."""
    tu.assign_non_tensor(data, use_fused_kernels=engine.model_config.use_fused_kernels)
    with engine.train_mode():
        engine.activate("B")
        tu.assign_non_tensor(data, return_model_output=True)
        output = engine.forward_backward_batch(data, on_policy(loss))["model_output"]
        parameters = adapter_parameters(engine.module, "B")
        gradients = {name: gather(p.grad).float() for name, p in parameters.items() if p.grad is not None}
        engine.optimizer.zero_grad()
    of_responses = {key: response_from_nested(output[key], data["response_mask"]) for key in ("log_probs", "entropy")}
    rows = {key: [row.detach().float().cpu() for row in nested.unbind()] for key, nested in of_responses.items()}
    return Pass(gradients=gradients, **rows)


@dataclass(frozen=True)
class Difference:
    """How far the packed pass is from the padded one."""

    log_probs: float  # the mean over tokens, absolute
    entropy: float
    gradients: float  # the norm of the difference over the norm

    @classmethod
    def between(cls, packed: Pass, padded: Pass) -> "Difference":
        def mean(first: list[torch.Tensor], second: list[torch.Tensor]) -> float:
            return float((torch.cat([*first]) - torch.cat([*second])).abs().mean())

        assert packed.gradients.keys() == padded.gradients.keys() and padded.gradients
        ours, theirs = (
            torch.cat([tensor.flatten() for _, tensor in sorted(each.gradients.items())]) for each in (packed, padded)
        )
        return cls(
            mean(packed.log_probs, padded.log_probs),
            mean(packed.entropy, padded.entropy),
            float((ours - theirs).norm() / theirs.norm()),
        )


def compare(
    model: Path, lengths: Sequence[int], *overrides: str, recipe: str = "agon", vocabulary: int = 300, cap: int = 16384
) -> Difference:
    """`cap`: tokens in a micro-batch; `vocabulary`: token ids below it are used."""
    passes = []
    for packed in (True, False):
        engine, loss = make_engine(model, recipe, "agon.init_noise=0.05", *overrides, packed=packed)
        passes.append(one_pass(engine, loss, make_rows(lengths, vocabulary, packed=packed, cap=cap)))
        del engine
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    return Difference.between(*passes)
