"""verl's hybrid actor-and-rollout worker over the engine with several adapters."""

import dataclasses
import hashlib
import os
from typing import Any

import torch
from tensordict import TensorDict
from verl.single_controller.base.decorator import Dispatch, register
from verl.utils import tensordict_utils as tu
from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker
from verl.workers.rollout import base as rollouts

from agon_verl.actor import self_check
from agon_verl.actor.engine import PART, owner
from agon_verl.actor.self_check import UNMARKED, Mark, Marks
from agon_verl.actor.served import Sample
from agon_verl.cpu.platform import cpu_only
from agon_verl.pair.base import base_folder, hash_of_base
from agon_verl.rollout.wire import MODEL_TYPE


class MultiAdapterTrainingWorker(TrainingWorker):
    """The changes: its engine from verl's registry, updates in parts, and on a CPU it computes on all cores."""

    def __init__(self, config: Any) -> None:
        if cpu_only():  # Ray allows one thread per actor, and vLLM is idle while this one works
            torch.set_num_threads(max(1, (os.cpu_count() or 1) // int(os.environ.get("RAY_LOCAL_WORLD_SIZE", "1"))))
        super().__init__(dataclasses.replace(config, model_type=MODEL_TYPE))

    def train_batch(self, data: TensorDict) -> TensorDict:
        """The schedule advances with the optimizer, which does not step after a part."""
        if tu.get_non_tensor_data(data, PART, default=False):
            tu.assign_non_tensor(data, update_lr_scheduler=False)
        return super().train_batch(data)


class MultiAdapterWorker(ActorRolloutRefWorker):
    """Each method runs on every rank and returns a list with one value per rank."""

    actor_worker_cls = MultiAdapterTrainingWorker
    _marks: Marks | None = None

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def init_model(self) -> None:
        # verl takes the class from this registry by the name of the rollout; only this process is affected.
        rollouts._ROLLOUT_REGISTRY["vllm", "async"] = "agon_verl.rollout.sync.MultiAdapterRollout"
        super().init_model()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, blocking=False)
    async def update_weights(self, global_steps: int | None = None, mode: str = "auto") -> None:
        await super().update_weights(global_steps, mode)
        self.rollout.raise_failure()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, blocking=False)
    def updates(self) -> tuple[int, ...]:
        """Counts that grow with each change of an adapter or its schedule. No answer: this rank cannot save."""
        return (self.actor.engine.steps, *(s.last_epoch for s in self.actor.engine.lr_schedulers.values()))

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def optimizer_spans(self) -> dict[str, tuple[float, float]]:
        return self.actor.engine.step_spans

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def finish_update(self, adapter: str) -> tuple[float, float]:
        return self.actor.engine.finish_update(adapter)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def skip_update(self, adapter: str) -> float:
        """Advance the schedule of an adapter that has no rows to learn from; its weights do not change."""
        self.actor.engine.activate(adapter)
        return self.actor.engine.lr_scheduler_step()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def take_snapshot(self) -> None:
        self.actor.engine.take_snapshot()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def distance(self) -> float:
        """Between the adapters, as of the last sync."""
        return self.actor.engine.distance

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def hash_of_base(self) -> str:
        return hash_of_base(base_folder(self.actor.model_config.local_path))

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def fingerprint(self) -> dict[str, str]:
        """A digest of this rank's shard of the base, of each adapter's weights and of each adapter's Adam moments."""
        adapters = self.actor.engine.adapters
        names = ("base", *adapters, *(f"adam.{adapter}" for adapter in adapters))
        digests = {name: hashlib.sha256() for name in names}
        for name, tensor in self.actor.engine.named_state():
            digests[owner(name, adapters)].update(tensor.cpu().contiguous().view(-1).float().numpy().tobytes())
        return {name: digest.hexdigest() for name, digest in digests.items()}

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def check_isolation(self, prompt: list[int]) -> list[str]:
        return self_check.isolation(self.actor.engine, self.actor.train_batch, prompt)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def mark_adapters(self, mark: Mark) -> None:
        """`UNMARKED` brings the adapters back."""
        self._marks = self._marks or self_check.Marks(self.actor.engine)
        self._marks.put(mark)
        if mark == UNMARKED:
            self._marks = None

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def log_probs(self, samples: list[Sample], policies: list[str]) -> dict[str, list[list[float]]]:
        """The trainer's log-probs of these completions under each of these adapters, or the base."""
        return self_check.log_probs(self.actor.infer_batch, samples, policies, self.actor.engine.adapters[0])
