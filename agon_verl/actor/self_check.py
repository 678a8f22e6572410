"""Checks on the real engines before step 1. The run stops if one fails, and the error names it.

- Updating one adapter leaves the others, and their moments, bit-identical (`isolation`, on every rank).
- What vLLM samples for an adapter has the log-probs that the trainer computes under that adapter, and not those under
  another one, the base or an earlier state of the adapter (`check_serving`, for every replica): the slots are distinct,
  and the adapter served is the one trained (`served.py`).

Fresh adapters are too similar for the second check: in half precision the engines differ by more than two adapters do.
So the adapters are marked with noise. How loud it must be depends on the model: too quiet, and the adapters differ by
less than the engines; too loud, and a deep model in bfloat16 is chaotic, every rounding grows, and the engines differ
by as much as the adapters. So the check first measures the gap of the engines with the adapters as they are. Then it
raises the mark until, for the trainer alone, each adapter is `TELLING` times that gap away from every other policy;
only then are the marked adapters synced and sampled. An adapter is the one served if it is `CLEAR` times nearer than
any other policy, and no farther than `TELLING / CLEAR` times that gap: at a loud mark every policy is far from every
other, and an adapter applied at half its strength would be nearest to itself. Where that decides nothing, louder marks
are tried, and where no mark decides, the run goes on with a warning: either the model amplifies noise, or vLLM applies
the adapters differently.
"""

import copy
import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import ray
import torch
from tensordict import NonTensorData, NonTensorStack, TensorDict
from verl.utils import tensordict_utils as tu
from verl.workers.utils.padding import response_from_nested

from agon_verl.actor.engine import MultiAdapterEngine, owner
from agon_verl.actor.served import CLEAR, Distances, LogProbs, Sample, before, distances, noise, separation
from agon_verl.actor.tensors import adapter_parameters
from agon_verl.errors import AgonError
from agon_verl.game.roles import BASE
from agon_verl.rollout.wire import ADAPTER

# The sizes of a mark: noise of this standard deviation over sqrt(r) times LoRA's scaling, so 0.1 at 0.8 for rank 16 and
# alpha 32. A layer's output then changes by about half as much as its input is large. Qwen2.5-Coder-1.5B in bfloat16 on
# an H200, gaps to its own adapter and to the nearest other policy: 0.005 and 0.016 at 0.05, 0.006 and 0.028 at 0.1,
# 0.005 and 0.063 at 0.2, 0.008 and 0.11 at 0.4; at 0.8 the model is chaotic, 0.07 and 0.07.
LOUDNESS = (0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
TOLERANCE = 0.1  # the most that the engines may differ by on average with the adapters as they are
TELLING = 6.0  # the separation of the policies, in gaps of the engines, at which a mark is worth a sync
# Up to this gap two engines agree, however small theirs is with the adapters as they are: with the same kernels it may
# be 0, and a mark adds the rounding of its own product. It is a few steps of float32 (1.2e-7); the gap of the toy on a
# CPU is 5e-10, marked or not.
ROUNDING = 1e-6
RATE = 1e-3  # of the trial updates: a schedule may be at 0
PROMPT = 64  # tokens of text to continue from
SAMPLES, TOKENS = 8, 16  # completions for each adapter and replica, and their length
TRIAL_ROWS = 4

logger = logging.getLogger(__name__)


class SelfCheckFailed(AgonError, RuntimeError):
    """The message names the check that failed and its figures."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Noise in place of each adapter; the adapters as they are if `loudness` is 0."""

    loudness: float
    seed: int


UNMARKED = Mark(0.0, 0)
MARKS = tuple(Mark(loudness, seed) for seed, loudness in enumerate(LOUDNESS, start=1))


class Engines(Protocol):
    """The two sides that are compared."""

    def served(self, mark: Mark) -> list[Sample]:
        """Sync the adapters with this mark and draw samples under each, from each replica."""

    def trained(self, samples: Sequence[Sample], mark: Mark, policies: Sequence[str]) -> Mapping[str, LogProbs]:
        """The trainer's log-probs of all samples under these adapters with this mark, or the base."""


@dataclass(frozen=True)
class RunEngines:
    """Those of a run, from the trainer's process."""

    adapters: Sequence[str]
    workers: Any
    syncer: Any
    servers: Sequence[Any]
    prompt: list[int]

    def served(self, mark: Mark) -> list[Sample]:
        self.workers.mark_adapters(mark)
        self.syncer.update_weights(0)
        samples = draw(self.servers, self.adapters, self.prompt)
        self.syncer.sleep_replicas()
        return samples

    def trained(self, samples: Sequence[Sample], mark: Mark, policies: Sequence[str]) -> Mapping[str, LogProbs]:
        self.workers.mark_adapters(mark)
        return next(log_probs for log_probs in self.workers.log_probs(list(samples), list(policies)) if log_probs)


def check_adapters(
    adapters: Sequence[str], workers: Any, syncer: Any, servers: Sequence[Any], prompt: list[int]
) -> None:
    """Both checks, from the trainer's process. Afterwards the rollout still serves the last mark: sync again."""
    started, prompt = time.monotonic(), prompt[:PROMPT]
    if wrong := [violation for rank in workers.check_isolation(prompt) for violation in rank]:
        raise SelfCheckFailed("the self-check at start-up failed: " + "; ".join(dict.fromkeys(wrong)))
    outcome = check_serving(adapters, RunEngines(adapters, workers, syncer, servers, prompt))
    workers.mark_adapters(UNMARKED)
    seconds, figures = time.monotonic() - started, "; ".join(outcome.figures)
    if not outcome.undecided:
        print(f"agon-verl: the self-check passed in {seconds:.1f} s: {figures}")
        return
    logger.warning(
        "agon-verl: the self-check (%.1f s) could not show that vLLM serves the trained adapters: %s. Either "
        "the model amplifies noise, or vLLM applies the adapters differently. The run goes on: watch "
        "training/rollout_probs_diff_mean of both. Figures: %s",
        seconds,
        ", ".join(outcome.undecided),
        figures,
    )


@dataclass(frozen=True, slots=True)
class Outcome:
    """`undecided`: the adapters of which no mark could show that they are served."""

    figures: Sequence[str]
    undecided: Sequence[str] = ()


def check_serving(adapters: Sequence[str], engines: Engines) -> Outcome:
    """Raises where vLLM serves another policy than an adapter."""
    samples = engines.served(UNMARKED)
    unmarked = engines.trained(samples, UNMARKED, (*adapters, BASE))
    floor = noise(distances(samples, unmarked))
    figures = [f"gap between rollout and training {floor:.1e}"]
    if floor > TOLERANCE:
        raise SelfCheckFailed(
            f"the self-check at start-up failed: the probabilities of what vLLM samples differ by {floor:.2g} on "
            "average from the trainer's with the adapters as they are: the two do not compute the same model"
        )
    others = {BASE: unmarked[BASE], **{before(adapter): unmarked[adapter] for adapter in adapters}}

    def apart(mark: Mark) -> float:
        return separation(adapters, {**engines.trained(samples, mark, adapters), **others})

    last, agreement = UNMARKED, max(TELLING / CLEAR * floor, ROUNDING)
    undecided = [f"{a} on replica {r}" for r, a in dict.fromkeys((s.replica, s.adapter) for s in samples)]
    for mark in loud_enough(apart, floor):
        measured = _measure(adapters, engines, mark, last)
        figures.append(f"marked with {mark.loudness:g}: {', '.join(map(str, measured))}")
        if faults := [of_one.fault for of_one in measured if of_one.fault]:
            raise SelfCheckFailed(f"the self-check at start-up failed: {'; '.join(faults)}. {'; '.join(figures)}")
        right = {of_one.name for of_one in measured if of_one.right and of_one.own <= agreement}
        undecided = [name for name in undecided if name not in right]
        if not undecided:
            break
        last = mark
    return Outcome(figures, undecided)


def loud_enough(apart: Callable[[Mark], float], floor: float) -> Iterator[Mark]:
    """From the quietest mark that separates the policies by `TELLING` times `floor`; else those that do by `CLEAR`."""
    separations = {}
    for mark in MARKS:
        separations[mark] = apart(mark)
        if separations[mark] >= TELLING * floor:
            yield from MARKS[MARKS.index(mark) :]
            return
    yield from (mark for mark in MARKS if separations[mark] >= CLEAR * floor)


def _measure(adapters: Sequence[str], engines: Engines, mark: Mark, last: Mark) -> list[Distances]:
    samples = engines.served(mark)
    earlier = engines.trained(samples, last, adapters)
    trained = engines.trained(samples, mark, (*adapters, BASE))
    return distances(samples, {**trained, **{before(adapter): earlier[adapter] for adapter in adapters}})


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
    planned = [
        (replica, server, adapter)
        for replica, server in enumerate(servers)
        for adapter in adapters
        for _ in range(SAMPLES)
    ]
    requests = [
        server.generate.remote(
            prompt_ids=prompt, sampling_params=dict(sampling), request_id=uuid.uuid4().hex, adapter=adapter
        )
        for _, server, adapter in planned
    ]
    return [
        Sample(replica, adapter, prompt, list(output.token_ids), list(output.log_probs))
        for (replica, _, adapter), output in zip(planned, ray.get(requests), strict=True)
    ]


def dummies(prompt: list[int]) -> list[Sample]:
    """Rows for trial updates, made of the prompt's own tokens."""
    return [Sample(0, "", prompt, prompt[-TOKENS:], [-1.0] * len(prompt[-TOKENS:])) for _ in range(TRIAL_ROWS)]


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


class Marks:
    """Puts marks in place of an engine's adapters, and the adapters back.

    Only `lora_B` changes, so the mark's size does not depend on what the adapters have learned.
    """

    def __init__(self, engine: MultiAdapterEngine) -> None:
        self._engine = engine
        with engine.loaded():
            self._unmarked = {name: p.detach().clone() for _, name, p in self._parameters()}

    def put(self, mark: Mark) -> None:
        """The noise is drawn for each parameter by itself: with one seed, no two of them are alike."""
        with self._engine.loaded():
            for number, (adapter, name, parameter) in enumerate(self._parameters()):
                if mark == UNMARKED:
                    parameter.data.copy_(self._unmarked[name])
                    continue
                config = self._engine.module.peft_config[adapter]
                std = mark.loudness / (config.lora_alpha / config.r * config.r**0.5)
                generator = torch.Generator(parameter.device).manual_seed(mark.seed * 1_000_003 + number)
                local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
                local.data.normal_(std=std, generator=generator)

    def _parameters(self) -> Iterator[tuple[str, str, torch.nn.Parameter]]:
        for adapter in self._engine.adapters:
            for name, parameter in adapter_parameters(self._engine.module, adapter).items():
                if ".lora_B." in name:
                    yield adapter, name, parameter


def log_probs(
    infer: Callable[[TensorDict], TensorDict | None],
    samples: Sequence[Sample],
    policies: Sequence[str],
    any_adapter: str,
) -> dict[str, list[list[float]]]:
    """The trainer's log-probs under each policy, on ranks that collect outputs."""
    by_policy = {}
    for policy in policies:
        data = rows(samples, any_adapter if policy == BASE else policy)
        tu.assign_non_tensor(data, no_lora_adapter=policy == BASE)
        output = infer(data)
        if output is not None:
            responses = response_from_nested(output["log_probs"], data["response_mask"])
            by_policy[policy] = [row.tolist() for row in responses.unbind()]
    return by_policy
