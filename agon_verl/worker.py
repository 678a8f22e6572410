"""The hybrid worker of a pair: verl's actor-and-rollout worker over the two-adapter engine."""

import dataclasses
import hashlib
from typing import Any

from torch.distributed.tensor import DTensor
from verl.single_controller.base.decorator import Dispatch, register
from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker

import agon_verl.engine  # noqa: F401  registers the engine
from agon_verl.wire import MODEL_TYPE


class AgonTrainingWorker(TrainingWorker):
    """The only change is which engine it asks verl's registry for."""

    def __init__(self, config: Any) -> None:
        super().__init__(dataclasses.replace(config, model_type=MODEL_TYPE))


class AgonWorker(ActorRolloutRefWorker):
    actor_worker_cls = AgonTrainingWorker

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def skip_update(self, adapter: str) -> float:
        """Advance the schedule of an adapter whose stream has nothing to learn from; weights stay as they are."""
        self.actor.engine.activate(adapter)
        return self.actor.engine.lr_scheduler_step()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def fingerprint(self) -> dict[str, str]:
        """A digest of this rank's part of the base, each adapter's weights and each adapter's Adam moments."""
        digests = {name: hashlib.sha256() for name in ("base", "A", "B", "adam.A", "adam.B")}
        for name, tensor in self.actor.engine.named_state():
            local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
            digests[_part(name)].update(local.cpu().contiguous().view(-1).float().numpy().tobytes())
        return {name: digest.hexdigest() for name, digest in digests.items()}


def _part(name: str) -> str:
    if name.startswith("adam."):
        return name[:6]
    if "lora_" in name:
        return "A" if ".A." in name else "B"
    return "base"
