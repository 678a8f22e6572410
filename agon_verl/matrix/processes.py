"""Commands on this machine that end in time: each is asked to, and what is left at the limit is killed.

A command inherits a variable of its own, by which its processes are found: Ray's and vLLM's may outlive it and would
keep the GPU's memory. vLLM's give themselves a title, which would overwrite the variable; `SPT_NOENV` keeps it.
"""

import os
import signal
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

POLL_S = 0.5
KILLS = 100  # ten seconds
_MARK = "AGON_MATRIX_COMMAND"


class Clock:
    """The time that is left, in seconds; without a limit, infinitely many. `stop` ends it at once."""

    def __init__(self, minutes: float | None = None) -> None:
        self._end = float("inf") if minutes is None else time.monotonic() + 60 * minutes
        self._stopped = False

    @property
    def left(self) -> float:
        return self._end - time.monotonic()

    @property
    def limited(self) -> bool:
        return self.left != float("inf")

    @property
    def stopped(self) -> bool:
        return self._stopped

    def stop(self, grace: float = 300.0) -> None:
        """Commands are asked to end now, and have `grace` seconds for it."""
        self._end = min(self._end, time.monotonic() + grace)
        self._stopped = True


@dataclass(frozen=True)
class Stopping:
    """How a command is asked to end, and how many seconds before the limit."""

    ask: Callable[[int], None]  # gets the process id
    notice: Callable[[], float]


@dataclass(frozen=True)
class Ended:
    """`stopped`: it was asked to end, or killed at the limit; then its status says nothing."""

    status: int
    stopped: bool = False


class Runner(Protocol):
    def __call__(self, command: Sequence[str], env: Mapping[str, str], log: Path, stopping: Stopping) -> Ended:
        """Run a command to its end, with its output added to `log`."""


class Here:
    """Runs commands on this machine, at least `stagger` seconds after one another."""

    def __init__(self, clock: Clock, stagger: float = 0.0) -> None:
        self._clock, self._stagger = clock, stagger
        self._turn, self._last = threading.Lock(), float("-inf")

    def __call__(self, command: Sequence[str], env: Mapping[str, str], log: Path, stopping: Stopping) -> Ended:
        with self._turn:
            time.sleep(max(0.0, self._last + self._stagger - time.monotonic()))
            self._last = time.monotonic()
        if self._clock.stopped or self._clock.left <= 0:  # while it waited for its turn
            return Ended(1, stopped=True)
        mark = uuid.uuid4().hex
        with _ray_folder() as ray, log.open("a") as out:
            environment = {**os.environ, **env, **ray, _MARK: mark, "SPT_NOENV": "1"}
            process = subprocess.Popen(
                command, env=environment, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
            )
            try:
                return self._wait(process, stopping)
            finally:
                for _ in range(KILLS):  # again: one of them may have started another
                    for pid in (found := processes(f"{_MARK}={mark}")):
                        _kill(pid)
                    if not found:
                        break
                    time.sleep(0.1)
                process.wait()

    def _wait(self, process: subprocess.Popen, stopping: Stopping) -> Ended:
        asked = False
        while process.poll() is None:
            if not asked and (self._clock.stopped or (self._clock.limited and self._clock.left < stopping.notice())):
                stopping.ask(process.pid)
                asked = True
            if self._clock.left <= 0:
                return Ended(-signal.SIGKILL, stopped=True)
            time.sleep(POLL_S)
        return Ended(process.returncode, stopped=asked)


@contextmanager
def _ray_folder() -> Iterator[dict[str, str]]:
    """A Ray of its own for each command, unless a cluster runs here that `ray.init` would join."""
    own = os.environ.get("RAY_TMPDIR") or "/tmp"
    if "RAY_ADDRESS" in os.environ or Path(own, "ray", "ray_current_cluster").exists():  # `ray start` writes it
        yield {}
        return
    os.makedirs(own, exist_ok=True)  # as Ray does
    # Ray's sockets are below it, and a socket's path may have no more than 107 characters.
    with tempfile.TemporaryDirectory(prefix="agon", dir=own, ignore_cleanup_errors=True) as folder:
        yield {"RAY_TMPDIR": folder}


def processes(variable: str) -> list[int]:
    """The living processes, on Linux, with this NAME=VALUE in their environment; one that has ended has none."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if variable.encode() in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:  # it has ended, or belongs to another user
            continue
    return found


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
