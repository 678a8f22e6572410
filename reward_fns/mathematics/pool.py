"""Algebra under a limit of time and memory, in processes that are killed and replaced when they exceed it.

One thread a process: it sends a question, waits for the reply and kills the process if none comes in time. Callers get
futures, so an event loop never waits, and nothing here needs the main thread or signals. Processes start with the
first question, and end with this one, however it ends.

The limit is one of wall time, but nobody is cut off before having had a tenth of it in processor time: on a machine
that does something else as well a right answer must not become a time-out. A question that has run for a tenth of its
limit no longer counts against `workers`, so that others are not kept waiting behind it.

Failures of the processes themselves raise `PoolError`. What a question does to its own process is its outcome.
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

_SHARE = 0.1  # of the limit: the least processor time before a time-out
_SLOW = 0.1  # of the limit: when a question no longer counts against the workers
_SPARE = 8  # times as many processes while some hang
_PATIENCE = 30  # limits that a question may wait for that processor time
_WORKER = "reward_fns.mathematics.pool_worker"
_START_S = 120.0
_REMEMBERED = 4096  # outcomes

Question = tuple[str, str | None, bool | None]


class PoolError(AgonError, RuntimeError):
    """The judge failed, not the answer."""


class PoolLimits(NamedTuple):
    """Seconds and megabytes for one comparison, and how many run side by side."""

    seconds: float = 1.0
    megabytes: int = 512
    workers: int = 2


class _Worker(NamedTuple):
    jobs: Connection
    pid: int


class Pool:
    """`submit` is safe from any thread. The same question is asked once: outcomes are remembered."""

    def __init__(self, limits: PoolLimits) -> None:
        self.limits = limits
        self.forker: subprocess.Popen | None = None
        self._control: socket.socket
        self._starting = threading.Lock()
        self._threads = ThreadPoolExecutor(_SPARE * limits.workers, "math-pool")
        self._slots = threading.Semaphore(limits.workers)
        self._idle: list[_Worker] = []
        self._asking = threading.Lock()
        self._outcomes: dict[Question, Future[str]] = {}

    def submit(self, gold: str, answer: str | None, finished: bool | None) -> "Future[str]":
        """TRUE or FALSE, or what became of the process; with `answer=None` a check of the reference alone."""
        question = (gold, answer, finished)
        with self._asking:
            known = self._outcomes.pop(question, None)
            if known is None or known.done() and known.exception():
                known = self._threads.submit(self._judge, question)
            self._outcomes[question] = known  # the latest last
            if len(self._outcomes) > _REMEMBERED:
                del self._outcomes[next(iter(self._outcomes))]
        return known

    def _judge(self, question: Question) -> str:
        outcome = self._ask(question)
        return self._ask(question) if outcome == CRASH else outcome  # once may be the machine's fault

    def _ask(self, question: Question) -> str:
        outcome = CRASH
        with self._slots:
            with self._starting:
                worker = self._ready()
            began, used = time.monotonic(), _cpu(worker.pid)
            with contextlib.suppress(ConnectionError):
                worker.jobs.send_bytes(json.dumps(question).encode())
            worker.jobs.poll(self.limits.seconds * _SLOW)
        with contextlib.suppress(EOFError, ConnectionError):
            if self._replied(worker, began, used, _SHARE if question[1] is not None else 1.0):
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
        """Wait for the reply until the time is up. What is said of a reference may end a run: it has its full share."""
        seconds = self.limits.seconds
        replied = worker.jobs.poll(max(0.0, began + seconds - time.monotonic()))
        while not replied and _cpu(worker.pid) - used < share * seconds:
            replied = worker.jobs.poll(0.05)
            if time.monotonic() - began > _PATIENCE * seconds:
                raise PoolError(f"a comparison got no processor time for {_PATIENCE * seconds:.0f} s")
        return replied

    def _ready(self) -> _Worker:
        while self._idle:
            worker = self._idle.pop()
            if not worker.jobs.poll():  # or it has died, or ended because it had grown
                return worker
            worker.jobs.close()
        for again in (True, False):
            try:
                return self._fork()
            except OSError as error:
                self._stop()
                if not again:
                    raise PoolError("the process that starts the workers does not answer") from error
        raise AssertionError

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
        nothing, started = subprocess.DEVNULL, b""
        with tempfile.TemporaryFile() as printed:
            self.forker = subprocess.Popen(
                command, pass_fds=[descriptor], stdin=nothing, stdout=nothing, stderr=printed
            )
            theirs.close()
            with contextlib.suppress(OSError):
                started = self._control.recv(32)
            if not started:
                self._stop()
                printed.seek(0)
                said = printed.read().decode(errors="replace").strip()
                raise PoolError(f"{_WORKER} does not start: {said[-2000:]}")

    def _stop(self) -> None:
        if self.forker is not None:
            self.forker.kill()
            self.forker.wait()
            self.forker = None


def _cpu(pid: int) -> float:
    """Seconds of processor time that a process has had; none if it has ended."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


_pools: dict[tuple[int, PoolLimits], Pool] = {}
_pools_lock = threading.Lock()


def pool(limits: PoolLimits) -> Pool:
    """This process's pool; one that a fork inherited is not used, for its threads stayed behind."""
    key = (os.getpid(), limits)
    with _pools_lock:
        if key not in _pools:
            _pools[key] = Pool(limits)
        return _pools[key]
