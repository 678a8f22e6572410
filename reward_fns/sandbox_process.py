"""One child process, watched by the thread that started it: output read with a cap, limits enforced, nothing left.

A thread, not the event loop: the caller's loop may be anyone's (verl's reward worker runs in Ray's), and a thread needs
none of its machinery. Standard input is a sealed memory file, so the child can take its size, read it in one call or
not at all, and cannot change it. Output is read while the child runs, so no pipe ever blocks it.
"""

import fcntl
import os
import resource
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Protocol

from reward_fns.sandbox import Ending, Limits, Run, SandboxError

TICK = 0.05  # seconds between looks at a running program
_STARVED = 20  # times its wall limit that a program may wait for a core before the machine is at fault
_GRACE = 5.0  # seconds for a killed child to be gone before its group is killed too
_KEPT_STDERR = 4096
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK


@dataclass(frozen=True, slots=True)
class Watched:
    """The program's process, by descriptors: its number could be another process's by the time it is used."""

    pidfd: int
    proc: int  # /proc/<pid>

    @classmethod
    def open(cls, pid: int, stack: ExitStack) -> "Watched":
        found = cls(os.pidfd_open(pid), os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY))
        stack.callback(os.close, found.pidfd)
        stack.callback(os.close, found.proc)
        return found

    def kill(self) -> None:
        try:
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        except ProcessLookupError:
            pass  # already gone

    def read(self, name: str) -> str:
        """A file of /proc/<pid>; blank once the process is gone."""
        try:
            with open(os.open(name, os.O_RDONLY, dir_fd=self.proc)) as file:
                return file.read()
        except (FileNotFoundError, ProcessLookupError):
            return ""

    def queued(self) -> float:
        """Seconds for which it was ready to run and no core was free."""
        fields = self.read("schedstat").split()
        return int(fields[1]) / 1e9 if fields else 0.0


class Launch(Protocol):
    """How a program is started: directly, or inside a sandbox that first has to stand."""

    command: list[str]
    fds: list[int]
    cwd: str

    def begin(self, process: subprocess.Popen[bytes]) -> Watched | None:
        """Limit the program and let it go; `None` where it could not be started."""

    def look(self, watched: Watched) -> Ending | None:
        """Whether it is over a limit by now."""

    def ran(self) -> bool:
        """Whether the program itself was reached, asked when the command has ended of its own accord."""


@contextmanager
def sealed(content: bytes) -> Iterator[int]:
    """A descriptor of a memory file that nobody can change, at its start and read-only."""
    writable = os.memfd_create("input", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(writable, view) :]
        fcntl.fcntl(writable, fcntl.F_ADD_SEALS, _SEALS)
        readable = os.open(f"/proc/self/fd/{writable}", os.O_RDONLY)
    finally:
        os.close(writable)
    try:
        yield readable
    finally:
        os.close(readable)


def supervise(launch: Launch, stdin: bytes, limits: Limits) -> Run:
    """Run to the end or to the first limit; afterwards no process is left."""
    with ExitStack() as stack:
        pipes = _Pipes(stack, limits.output)
        process = subprocess.Popen(
            launch.command, stdin=stack.enter_context(sealed(stdin)), stdout=pipes.writers[0], stderr=pipes.writers[1],
            pass_fds=launch.fds, env={}, cwd=launch.cwd, start_new_session=True,
        )  # fmt: skip
        watched, ending, wall = None, None, 0.0
        try:
            watched = launch.begin(process)
            if watched is not None:
                ending, wall = _watch(launch, watched, pipes, process.pid, limits.wall)
        finally:
            code, cpu = _end(process, watched)
        pipes.drain()
        if watched is None or (ending is None and not launch.ran()):
            told = pipes.stderr.decode(errors="replace").strip()
            raise SandboxError(f"{launch.command[0]} could not start the program: {told}")
        ending = ending or pipes.over or ("timeout" if cpu > limits.cpu else "exited")
        return Run(ending, code if code >= 0 else 128 - code, bytes(pipes.stdout), bytes(pipes.stderr), cpu, wall)


def set_limits(pid: int, limits: Mapping[int, tuple[int, int]]) -> None:
    """Kernel limits (soft, hard) of a process that has not started its program yet; a soft one never exceeds ours."""
    for kind, (soft, hard) in limits.items():
        ceiling = resource.prlimit(pid, kind)[1]
        if ceiling != resource.RLIM_INFINITY:
            hard = ceiling if hard == resource.RLIM_INFINITY else min(hard, ceiling)
            soft = min(soft, hard)
        resource.prlimit(pid, kind, (soft, hard))


def over_limit(watched: Watched, limits: Limits) -> Ending | None:
    """CPU time and memory so far. Kernel limits stand behind both, but they are coarse."""
    fields = watched.read("stat").rpartition(")")[2].split()
    if fields and (int(fields[11]) + int(fields[12])) / _CLOCK_TICKS > limits.cpu:
        return "timeout"
    _, _, peak = watched.read("status").partition("VmHWM:")
    if peak and int(peak.split(maxsplit=1)[0]) * 1024 > limits.memory:
        return "memory"
    return None


class _Pipes:
    """Both outputs: all of stdout and the end of stderr, each counted against the cap."""

    def __init__(self, stack: ExitStack, cap: int) -> None:
        self.stdout, self.stderr = bytearray(), bytearray()
        self.over: Ending | None = None
        self._cap, self._noise = cap, 0
        pairs = [os.pipe(), os.pipe()]
        self.readers, self.writers = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        for descriptor in self.readers + self.writers:
            stack.callback(os.close, descriptor)
        for reader, writer in pairs:
            os.set_blocking(reader, False)
            os.fchmod(writer, 0o666)  # a program may open /dev/stdout, and be another user than the one who made it

    def read(self, reader: int) -> bool:
        """Take what is there; false if nothing is."""
        try:
            chunk = os.read(reader, 1 << 18)
        except BlockingIOError:
            return False
        if reader == self.readers[0]:
            self.stdout += chunk
        else:
            self.stderr = (self.stderr + chunk)[-_KEPT_STDERR:]
            self._noise += len(chunk)
        if len(self.stdout) > self._cap or self._noise > self._cap:
            self.over = "output_limit"
        return bool(chunk)

    def drain(self) -> None:
        for reader in self.readers:
            while not self.over and self.read(reader):
                pass


def _watch(launch: Launch, watched: Watched, pipes: _Pipes, pid: int, limit: float) -> tuple[Ending | None, float]:
    """Read until the command ends (`None`) or the program goes over a limit; with it the time that counts."""
    began, queued = time.monotonic(), 0.0
    exited = os.pidfd_open(pid)
    try:
        poll = select.poll()
        for descriptor in (*pipes.readers, exited):
            poll.register(descriptor, select.POLLIN)
        next_look = began + TICK
        while True:
            ready = poll.poll(max(0.0, (next_look - time.monotonic()) * 1000))
            now = time.monotonic()
            for descriptor, _ in ready:
                if descriptor == exited:
                    return None, now - began - queued
                pipes.read(descriptor)
            if pipes.over:
                return pipes.over, now - began - queued
            if now < next_look:
                continue
            next_look, queued = now + TICK, watched.queued()
            if ending := launch.look(watched):
                return ending, now - began - queued
            if now - began - queued > limit:
                return "timeout", now - began - queued
            if now - began > _STARVED * limit:
                raise SandboxError(f"a program waited {queued:.0f} s for a core: the machine is too busy to judge")
    finally:
        os.close(exited)


def _end(process: subprocess.Popen[bytes], watched: Watched | None) -> tuple[int, float]:
    """Kill what still runs and collect the command: its exit code, and the CPU seconds of all it waited for."""
    if watched is not None:
        watched.kill()
        gone = os.pidfd_open(process.pid)
        poll = select.poll()
        poll.register(gone, select.POLLIN)
        poll.poll(_GRACE * 1000)
        os.close(gone)
    os.killpg(process.pid, signal.SIGKILL)  # not collected yet, so the number is still its own
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_utime + usage.ru_stime
