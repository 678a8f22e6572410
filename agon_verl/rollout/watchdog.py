"""Ends a run whose vLLM or agent loop has died.

A call to a process that dies meanwhile may never return: vLLM does not answer the calls during which its engine died,
and a trainer that sends weights to it waits at a socket. So a thread pings all of these processes every few seconds. If
one does not answer, it records the reason and waits a while for the trainer to notice. A trainer that does not notice
is itself waiting, so everything that it may wait for is killed.
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
    def __init__(self, actors: Sequence[Any], workers: Sequence[Any]) -> None:
        """`actors` have a method `ping` that raises if they can no longer work; `workers` train."""
        super().__init__(name="agon-watchdog", daemon=True)
        self.actors, self.workers = list(actors), workers
        self.reason: str | None = None
        self._noticed = threading.Event()

    def run(self) -> None:
        while self.reason is None:
            time.sleep(SECONDS)
            try:
                ray.get([actor.ping.remote() for actor in self.actors], timeout=PATIENCE)
            except ray.exceptions.GetTimeoutError:
                continue
            except ray.exceptions.RayError as error:
                self.reason = describe_error(error)
        if not self._noticed.wait(NOTICE):
            for actor in (*self.workers, *self.actors):
                ray.kill(actor)

    def check(self) -> None:
        if self.reason is not None:
            self._noticed.set()
            raise RuntimeError(self.reason)


def describe_error(error: BaseException) -> str:
    """An error's type and its last line: Ray puts the traceback of the other process before it."""
    cause = getattr(error, "cause", None) or error
    lines = str(cause).strip().splitlines()
    return f"{type(cause).__name__}: {lines[-1] if lines else ''}"
