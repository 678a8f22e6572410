"""The paper's learning-rate schedule, linear decay after warm-up, which verl's FSDP optimizer config does not name."""

from dataclasses import dataclass

from verl.workers.config import FSDPOptimizerConfig, OptimizerConfig

LINEAR = "linear"


@dataclass
class LinearOptimizerConfig(FSDPOptimizerConfig):
    """verl's FSDP optimizer config that also takes `lr_scheduler_type: linear`; the only change is what it accepts."""

    lr_scheduler_type: str = LINEAR

    def __post_init__(self) -> None:
        if self.lr_scheduler_type == LINEAR:
            OptimizerConfig.__post_init__(self)  # all of the parent's but its list of schedules
        else:
            super().__post_init__()


def linear_decay(step: int, warmup: int, total: int) -> float:
    """The share of the peak rate that update number `step` (from 0) gets.

    Rises to 1 over `warmup` updates, then falls to reach 0 right after the last one. The usual form of this schedule
    spends its first update at rate 0 (`step / warmup`); this one spends none (`(step + 1) / warmup`).
    """
    if step < warmup:
        return (step + 1) / warmup
    return max(0.0, (total - step) / max(1, total - warmup))
