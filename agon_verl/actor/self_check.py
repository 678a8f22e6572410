"""Checks on the real engines before step 1. The run stops if one fails, and the error names it.

- Updating one adapter leaves the others, and their moments, bit-identical (`isolation`, on every rank).
- What vLLM samples for an adapter has the log-probs that the trainer computes under that adapter, and not those under
  another one (`Gaps`, for every replica): the slots are distinct, and the adapter served is the one trained.

Fresh adapters are too similar for the second check: in half precision the engines differ by more than two adapters do.
So each adapter is `marked` with large noise, synced, compared and restored, moments and schedules included.
"""

import copy
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ray
import torch
from tensordict import NonTensorData, NonTensorStack, TensorDict
from verl.utils import tensordict_utils as tu

from agon_verl.actor.engine import MultiAdapterEngine, owner
from agon_verl.actor.tensors import adapter_parameters
from agon_verl.errors import AgonError
from agon_verl.rollout.wire import ADAPTER

# The size of a mark: noise of this standard deviation over sqrt(r) times LoRA's scaling, so 0.1 for rank 16, alpha 32.
# With SmolLM2-135M the probabilities of a token under two adapters then differ by 0.08 to 0.11, and those of the two
# engines in bfloat16 by 0.007.
LOUD = 0.8
RATE = 1e-3  # of the trial updates: a schedule may be at 0
PROMPT = 64  # tokens of text to continue from
TOLERANCE = 0.1  # the most that the engines may differ by on average, whatever the adapters do
SAMPLES, TOKENS = 4, 16  # completions for each adapter and replica, and their length


class SelfCheckFailed(AgonError, RuntimeError):
    """The message names the check that failed and its figures."""


@dataclass(frozen=True)
class Sample:
    """One completion by vLLM, with the log-probs that it gave its own tokens."""

    adapter: str
    prompt: list[int]
    response: list[int]
    log_probs: list[float]


def check_adapters(
    adapters: Sequence[str], workers: Any, syncer: Any, servers: Sequence[Any], prompt: list[int]
) -> None:
    """Both checks, from the trainer's process. Meanwhile the rollout serves the marked adapters."""
    started, prompt = time.monotonic(), prompt[:PROMPT]
    wrong = [violation for rank in workers.check_isolation(prompt) for violation in rank]
    workers.mark_adapters()
    syncer.update_weights(0)
    samples = draw(servers, adapters, prompt)
    syncer.sleep_replicas()
    trained = next(log_probs for log_probs in workers.log_probs(samples) if log_probs)
    workers.unmark_adapters()
    gaps = Gaps.between(samples, trained)
    wrong += gaps.wrong()
    if wrong:
        raise SelfCheckFailed("the self-check at start-up failed: " + "; ".join(dict.fromkeys(wrong)))
    print(f"agon-verl: the self-check passed in {time.monotonic() - started:.1f} s: {gaps}")


def rows(samples: Sequence[Sample], adapter: str) -> TensorDict:
    """Rows in the form that verl's engines take, labelled with `adapter`."""

    def nested(values: Sequence[torch.Tensor]) -> torch.Tensor:
        return torch.nested.as_nested_tensor(list(values), layout=torch.jagged)

    sequences = [torch.tensor(s.prompt + s.response) for s in samples]
    masks = [torch.ones(len(s.response), dtype=torch.int64) for s in samples]
    data = TensorDict(
        {
            "input_ids": nested(sequences),
            "position_ids": nested([torch.arange(len(ids)) for ids in sequences]),
            "prompts": nested([torch.tensor(s.prompt) for s in samples]),
            "responses": nested([torch.tensor(s.response) for s in samples]),
            "response_mask": nested(masks),
            "loss_mask": nested([mask.clone() for mask in masks]),
            "old_log_probs": nested([torch.tensor(s.log_probs) for s in samples]),
            "ref_log_prob": nested([torch.tensor(s.log_probs) for s in samples]),
            "advantages": nested([mask.float() for mask in masks]),
            ADAPTER: NonTensorStack(*[NonTensorData(adapter) for _ in samples]),
        },
        batch_size=len(samples),
    )
    tu.assign_non_tensor(
        data,
        temperature=1.0,
        use_dynamic_bsz=False,
        micro_batch_size_per_gpu=SAMPLES,
        calculate_entropy=True,
        compute_loss=False,
        global_token_num=NonTensorData([len(ids) for ids in sequences]),
    )
    return data


def draw(servers: Sequence[Any], adapters: Sequence[str], prompt: list[int]) -> list[Sample]:
    """Completions by each vLLM server under each adapter, all in one batch."""
    sampling = {"temperature": 1.0, "top_p": 1.0, "repetition_penalty": 1.0, "max_tokens": TOKENS, "logprobs": True}
    planned = [(server, adapter) for server in servers for adapter in adapters for _ in range(SAMPLES)]
    requests = [
        server.generate.remote(
            prompt_ids=prompt, sampling_params=dict(sampling), request_id=uuid.uuid4().hex, adapter=adapter
        )
        for server, adapter in planned
    ]
    return [
        Sample(adapter, prompt, list(output.token_ids), list(output.log_probs))
        for (_, adapter), output in zip(planned, ray.get(requests), strict=True)
    ]


def dummies(prompt: list[int]) -> list[Sample]:
    """Rows for trial updates, made of the prompt's own tokens."""
    return [Sample("", prompt, prompt[-TOKENS:], [-1.0] * len(prompt[-TOKENS:])) for _ in range(SAMPLES)]


@contextmanager
def undone(engine: MultiAdapterEngine) -> Iterator[None]:
    """Restores the adapters afterwards: weights, moments, schedules.

    An optimizer loads its moments onto the device of its parameters. So the parameters must not lie offloaded on the
    CPU then: with `optimizer_offload=false` the moments would stay there, and the next update would fail.
    """
    parameters = [p for adapter in engine.adapters for p in adapter_parameters(engine.module, adapter).values()]
    with engine.loaded():
        weights = [p.detach().clone() for p in parameters]
        moments = {adapter: copy.deepcopy(o.state_dict()) for adapter, o in engine.optimizers.items()}
        schedules = {adapter: copy.deepcopy(s.state_dict()) for adapter, s in engine.lr_schedulers.items()}
        scaler = None if engine.scaler is None else copy.deepcopy(engine.scaler.state_dict())
    try:
        yield
    finally:
        with engine.loaded():
            for parameter, weight in zip(parameters, weights, strict=True):
                parameter.data.copy_(weight)
            for adapter in engine.adapters:
                engine.optimizers[adapter].load_state_dict(moments[adapter])
                engine.lr_schedulers[adapter].load_state_dict(schedules[adapter])
            if scaler is not None:
                engine.scaler.load_state_dict(scaler)


def isolation(engine: MultiAdapterEngine, update: Callable[[TensorDict], Any], prompt: list[int]) -> list[str]:
    """Where an update of an adapter changed anything else, or did not change the adapter, as text."""
    wrong = []
    with undone(engine):
        for adapter in engine.adapters:
            for group in engine.optimizers[adapter].param_groups:
                group["lr"] = RATE
            before = {name: t.detach().clone() for name, t in engine.named_state(base=False)}
            update(rows(dummies(prompt), adapter))
            after = dict(engine.named_state(base=False))
            same = {name for name in after if name in before and torch.equal(before[name], after[name])}
            changed = {owner(name, engine.adapters) for name in after if name not in same}
            if changed != {adapter, f"adam.{adapter}"}:
                wrong.append(f"an update of adapter {adapter} changed {sorted(changed) or 'nothing'}")
    return wrong


def mark(engine: MultiAdapterEngine) -> None:
    """Replace each adapter by large noise, different in each."""
    for number, adapter in enumerate(engine.adapters):
        config = engine.module.peft_config[adapter]
        std = LOUD / (config.lora_alpha / config.r * config.r**0.5)
        for name, parameter in adapter_parameters(engine.module, adapter).items():
            if ".lora_B." in name:
                generator = torch.Generator(parameter.device).manual_seed(number)
                local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
                local.data.normal_(std=std, generator=generator)


@dataclass(frozen=True)
class Gaps:
    """The mean gap between vLLM's and the trainer's probabilities of a token, under its own adapter and another one."""

    own: Mapping[str, float]
    swapped: Mapping[str, float]

    @classmethod
    def between(cls, samples: Sequence[Sample], trained: Mapping[str, Sequence[Sequence[float]]]) -> "Gaps":
        """`trained`: the trainer's log-probs of all samples under each adapter."""

        def gap(adapter: str, under: str) -> float:
            gaps = [
                (torch.tensor(sample.log_probs).exp() - torch.tensor(log_probs).exp()).abs()
                for sample, log_probs in zip(samples, trained[under], strict=True)
                if sample.adapter == adapter
            ]
            return float(torch.cat(gaps).mean())

        adapters = list(trained)
        following = dict(zip(adapters, [*adapters[1:], adapters[0]], strict=True))
        return cls({a: gap(a, a) for a in adapters}, {a: gap(a, following[a]) for a in adapters})

    def wrong(self) -> list[str]:
        return [
            f"the probabilities of what vLLM samples for adapter {adapter} differ from the trainer's {adapter} by "
            f"{self.own[adapter]:.2g} on average, and from another adapter by {self.swapped[adapter]:.2g}"
            for adapter in self.own
            if self.own[adapter] > TOLERANCE or self.own[adapter] * 3 > self.swapped[adapter]
        ]

    def __str__(self) -> str:
        figures = (f"{a} {self.own[a]:.1e}, swapped {self.swapped[a]:.1e}" for a in self.own)
        return f"gap between rollout and training {'; '.join(figures)}"
