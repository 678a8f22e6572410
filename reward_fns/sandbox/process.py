"""One child process, supervised by the thread that started it: output is capped, limits are enforced, nothing is left.

A thread and not the event loop, because the loop belongs to the caller (verl's reward worker runs in Ray's). Standard
input is a sealed memory file: the child can take its size and read it in one call, but cannot change it. Output is read
while the child runs, so no pipe ever blocks it.
"""

import fcntl
import math
import os
import resource
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from reward_fns.sandbox import Ending, ProgramLimits, RunResult, SandboxError

TICK = 0.05  # seconds between checks of a running program
_STARVED = 20  # a program that waits for a core for this many times its wall limit is a failure of the machine
_GRACE = 5.0  # seconds for a killed child to disappear before its process group is killed too
_KEPT_STDERR = 4096
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK


@dataclass(frozen=True, slots=True)
class Usage:
    """Of a process so far: CPU seconds, seconds ready to run while no core was free, peak resident bytes."""

    cpu: float = 0.0
    queued: float = 0.0
    memory: int = 0


@dataclass(frozen=True, slots=True)
class ProcessHandle:
    """A process by file descriptors: by the time a number is used, it could belong to another process."""

    pidfd: int
    proc: int  # /proc/<pid>

    @classmethod
    def open(cls, pid: int, stack: ExitStack) -> "ProcessHandle":
        handle = cls(os.pidfd_open(pid), os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY))
        stack.callback(os.close, handle.pidfd)
        stack.callback(os.close, handle.proc)
        return handle

    def read(self, name: str) -> str:
        """A file of /proc/<pid>; empty once the process is gone."""
        try:
            with open(os.open(name, os.O_RDONLY, dir_fd=self.proc)) as file:
                return file.read()
        except (FileNotFoundError, ProcessLookupError):
            return ""

    def usage(self) -> Usage | None:
        stat = self.read("stat").rpartition(")")[2].split()
        scheduled = self.read("schedstat").split()
        _, _, peak = self.read("status").partition("\nVmHWM:")  # line start: a program chooses its name
        if not (stat and scheduled and peak):
            return None
        cpu = (int(stat[11]) + int(stat[12])) / _CLOCK_TICKS
        return Usage(cpu, int(scheduled[1]) / 1e9, int(peak.split(maxsplit=1)[0]) * 1024)

    def end(self) -> None:
        """Kill it and wait until it is gone."""
        try:
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        except ProcessLookupError:
            return
        _wait(self.pidfd)


@dataclass(frozen=True, slots=True)
class Started:
    """The program, and the process whose end also ends everything that the program could have started."""

    program: ProcessHandle
    first: ProcessHandle


class Launch:
    """How a program is started: directly, or inside a sandbox that has to be set up first."""

    command: list[str]
    fds: list[int]
    cwd: str

    def begin(self, process: subprocess.Popen[bytes]) -> Started | None:
        """Set the limits and let the program start; `None` if it cannot be started."""
        raise NotImplementedError

    def check(self, program: ProcessHandle) -> Ending | None:
        """Whether the program exceeds a limit that only this kind of launch has."""
        return None

    def waiting(self, program: ProcessHandle) -> bool:
        """Whether the program has not begun when its time is up."""
        return False

    def ran(self) -> bool:
        """Whether the program was reached at all when the command has ended by itself."""
        return True


@contextmanager
def sealed(content: bytes) -> Iterator[int]:
    """A read-only descriptor of a memory file that nobody can change, positioned at its start."""
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


class PlainLaunch(Launch):
    """A program as an ordinary process of this machine, for trusted code: with limits, but without isolation."""

    def __init__(
        self, prefix: Sequence[str], files: Mapping[str, bytes], limits: ProgramLimits, stack: ExitStack
    ) -> None:
        self._limits, self._stack = limits, stack
        self.fds = [stack.enter_context(sealed(content)) for content in files.values()]
        self.command = [*prefix, *(f"/proc/self/fd/{descriptor}" for descriptor in self.fds)]
        self.cwd = stack.enter_context(tempfile.TemporaryDirectory(prefix="agon-trusted-"))

    def begin(self, process: subprocess.Popen[bytes]) -> Started:
        seconds = math.ceil(self._limits.cpu) + 1
        set_limits(process.pid, {resource.RLIMIT_CPU: (seconds, seconds), resource.RLIMIT_CORE: (1, 1)})
        program = ProcessHandle.open(process.pid, self._stack)
        return Started(program, program)


def supervise(launch: Launch, stdin: bytes, limits: ProgramLimits) -> RunResult:
    """Run to the end or to the first exceeded limit; afterwards no process is left."""
    with ExitStack() as stack:
        pipes = _Pipes(stack, limits.output)
        source = stack.enter_context(sealed(stdin))
        try:
            process = subprocess.Popen(
                launch.command, stdin=source, stdout=pipes.writers[0], stderr=pipes.writers[1],
                pass_fds=launch.fds, env={}, cwd=launch.cwd, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise SandboxError(f"{launch.command[0]} could not be started: {error}") from error
        exited = os.pidfd_open(process.pid)
        stack.callback(os.close, exited)
        started: Started | None = None
        run = _SupervisedRun(launch, pipes, limits)
        try:
            started = launch.begin(process)
            if started is not None:
                run.wait(exited, started.program)
        finally:
            if started is not None:
                started.first.end()
            code, cpu = _collect(process, exited)
        pipes.drain()
        if started is None or (run.ending is None and not launch.ran()):
            message = pipes.stderr.decode(errors="replace").strip()
            raise SandboxError(f"{launch.command[0]} could not start the program: {message}")
        ending = run.ending or pipes.over or ("timeout" if cpu > limits.cpu else "exited")
        return RunResult(ending, code, bytes(pipes.stdout), bytes(pipes.stderr), cpu, run.wall)


def set_limits(pid: int, limits: Mapping[int, tuple[int, int]]) -> None:
    """Set kernel limits (soft, hard) of a process before its program starts; hard limits are never raised."""
    for kind, (soft, hard) in limits.items():
        ceiling = resource.prlimit(pid, kind)[1]
        if ceiling != resource.RLIM_INFINITY:
            hard = ceiling if hard == resource.RLIM_INFINITY else min(hard, ceiling)
            soft = min(soft, hard)
        resource.prlimit(pid, kind, (soft, hard))


class _Pipes:
    """Both outputs: all of stdout and the end of stderr, each limited to `cap` bytes."""

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
            os.fchmod(writer, 0o666)  # a program may open /dev/stdout, and runs as another user

    def read(self, reader: int) -> bool:
        """Read what is available; false if there was nothing."""
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


class _SupervisedRun:
    """What a program has used, how long it took, and which limit it exceeded, if any."""

    def __init__(self, launch: Launch, pipes: _Pipes, limits: ProgramLimits) -> None:
        self._launch, self._pipes, self._limits = launch, pipes, limits
        self.usage = Usage()
        self.wall = 0.0
        self.ending: Ending | None = None

    def wait(self, exited: int, program: ProcessHandle) -> None:
        """Read output until the command has ended (`exited` is its pidfd) or the program exceeds a limit."""
        self._began = time.monotonic()
        poll = select.poll()
        for descriptor in (*self._pipes.readers, exited):
            poll.register(descriptor, select.POLLIN)
        next_check, running = self._began + TICK, True
        while running and self.ending is None:
            for descriptor, _ in poll.poll(max(0.0, (next_check - time.monotonic()) * 1000)):
                if descriptor == exited:
                    running = False
                else:
                    self._pipes.read(descriptor)
            self.ending = self._pipes.over
            self.wall = time.monotonic() - self._began - self.usage.queued
            if running and time.monotonic() >= next_check:
                next_check = time.monotonic() + TICK
                self._check(program)

    def _check(self, program: ProcessHandle) -> None:
        self.usage = program.usage() or self.usage
        elapsed = time.monotonic() - self._began
        self.wall = elapsed - self.usage.queued
        if self.usage.cpu > self._limits.cpu or self.wall > self._limits.wall:
            self.ending = "timeout"
        elif self.usage.memory > self._limits.memory:
            self.ending = "memory"
        else:
            self.ending = self.ending or self._launch.check(program)
        starved = self.ending is None and elapsed > _STARVED * self._limits.wall
        if starved or (self.ending == "timeout" and self._launch.waiting(program)):
            raise SandboxError(f"a program had too little CPU time to run in {elapsed:.0f} s: the machine is too busy")


def _collect(process: subprocess.Popen[bytes], exited: int) -> tuple[int, float]:
    """The command's exit code (128 + n after signal n) and CPU time; the rest of its process group is killed."""
    _wait(exited)
    os.killpg(process.pid, signal.SIGKILL)  # before wait4, which frees the number for others
    _, status, usage = os.wait4(process.pid, 0)
    code = process.returncode = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code, usage.ru_utime + usage.ru_stime


def _wait(pidfd: int) -> None:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.poll(_GRACE * 1000)
