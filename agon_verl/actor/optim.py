"""The paper's learning-rate schedule, linear decay after warm-up, which verl's FSDP optimizer config does not have."""

from dataclasses import dataclass

from verl.workers.config import FSDPOptimizerConfig, OptimizerConfig

LINEAR = "linear"


@dataclass
class LinearOptimizerConfig(FSDPOptimizerConfig):
    """The only change: `lr_scheduler_type: linear` is accepted too."""

    lr_scheduler_type: str = LINEAR

    def __post_init__(self) -> None:
        if self.lr_scheduler_type == LINEAR:
            OptimizerConfig.__post_init__(self)  # everything in the parent's but its list of schedules
        else:
            super().__post_init__()


def linear_decay(step: int, warmup: int, total: int) -> float:
    """The fraction of the peak rate at update number `step` (from 0).

    It rises to 1 over `warmup` updates, then falls to 0 right after the last one. The usual form of this schedule has
    rate 0 at its first update (`step / warmup`); this one does not (`(step + 1) / warmup`).
    """
    if step < warmup:
        return (step + 1) / warmup
    return max(0.0, (total - step) / max(1, total - warmup))
