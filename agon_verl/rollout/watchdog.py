"""Ends a run whose vLLM or agent loop is gone.

A call that waits for a process which has died since may wait for ever: vLLM answers no call that its engine died over,
and a trainer that hands weights to it waits at a socket. So a thread asks all of them every few seconds whether they
are there. If one is not, it notes why, and waits a while for the trainer to notice; a trainer that does not is itself
waiting, so all that it may wait for is killed.
"""

import threading
import time
from collections.abc import Sequence
from typing import Any

import ray

SECONDS = 5.0
PATIENCE = 120.0  # for an answer from a process that is busy, not dead
NOTICE = 20.0


class Watchdog(threading.Thread):
    def __init__(self, watched: Sequence[Any], workers: Sequence[Any]) -> None:
        """`watched`: actors with a method `ping` that raises where they are of no more use; `workers`: the trainers."""
        super().__init__(name="agon-watchdog", daemon=True)
        self.watched, self.workers = list(watched), workers
        self.reason: str | None = None
        self._noticed = threading.Event()

    def run(self) -> None:
        while self.reason is None:
            time.sleep(SECONDS)
            try:
                ray.get([actor.ping.remote() for actor in self.watched], timeout=PATIENCE)
            except ray.exceptions.GetTimeoutError:
                continue
            except ray.exceptions.RayError as error:
                self.reason = in_words(error)
        if not self._noticed.wait(NOTICE):
            for actor in (*self.workers, *self.watched):
                ray.kill(actor)

    def check(self) -> None:
        if self.reason is not None:
            self._noticed.set()
            raise RuntimeError(self.reason)


def in_words(error: BaseException) -> str:
    """An error's kind and its last line: Ray puts the traceback of another process before it."""
    cause = getattr(error, "cause", None) or error
    lines = str(cause).strip().splitlines()
    return f"{type(cause).__name__}: {lines[-1] if lines else ''}"
