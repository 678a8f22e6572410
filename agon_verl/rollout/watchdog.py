"""Notices a vLLM or an agent loop that has died or no longer answers, and ends every wait for it.

A call to a process that dies meanwhile may never return: vLLM does not answer the calls during which its engine died.
An engine may also lose one of its threads while its process lives on; then it answers nothing at all. So a thread pings
these processes every few seconds. vLLM's answer comes from the loop of its engine, between two forward passes. If a
process has died, or leaves a ping open for too long, the watchdog records the reason. A trainer that waits for pairs
sees it there; one that updates goes on, and sees it before the next sync. A while later the watched processes are
killed, so that whoever still waits for one of them gets an error. Processes that train are never killed: they can save.
"""

import threading
import time
from collections.abc import Mapping
from typing import Any

import ray

from agon_verl.errors import AgonError

SECONDS = 5.0
NOTICE = 20.0


class Watchdog(threading.Thread):
    def __init__(self, actors: Mapping[str, Any], limit: float) -> None:
        """`actors`, by name, have a method `ping` that raises if they can no longer work."""
        super().__init__(name="agon-watchdog", daemon=True)
        self.actors, self.limit = dict(actors), limit
        self.reason: str | None = None
        self._failed = threading.Event()
        self._pings: dict[str, tuple[Any, float]] = {}  # the open ones, with the time of each

    def run(self) -> None:
        while self.reason is None:
            time.sleep(SECONDS)
            self.reason = self._first_failure()
        self._failed.set()
        time.sleep(NOTICE)
        self.end_rollout()

    def _first_failure(self) -> str | None:
        for name, actor in list(self.actors.items()):
            if name not in self._pings:
                self._pings[name] = actor.ping.remote(), time.monotonic()
            ping, since = self._pings[name]
            if ray.wait([ping], timeout=0)[0]:
                del self._pings[name]
                try:
                    ray.get(ping)
                except ray.exceptions.RayError as error:
                    return f"{name} has failed ({describe_error(error)})"
            elif time.monotonic() - since > self.limit:
                return f"{name} has not answered for agon.engine_timeout={self.limit:g} seconds, but its process lives"
        return None

    def check(self) -> None:
        if self.reason is not None:
            raise RuntimeError(self.reason)

    def wait_for_reason(self) -> str | None:
        """After a failure: long enough for a ping to say which process is the cause, if one is."""
        self._failed.wait(3 * SECONDS)
        return self.reason

    def end_rollout(self) -> None:
        """Agent loops first, or each would report its servers as dead. The trainer's thread may be adding them."""
        for actor in reversed(list(self.actors.values())):
            ray.kill(actor)


def describe_error(error: BaseException) -> str:
    """An error's type and its last line: Ray puts the traceback of the other process before it."""
    cause = getattr(error, "cause", None) or error
    if isinstance(cause, AgonError):
        return str(cause)  # a sentence already
    lines = str(cause).strip().splitlines()
    return f"{type(cause).__name__}: {lines[-1] if lines else ''}"
