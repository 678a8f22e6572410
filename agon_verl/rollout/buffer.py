"""Waiting for the pairs of a step."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from agon_verl.rollout.row_key import DRAFT, RowKey

POLL_SECONDS = 0.1  # verl's default of 2.0 is long beside a short step
CHECK_SECONDS = 5.0


@dataclass(frozen=True)
class Progress:
    """What is stored of a step's pairs: the tag of each row, and the problems whose pairs have all ended."""

    partition: str
    tags: Mapping[str, dict[str, Any]]
    over: frozenset[str]

    @property
    def ended(self) -> int:
        return len(self.over)

    @cached_property
    def _rows(self) -> dict[tuple[str, int], list[str]]:
        rows: dict[tuple[str, int], list[str]] = {}
        for key in sorted(self.tags):
            row = RowKey.parse(key)
            rows.setdefault((row.uid, row.stream), []).append(key)
        return rows

    def rows_of(self, problem: str, stream: int) -> list[str]:
        return self._rows.get((problem, stream), [])

    def complete(self, stream: int, n: int) -> set[str]:
        """The problems to whose rows of this stream none will be added. A challenge may fail, so its group waits."""
        drafted = {problem for (problem, index), rows in self._rows.items() if index == DRAFT and len(rows) == n}
        return set(self.over) | (drafted if stream == DRAFT else set())

    def batch(self, keys: Sequence[str]) -> KVBatchMeta:
        return KVBatchMeta(partition_id=self.partition, keys=list(keys), tags=[self.tags[key] for key in keys])


class PairBuffer(ReplayBuffer):
    """verl's buffer that polls more often and calls `check_alive`, which raises if a process it waits for has died."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, poll_interval=POLL_SECONDS, **kwargs)
        self.check_alive: Callable[[], None] = lambda: None
        self._last_check = time.monotonic()

    def progress(self, partition: str) -> Progress:
        """A row's key is listed before its fields are there; its tag comes with them."""
        self._sync_metadata_from_transfer_queue()
        over = self.finished_keys[partition] | self.failure_keys[partition]
        stored = {key: tag for key, tag in self.partitions[partition].items() if tag.get("status") == "success"}
        return Progress(partition, stored, frozenset(over))

    def wait(self, last_line: float) -> float:
        """Until the next look at the progress; verl logs a line each minute, and returns when it did."""
        return self._wait_for_next_poll("train", last_line)

    def _wait_for_next_poll(self, partition_id: str, last_debug_time: float) -> float:
        if time.monotonic() - self._last_check > CHECK_SECONDS:
            self.check_alive()
            self._last_check = time.monotonic()
        return super()._wait_for_next_poll(partition_id, last_debug_time)
