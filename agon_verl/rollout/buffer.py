"""Waiting for the pairs of a step."""

import time
from collections.abc import Callable
from typing import Any

from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

POLL_SECONDS = 0.1  # verl's default of 2.0 is long beside a short step
CHECK_SECONDS = 5.0


class PairBuffer(ReplayBuffer):
    """verl's buffer that polls more often and calls `check_alive`, which raises if a process it waits for has died."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, poll_interval=POLL_SECONDS, **kwargs)
        self.check_alive: Callable[[], None] = lambda: None
        self._last_check = time.monotonic()

    def _wait_for_next_poll(self, partition_id: str, last_debug_time: float) -> float:
        if time.monotonic() - self._last_check > CHECK_SECONDS:
            self.check_alive()
            self._last_check = time.monotonic()
        return super()._wait_for_next_poll(partition_id, last_debug_time)
