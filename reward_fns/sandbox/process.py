"""One child process, supervised by the thread that started it: output is capped, limits are enforced, nothing is left.

A thread and not the event loop, because the loop belongs to the caller (verl's reward worker runs in Ray's). Standard
input is a sealed memory file: the child can take its size and read it in one call, but cannot change it. Output is read
while the child runs, so no pipe blocks it for long.

Output is read in batches. A child can write byte by byte, and it can make its pipe return one byte per read (O_DIRECT,
"packets"), so reading at once would cost a wake-up per byte. After less than a batch the next read waits for a few
milliseconds; a pipe has room for as much as an honest child writes meanwhile. The number of reads is then at most
bytes / `_BATCH` + seconds / `_PAUSE`, for each pipe.
"""

import fcntl
import math
import os
import re
import resource
import select
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from reward_fns.sandbox import Ending, ProgramLimits, RunResult, SandboxError
from reward_fns.sandbox.launchers import Launcher, OutOfMemory, launcher

FIRST_FD = 3  # after standard input, output and error
TICK = 0.05  # seconds between checks of a running program
_STARVED = 20  # a program that waits for a core for this many times its wall limit is a failure of the machine
_GRACE = 5.0  # seconds for a killed child to disappear before its process group is killed too
_KEPT_STDERR = 4096
_BATCH, _PAUSE = 1 << 14, 0.005  # bytes and seconds
_PIPE_BUFFERS = 16  # in a pipe: as many reads empty it
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
_SIZES = re.compile(rb"^(VmHWM|VmRSS|VmSwap|VmPTE):\s*(\d+) kB$", re.M)
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK


@dataclass(frozen=True, slots=True)
class Usage:
    """Of a process and its children: CPU seconds so far, peak bytes, and how many threads run or wait for a core."""

    cpu: float = 0.0
    memory: int = 0
    ready: int = 0


@dataclass(frozen=True, slots=True)
class ProcessHandle:
    """A process by file descriptors: by the time a number is used, it could belong to another process."""

    pidfd: int
    proc: int  # /proc/<pid>

    @classmethod
    def open(cls, pid: int, stack: ExitStack) -> "ProcessHandle":
        pidfd = os.pidfd_open(pid)
        stack.callback(os.close, pidfd)
        proc = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY)
        stack.callback(os.close, proc)
        return cls(pidfd, proc)

    def read(self, name: str) -> bytes:
        """A file of /proc/<pid>, as bytes: a program chooses its name. Empty once the process is gone."""
        try:
            with open(os.open(name, os.O_RDONLY, dir_fd=self.proc), "rb") as file:
                return file.read()
        except (FileNotFoundError, ProcessLookupError):
            return b""

    def threads(self) -> list[str]:
        """Its threads as folders below /proc/<pid>. The first thread may have ended: the others still run."""
        try:
            folder = os.open("task", os.O_RDONLY | os.O_DIRECTORY, dir_fd=self.proc)
        except (FileNotFoundError, ProcessLookupError):
            return []
        try:
            return [f"task/{name}" for name in os.listdir(folder)]
        except (FileNotFoundError, ProcessLookupError):
            return []
        finally:
            os.close(folder)

    def usage(self) -> Usage | None:
        """What it uses; `None` once it is gone. A thread that ends meanwhile is left out."""
        whole = _fields(self.read("stat"))
        if whole is None:
            return None
        memory, ready, children = 0, 0, []
        for thread in self.threads():
            children += self.read(f"{thread}/children").split()
            state = _fields(self.read(f"{thread}/stat"))
            ready += state is not None and state[0] == b"R"
            memory = memory or _memory(self.read(f"{thread}/status"))  # all threads share it
        usage = Usage((int(whole[11]) + int(whole[12])) / _CLOCK_TICKS, memory, ready)
        for child in children:
            with ExitStack() as stack, suppress(FileNotFoundError, ProcessLookupError):
                more = ProcessHandle.open(int(child), stack).usage() or Usage()
                usage = Usage(usage.cpu + more.cpu, usage.memory + more.memory, usage.ready + more.ready)
        return usage

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
    fds: list[int]  # seen by the command as FIRST_FD, FIRST_FD + 1, …
    cwd: str
    plain = False  # whether it runs in the namespaces of this process

    def begin(self, launcher: Launcher, command: int) -> Started | None:
        """Set the limits and let the program start; `None` if it cannot be started. `command` is a process."""
        raise NotImplementedError

    def check(self, program: ProcessHandle, memory: int) -> Ending | None:
        """Whether the program, which uses so much memory, exceeds a limit that only this kind of launch has."""
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

    plain = True

    def __init__(
        self, prefix: Sequence[str], files: Mapping[str, bytes], limits: ProgramLimits, stack: ExitStack
    ) -> None:
        self._limits, self._stack = limits, stack
        self.fds = [stack.enter_context(sealed(content)) for content in files.values()]
        self.command = [*prefix, *(f"/proc/self/fd/{FIRST_FD + i}" for i in range(len(self.fds)))]
        self.cwd = stack.enter_context(tempfile.TemporaryDirectory(prefix="agon-trusted-"))

    def begin(self, launcher: Launcher, command: int) -> Started:
        seconds = math.ceil(self._limits.cpu) + 1
        set_limits(command, {resource.RLIMIT_CPU: (seconds, seconds), resource.RLIMIT_CORE: (1, 1)})
        program = ProcessHandle.open(command, self._stack)
        return Started(program, program)


def supervise(launch: Launch, stdin: bytes, limits: ProgramLimits) -> RunResult:
    """Run to the end or to the first exceeded limit; afterwards no process is left."""
    try:
        return _supervise(launch, stdin, limits)
    except OutOfMemory:
        return RunResult("memory", 128 + signal.SIGKILL, b"", b"", 0.0, 0.0)


def _supervise(launch: Launch, stdin: bytes, limits: ProgramLimits) -> RunResult:
    with ExitStack() as stack:
        pipes = _Pipes(stack, limits.output)
        source = stack.enter_context(sealed(stdin))
        one = stack.enter_context(launcher(launch.plain))
        pid = one.start(launch.command, [source, *pipes.writers, *launch.fds], launch.cwd, limits.memory)
        exited = os.pidfd_open(pid)
        stack.callback(os.close, exited)
        started: Started | None = None
        run = _SupervisedRun(launch, pipes, limits)
        try:
            started = launch.begin(one, pid)
            if started is not None:
                run.wait(exited, started.program)
        finally:
            if started is not None:
                started.first.end()
                pipes.make_room()
            _wait(exited)
            collected = one.collect()
        pipes.drain()
        killed: Ending | None = "memory" if collected.out_of_memory else None
        ending = run.ending or pipes.over or killed
        if ending is None and (started is None or not launch.ran()):
            message = pipes.stderr.decode(errors="replace").strip() or f"it ended with code {collected.code}"
            raise SandboxError(f"{launch.command[0]} could not start the program: {message}")
        cpu = max(collected.cpu, run.cpu)
        ending = ending or ("timeout" if cpu > limits.cpu else "exited")
        return RunResult(ending, collected.code, bytes(pipes.stdout), bytes(pipes.stderr), cpu, run.wall)


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

    def read(self, reader: int) -> int:
        """Read what is available; the number of bytes."""
        try:
            chunk = os.read(reader, 1 << 18)
        except BlockingIOError:
            return 0
        if reader == self.readers[0]:
            self.stdout += chunk
        else:
            self.stderr = (self.stderr + chunk)[-_KEPT_STDERR:]
            self._noise += len(chunk)
        if len(self.stdout) > self._cap or self._noise > self._cap:
            self.over = "output_limit"
        return len(chunk)

    def make_room(self) -> None:
        """Empty both pipes after a program has ended: what is around it may have to report that, and must not wait."""
        self.drain()
        for reader in self.readers:
            with suppress(BlockingIOError):
                for _ in range(_PIPE_BUFFERS):  # beyond a limit; nobody needs it
                    os.read(reader, 1 << 18)

    def drain(self) -> None:
        for reader in self.readers:
            while not self.over and self.read(reader):
                pass


class _SupervisedRun:
    """What a program has used, how long it took, and which limit it exceeded, if any."""

    def __init__(self, launch: Launch, pipes: _Pipes, limits: ProgramLimits) -> None:
        self._launch, self._pipes, self._limits = launch, pipes, limits
        self.wall = 0.0
        self.cpu = 0.0  # at the last check: nobody collects what a program has used that is killed in its sandbox
        self.ending: Ending | None = None
        self._queued = 0.0

    def wait(self, exited: int, program: ProcessHandle) -> None:
        """Read output until the command has ended (`exited` is its pidfd) or the program exceeds a limit."""
        self._began = self._checked = time.monotonic()
        poll, end = select.poll(), select.poll()
        for descriptor in (*self._pipes.readers, exited):
            poll.register(descriptor, select.POLLIN)
        end.register(exited, select.POLLIN)
        next_check, running = self._began + TICK, True
        while running and self.ending is None:
            batch = 0
            for descriptor, _ in poll.poll(max(0.0, (next_check - time.monotonic()) * 1000)):
                if descriptor == exited:
                    running = False
                else:
                    batch += self._pipes.read(descriptor)
            if running and 0 < batch < _BATCH:
                running = not end.poll(_PAUSE * 1000)
            self.ending = self._pipes.over
            self.wall = time.monotonic() - self._began - self._queued
            if running and time.monotonic() >= next_check:
                next_check = time.monotonic() + TICK
                self._check(program)

    def _check(self, program: ProcessHandle) -> None:
        usage = program.usage() or Usage()
        now = time.monotonic()
        if usage.ready:
            self._queued += (now - self._checked) * (1 - fair_share(usage.ready))
        self._checked, elapsed = now, now - self._began
        self.wall = elapsed - self._queued
        self.cpu = max(self.cpu, usage.cpu)
        if usage.cpu > self._limits.cpu or self.wall > self._limits.wall:
            self.ending = "timeout"
        elif usage.memory > self._limits.memory:
            self.ending = "memory"
        else:
            self.ending = self.ending or self._launch.check(program, usage.memory)
        starved = self.ending is None and elapsed > _STARVED * self._limits.wall
        if starved or (self.ending == "timeout" and self._launch.waiting(program)):
            raise SandboxError(f"a program had too little CPU time to run in {elapsed:.0f} s: the machine is too busy")


def fair_share(own: int) -> float:
    """The part of a core that a program with `own` ready threads gets now if the other ready threads leave no more.

    A program's own waiting is not measured: by sleeping for an instant again and again it could wait for a core as
    often as it likes, and so hold its slot. What the other threads of the machine leave is not in its hands.
    """
    with open("/proc/loadavg", "rb") as file:
        ready = int(file.read().split()[3].partition(b"/")[0])
    others = max(0, ready - own - 1)  # this thread, which reads the number, is counted too
    return min(1.0, len(os.sched_getaffinity(0)) / (others + 1))


def _fields(stat: bytes) -> list[bytes] | None:
    """The fields of a `stat` file after the name, which may contain anything; `None` if there are none."""
    return stat.rpartition(b")")[2].split() or None


def _memory(status: bytes) -> int:
    """Peak resident memory, or what is resident and swapped now, and page tables; 0 without memory of its own."""
    sizes = {key: int(value) for key, value in _SIZES.findall(status)}
    if b"VmHWM" not in sizes:
        return 0
    return 1024 * (max(sizes[b"VmHWM"], sizes[b"VmRSS"] + sizes[b"VmSwap"]) + sizes[b"VmPTE"])


def _wait(pidfd: int) -> bool:
    """Wait for the end of a process; false if it takes too long."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(_GRACE * 1000))
