"""Algebra under a limit of time and memory, in processes that are killed and replaced when they exceed it.

One thread owns the processes: it hands out jobs, watches the clock and kills. Callers get futures, so an event loop
never waits, and nothing here needs the main thread, signals or an asyncio child watcher. Processes start when the
first job comes, and end with this one, however it ends.

The limit is one of wall time, but nobody is cut off before having had a fifth of it in processor time: on a machine
that does something else as well a right answer must not become a time-out. A job that has run for a tenth of its limit
no longer counts against `workers`, so that others are not kept waiting behind it; up to four times as many processes
are made for that.

Failures of the processes themselves raise `PoolError`. What a job does to its own process is its outcome.
"""

import collections
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import NamedTuple

TRUE, FALSE, TIMEOUT, MEMORY, CRASH, ERROR = "true", "false", "timeout", "memory", "crash", "error"

_SHARE = 0.2  # of the limit: the least processor time before a time-out
_SLOW = 0.1  # of the limit: when a job no longer counts
_PATIENCE = 30  # limits that a job may wait for that processor time
_WORKER = "reward_fns.mathematics.worker"
_START_S, _FORK_S = 120.0, 30.0
_REMEMBERED = 4096  # outcomes


class PoolError(RuntimeError):
    """The judge failed, not the answer."""


class Limits(NamedTuple):
    """Seconds and megabytes for one comparison, and how many run side by side."""

    seconds: float = 1.0
    megabytes: int = 512
    workers: int = 2


@dataclass(eq=False)
class _Job:
    key: tuple[str, str | None, bool | None]
    future: "Future[str]" = field(default_factory=Future)
    retried: bool = False


@dataclass(eq=False)
class _Worker:
    jobs: Connection
    pid: int
    job: _Job | None = None
    began: float = 0.0
    cpu: float = 0.0


class Pool:
    """`submit` is safe from any thread. The same question is asked once: outcomes are remembered."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._lock = threading.Lock()
        self._outcomes: collections.OrderedDict[tuple[str, str | None, bool | None], Future[str]] = (
            collections.OrderedDict()
        )
        self._queue: collections.deque[_Job] = collections.deque()
        self._wake, self._woken = socket.socketpair()
        self._woken.setblocking(False)
        self._wake.setblocking(False)
        self._idle: list[_Worker] = []
        self._busy: dict[Connection, _Worker] = {}
        self._forker: subprocess.Popen | None = None
        self._control: socket.socket | None = None
        threading.Thread(target=self._run, name="math-pool", daemon=True).start()

    def submit(self, gold: str, answer: str | None, finished: bool | None) -> "Future[str]":
        """TRUE or FALSE, or what became of the process; with `answer=None` a check of the reference alone."""
        key = (gold, answer, finished)
        with self._lock:
            known = self._outcomes.get(key)
            if known is not None and not (known.done() and known.exception()):
                self._outcomes.move_to_end(key)
                return known
            job = _Job(key)
            job.future.set_running_or_notify_cancel()  # shared by all who ask: nobody may cancel it
            self._remember(key, job.future)
            if answer is None:
                self._queue.appendleft(job)  # its answer has waited already
            else:
                self._queue.append(job)
        with contextlib.suppress(BlockingIOError):  # full: it will wake anyway
            self._wake.send(b"x")
        return job.future

    def _remember(self, key: tuple[str, str | None, bool | None], future: "Future[str]") -> None:
        self._outcomes[key] = future
        while len(self._outcomes) > _REMEMBERED:
            self._outcomes.popitem(last=False)

    def pids(self) -> list[int]:
        """Of all processes, the one that forks first."""
        workers = [*self._idle, *self._busy.values()]
        return [self._forker.pid, *(worker.pid for worker in workers)] if self._forker else []

    # -- the thread

    def _run(self) -> None:
        while True:
            try:
                self._turn()
            except Exception as error:  # whatever it was, no caller may wait for ever
                self._fail(error)

    def _turn(self) -> None:
        now = time.monotonic()
        checks = [self._next_check(worker) for worker in self._busy.values()]
        timeout = max(0.0, min(checks) - now) if checks else None
        for ready in wait([self._woken, *self._busy], timeout):
            if ready is self._woken:
                self._drain()
            else:
                self._finish(self._busy[ready])  # type: ignore[index]
        for worker in list(self._busy.values()):
            self._watch(worker)
        self._dispatch()

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._woken.recv(4096):
                pass

    def _finish(self, worker: _Worker) -> None:
        job = worker.job
        assert job is not None
        try:
            outcome = str(json.loads(worker.jobs.recv_bytes())).lower()
        except (EOFError, ConnectionError):
            outcome = CRASH
        del self._busy[worker.jobs]
        worker.job = None
        if outcome == CRASH and not job.retried:  # once may be the machine's fault
            self._end(worker)
            job.retried = True
            self._queue.appendleft(job)
            return
        if outcome in (TRUE, FALSE) and len(self._idle) < self.limits.workers:
            self._idle.append(worker)
        else:
            self._end(worker)
        if outcome in (TRUE, FALSE) and job.key[1] is not None:
            with self._lock:  # a reference that one answer was compared with is harmless
                self._remember((job.key[0], None, None), _done(TRUE))
        job.future.set_result(outcome)

    def _next_check(self, worker: _Worker) -> float:
        """When a job becomes slow; then at its limit; then again until it has had its share."""
        seconds = self.limits.seconds
        running = time.monotonic() - worker.began
        return worker.began + next((mark for mark in (seconds * _SLOW, seconds) if mark > running), running + 0.05)

    def _watch(self, worker: _Worker) -> None:
        job, running, seconds = worker.job, time.monotonic() - worker.began, self.limits.seconds
        if job is None or running < seconds:
            return
        share = _SHARE if job.key[1] is not None else 1.0  # what is said of a reference may end a run
        if _cpu(worker.pid) - worker.cpu < seconds * share:
            if running < seconds * _PATIENCE:
                return
            job.future.set_exception(PoolError(f"a comparison got no processor time for {running:.0f} s"))
        else:
            job.future.set_result(TIMEOUT)
        del self._busy[worker.jobs]
        self._end(worker)

    def _dispatch(self) -> None:
        while self._queue and len(self._busy) < 4 * self.limits.workers:
            recent = time.monotonic() - self.limits.seconds * _SLOW
            if sum(worker.began > recent for worker in self._busy.values()) >= self.limits.workers:
                return
            worker = self._idle.pop() if self._idle else self._fork()
            job = self._queue.popleft()
            worker.job, worker.began, worker.cpu = job, time.monotonic(), _cpu(worker.pid)
            self._busy[worker.jobs] = worker
            try:
                worker.jobs.send_bytes(json.dumps(job.key).encode())
            except ConnectionError:  # it died while idle
                del self._busy[worker.jobs]
                self._end(worker)
                self._queue.appendleft(job)

    def _fork(self) -> _Worker:
        for attempt in range(2):
            if self._forker is None or self._forker.poll() is not None:
                self._start()
            assert self._control is not None
            ours, theirs = socket.socketpair()
            try:
                with theirs:
                    socket.send_fds(self._control, [b"f"], [theirs.fileno()])
                    if pid := self._control.recv(32):
                        return _Worker(Connection(ours.detach()), int(pid))
            except (ConnectionError, TimeoutError):
                ours.close()
            self._stop()
            if attempt:
                raise PoolError("the process that starts the workers of math-verify does not answer")
        raise AssertionError

    def _start(self) -> None:
        self._control, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        self._control.settimeout(_START_S)
        path, descriptor = [os.path.abspath(entry) for entry in sys.path], theirs.fileno()
        program = f"import sys; sys.path[:] = {path!r}; from {_WORKER} import main; "
        program += f"main({descriptor}, {self.limits.megabytes})"
        with theirs, tempfile.TemporaryFile() as printed:
            self._forker = subprocess.Popen(
                [sys.executable, "-c", program],
                pass_fds=[descriptor],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=printed,
            )
            theirs.close()
            try:
                started = self._control.recv(32) == b"ready"
            except (ConnectionError, TimeoutError):
                started = False
            if not started:
                self._stop()
                printed.seek(0)
                said = printed.read().decode(errors="replace").strip()
                raise PoolError(f"{_WORKER} does not start: {said[-2000:]}")
        self._control.settimeout(_FORK_S)

    def _stop(self) -> None:
        if self._forker is not None:
            self._forker.kill()
            self._forker.wait()
            self._forker = None

    def _end(self, worker: _Worker) -> None:
        worker.jobs.close()
        if self._control is not None:
            with contextlib.suppress(ConnectionError):  # the one who forks is gone, and its workers with it
                self._control.send(b"k%d" % worker.pid)

    def _fail(self, error: Exception) -> None:
        """All that wait are told; the next job starts anew."""
        with self._lock:
            jobs = [worker.job for worker in self._busy.values() if worker.job] + list(self._queue)
            self._queue.clear()
        for worker in [*self._busy.values(), *self._idle]:
            self._end(worker)
        self._busy.clear()
        self._idle.clear()
        self._stop()
        for job in jobs:
            if not job.future.done():
                failure = PoolError(str(error))
                failure.__cause__ = error
                job.future.set_exception(failure)


def _done(outcome: str) -> "Future[str]":
    future: Future[str] = Future()
    future.set_result(outcome)
    return future


def _cpu(pid: int) -> float:
    """Seconds of processor time that a process has had; none if it has ended."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


_pools: dict[tuple[int, Limits], Pool] = {}
_pools_lock = threading.Lock()


def pool(limits: Limits) -> Pool:
    """This process's pool; one that a fork inherited is not used, for its thread stayed behind."""
    key = (os.getpid(), limits)
    with _pools_lock:
        if key not in _pools:
            _pools[key] = Pool(limits)
        return _pools[key]
