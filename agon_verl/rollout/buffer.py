"""Waiting for the pairs of a step."""

import time
from collections.abc import Callable
from typing import Any

from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

POLL_SECONDS = 0.1  # of verl's 2.0, which a short step would spend waiting
WATCH_SECONDS = 5.0


class PairBuffer(ReplayBuffer):
    """verl's buffer that polls more often and meanwhile calls `watch`, which raises if the wait is in vain."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, poll_interval=POLL_SECONDS, **kwargs)
        self.watch: Callable[[], None] = lambda: None
        self._watched = time.monotonic()

    def _wait_for_next_poll(self, partition_id: str, last_debug_time: float) -> float:
        if time.monotonic() - self._watched > WATCH_SECONDS:
            self.watch()
            self._watched = time.monotonic()
        return super()._wait_for_next_poll(partition_id, last_debug_time)
