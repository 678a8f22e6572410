"""Before step 1, on the real engines: what a pair stands on holds, or the run stops and says what does not.

- Updating one adapter leaves the other, and its moments, bit-identical (`isolation`, on every rank).
- What vLLM samples for an adapter has the log-probs that the trainer gives it under that adapter, and not those of
  the other one (`Gaps`, for every replica): the slots are distinct, and the adapter served is the one trained.

Fresh adapters are too much alike for the second check: in half precision the engines differ by more than A does from
B. So both are `marked`, with loud noise, synced, compared, and put back as they were, moments and schedules included.
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

from agon_verl.actor.engine import PairEngine, owner
from agon_verl.actor.tensors import adapter_parameters
from agon_verl.errors import AgonError
from agon_verl.game.roles import ADAPTERS
from agon_verl.rollout.wire import ADAPTER

# The size of a mark: noise of this standard deviation over sqrt(r) times LoRA's scaling, so 0.1 for rank 16, alpha 32.
# With SmolLM2-135M the probabilities of a token under A and under B are then 0.08 to 0.11 apart, and those of two
# engines in bfloat16 0.007.
LOUD = 0.8
RATE = 1e-3  # of the updates that are tried: a schedule may be at 0
PROMPT = 64  # tokens of text to go on from
TOLERANCE = 0.1  # the most that the engines may differ by on average, whatever the adapters do
SAMPLES, TOKENS = 4, 16  # completions for each adapter and replica, and their length


class SelfCheckFailed(AgonError, RuntimeError):
    """Names the check that failed, and what it found."""


@dataclass(frozen=True)
class Sample:
    """One completion by vLLM, with the log-probs that it gave its own tokens."""

    adapter: str
    prompt: list[int]
    response: list[int]
    log_probs: list[float]


def check_pair(workers: Any, syncer: Any, servers: Sequence[Any], prompt: list[int]) -> None:
    """Both checks, from the trainer's process. The rollout serves the marked adapters for the while of it."""
    started, prompt = time.monotonic(), prompt[:PROMPT]
    wrong = [found for rank in workers.check_isolation(prompt) for found in rank]
    workers.mark_adapters()
    syncer.update_weights(0)
    samples = draw(servers, prompt)
    syncer.sleep_replicas()
    trained = next(found for found in workers.log_probs(samples) if found)
    workers.unmark_adapters()
    gaps = Gaps.between(samples, trained)
    wrong += gaps.wrong()
    if wrong:
        raise SelfCheckFailed("the self-check at start-up failed: " + "; ".join(dict.fromkeys(wrong)))
    print(f"agon-verl: the self-check passed in {time.monotonic() - started:.1f} s: {gaps}")


def rows(samples: Sequence[Sample], adapter: str) -> TensorDict:
    """Rows as verl's engines take them, to be read under `adapter`."""

    def nested(values: Sequence[torch.Tensor]) -> torch.Tensor:
        return torch.nested.as_nested_tensor(list(values), layout=torch.jagged)

    whole = [torch.tensor(s.prompt + s.response) for s in samples]
    masks = [torch.ones(len(s.response), dtype=torch.int64) for s in samples]
    data = TensorDict(
        {
            "input_ids": nested(whole),
            "position_ids": nested([torch.arange(len(ids)) for ids in whole]),
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
        global_token_num=NonTensorData([len(ids) for ids in whole]),
    )
    return data


def draw(servers: Sequence[Any], prompt: list[int]) -> list[Sample]:
    """What each vLLM server writes under each adapter, all at once."""
    sampling = {"temperature": 1.0, "top_p": 1.0, "repetition_penalty": 1.0, "max_tokens": TOKENS, "logprobs": True}
    wanted = [(server, adapter) for server in servers for adapter in ADAPTERS for _ in range(SAMPLES)]
    requests = [
        server.generate.remote(
            prompt_ids=prompt, sampling_params=dict(sampling), request_id=uuid.uuid4().hex, adapter=adapter
        )
        for server, adapter in wanted
    ]
    return [
        Sample(adapter, prompt, list(output.token_ids), list(output.log_probs))
        for (_, adapter), output in zip(wanted, ray.get(requests), strict=True)
    ]


def dummies(prompt: list[int]) -> list[Sample]:
    """Rows to update on, made of the prompt's own tokens."""
    return [Sample("", prompt, prompt[-TOKENS:], [-1.0] * len(prompt[-TOKENS:])) for _ in range(SAMPLES)]


@contextmanager
def undone(engine: PairEngine) -> Iterator[None]:
    """Whatever happens to the adapters in the body is taken back: weights, moments, schedules."""
    parameters = [p for adapter in ADAPTERS for p in adapter_parameters(engine.module, adapter).values()]
    weights = [p.detach().clone() for p in parameters]
    moments = {adapter: copy.deepcopy(o.state_dict()) for adapter, o in engine.optimizers.items()}
    schedules = {adapter: copy.deepcopy(s.state_dict()) for adapter, s in engine.lr_schedulers.items()}
    scaler = None if engine.scaler is None else copy.deepcopy(engine.scaler.state_dict())
    try:
        yield
    finally:
        for parameter, weight in zip(parameters, weights, strict=True):
            parameter.data.copy_(weight)
        for adapter in ADAPTERS:
            engine.optimizers[adapter].load_state_dict(moments[adapter])
            engine.lr_schedulers[adapter].load_state_dict(schedules[adapter])
        if scaler is not None:
            engine.scaler.load_state_dict(scaler)


def isolation(engine: PairEngine, update: Callable[[TensorDict], Any], prompt: list[int]) -> list[str]:
    """What an update of each adapter changed that it must not, or left as it was, in words."""
    wrong = []
    with undone(engine):
        for adapter in ADAPTERS:
            for group in engine.optimizers[adapter].param_groups:
                group["lr"] = RATE
            before = {name: t.detach().clone() for name, t in engine.named_state(base=False)}
            update(rows(dummies(prompt), adapter))
            after = dict(engine.named_state(base=False))
            same = {name for name in after if name in before and torch.equal(before[name], after[name])}
            changed = {owner(name) for name in after if name not in same}
            if changed != {adapter, f"adam.{adapter}"}:
                wrong.append(f"an update of adapter {adapter} changed {sorted(changed) or 'nothing'}")
    return wrong


def mark(engine: PairEngine) -> None:
    """Loud noise in both adapters, another one in each."""
    for number, adapter in enumerate(ADAPTERS):
        config = engine.module.peft_config[adapter]
        std = LOUD / (config.lora_alpha / config.r * config.r**0.5)
        for name, parameter in adapter_parameters(engine.module, adapter).items():
            if ".lora_B." in name:
                generator = torch.Generator(parameter.device).manual_seed(number)
                local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
                local.data.normal_(std=std, generator=generator)


@dataclass(frozen=True)
class Gaps:
    """The mean gap between vLLM's and the trainer's probabilities of a token, under its own adapter and the other."""

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

        other = dict(zip(ADAPTERS, reversed(ADAPTERS), strict=True))
        return cls({a: gap(a, a) for a in ADAPTERS}, {a: gap(a, other[a]) for a in ADAPTERS})

    def wrong(self) -> list[str]:
        return [
            f"what vLLM samples for adapter {adapter} differs from the trainer's {adapter} by {self.own[adapter]:.2g} "
            f"in probability on average, and from the other adapter by {self.swapped[adapter]:.2g}"
            for adapter in ADAPTERS
            if self.own[adapter] > TOLERANCE or self.own[adapter] * 3 > self.swapped[adapter]
        ]

    def __str__(self) -> str:
        figures = (f"{a} {self.own[a]:.1e}, swapped {self.swapped[a]:.1e}" for a in ADAPTERS)
        return f"gap between rollout and training {'; '.join(figures)}"
