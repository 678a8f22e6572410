"""Algebra with a time and a memory limit, in processes that are killed and replaced when they exceed one.

One thread per process sends a request, waits for the reply and kills the process if none comes in time. Callers get
futures, so an event loop never blocks, and nothing here needs the main thread or signals. Processes start with the
first request and end with this process, even if it is killed.

The limit is wall time, but no comparison is stopped before it has had half of it as processor time: on a busy
machine a correct answer must not become a time-out. A comparison that has run for a tenth of its limit no longer counts
against `workers`, so others do not wait for it.

Failures of the processes themselves raise `PoolError`. What a request does to its own process is its outcome.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import NamedTuple

from agon_verl.errors import AgonError

TRUE, FALSE, TIMEOUT, MEMORY, CRASH, ERROR = "true", "false", "timeout", "memory", "crash", "error"

_SHARE = 0.5  # of the limit: the least processor time before a time-out
_SLOW = 0.1  # of the limit: from then on a comparison no longer counts against `workers`
_SPARE = 8  # factor of `workers` by which processes may grow while some hang
_PATIENCE = 30  # times the limit that a comparison may wait for processor time
_WORKER = "reward_fns.mathematics.pool_worker"
_START_S = 120.0
_CACHED = 4096  # outcomes

Request = tuple[str, str | None, bool | None]


class PoolError(AgonError, RuntimeError):
    """The worker processes failed, independently of the answer."""


class PoolLimits(NamedTuple):
    """Seconds and megabytes for one comparison, and how many run at the same time."""

    seconds: float = 1.0
    megabytes: int = 512
    workers: int = 2


class _Worker(NamedTuple):
    jobs: Connection
    pid: int


class Pool:
    """`submit` may be called from any thread. Outcomes are cached, so equal requests are computed once."""

    def __init__(self, limits: PoolLimits) -> None:
        self.limits = limits
        self.forker: subprocess.Popen | None = None
        self._control: socket.socket
        self._starting = threading.Lock()
        self._threads = ThreadPoolExecutor(_SPARE * limits.workers, "math-pool")
        self._slots = threading.Semaphore(limits.workers)
        self._idle: list[_Worker] = []
        self._submitting = threading.Lock()
        self._outcomes: dict[Request, Future[str]] = {}

    def submit(self, gold: str, answer: str | None, finished: bool | None) -> "Future[str]":
        """TRUE, FALSE or how the process failed; with `answer=None` a check of the reference alone."""
        request = (gold, answer, finished)
        with self._submitting:
            outcome = self._outcomes.pop(request, None)
            if outcome is None or outcome.done() and outcome.exception():
                outcome = self._threads.submit(self._judge, request)
            self._outcomes[request] = outcome  # the latest last
            if len(self._outcomes) > _CACHED:
                del self._outcomes[next(iter(self._outcomes))]
        return outcome

    def _judge(self, request: Request) -> str:
        outcome = self._compare(request)
        return self._compare(request) if outcome == CRASH else outcome  # a single crash may be the machine's fault

    def _compare(self, request: Request) -> str:
        outcome = CRASH
        with self._slots:
            with self._starting:
                worker = self._ready()
            began, used = time.monotonic(), _cpu(worker.pid)
            with contextlib.suppress(ConnectionError):
                worker.jobs.send_bytes(json.dumps(request).encode())
            worker.jobs.poll(self.limits.seconds * _SLOW)
        with contextlib.suppress(EOFError, ConnectionError):
            # A reference gets the full limit as processor time: if it fails, the run may stop.
            if self._replied(worker, began, used, _SHARE if request[1] is not None else 1.0):
                outcome = str(json.loads(worker.jobs.recv_bytes())).lower()
            else:
                os.kill(worker.pid, signal.SIGKILL)  # it is alive: its end of the connection is open
                outcome = TIMEOUT
        if outcome in (TRUE, FALSE):
            self._idle.append(worker)
        else:
            worker.jobs.close()
        return outcome

    def _replied(self, worker: _Worker, began: float, used: float, share: float) -> bool:
        """Wait for the reply until the time is up; `share` is the least processor time, as a share of the limit."""
        seconds = self.limits.seconds
        replied = worker.jobs.poll(max(0.0, began + seconds - time.monotonic()))
        while not replied and _cpu(worker.pid) - used < share * seconds:
            replied = worker.jobs.poll(0.05)
            if time.monotonic() - began > _PATIENCE * seconds:
                raise PoolError(f"no processor time for a comparison in {_PATIENCE * seconds:.0f} s: machine too busy")
        return replied

    def _ready(self) -> _Worker:
        while self._idle:
            worker = self._idle.pop()
            if not worker.jobs.poll():  # otherwise it has died, or ended because it had grown
                return worker
            worker.jobs.close()
        with contextlib.suppress(OSError):
            return self._fork()
        self._stop()
        try:
            return self._fork()
        except OSError as error:
            self._stop()
            raise PoolError("the process that starts the workers does not respond") from error

    def _fork(self) -> _Worker:
        if self.forker is None or self.forker.poll() is not None:
            self._start()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            socket.send_fds(self._control, [b"f"], [theirs.fileno()])
            pid = self._control.recv(32)
            if not pid:
                raise ConnectionError
            return _Worker(Connection(ours.detach()), int(pid))

    def _start(self) -> None:
        self._control, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        self._control.settimeout(_START_S)
        path, descriptor = [os.path.abspath(entry) for entry in sys.path], theirs.fileno()
        program = f"import sys; sys.path[:] = {path!r}; from {_WORKER} import main; "
        command = [sys.executable, "-c", program + f"main({descriptor}, {self.limits.megabytes})"]
        null, started = subprocess.DEVNULL, b""
        with tempfile.TemporaryFile() as printed:
            self.forker = subprocess.Popen(command, pass_fds=[descriptor], stdin=null, stdout=null, stderr=printed)
            theirs.close()
            with contextlib.suppress(OSError):
                started = self._control.recv(32)
            if not started:
                self._stop()
                printed.seek(0)
                message = printed.read().decode(errors="replace").strip()
                raise PoolError(f"{_WORKER} does not start: {message[-2000:]}")

    def _stop(self) -> None:
        if self.forker is not None:
            self.forker.kill()
            self.forker.wait()
            self.forker = None


def _cpu(pid: int) -> float:
    """Seconds of processor time that a process has used; 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


_pools: dict[tuple[int, PoolLimits], Pool] = {}
_pools_lock = threading.Lock()


def pool(limits: PoolLimits) -> Pool:
    """The pool of this process. One inherited by a fork is not used, because its threads were not copied."""
    key = (os.getpid(), limits)
    with _pools_lock:
        if key not in _pools:
            _pools[key] = Pool(limits)
        return _pools[key]
