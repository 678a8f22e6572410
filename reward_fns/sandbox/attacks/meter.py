"""What programs really use, measured from outside every few milliseconds; nothing that a program says is believed.

A judge's descendants are those by parentage. The program is what lives in the innermost process namespace; the others
set the sandbox up. Memory is that of the control group which the judge made for the program, or else of a group around
the judge where one can be made (as root), less the judge's own: the kernel counts there what no process shows, such as
pages that only a pipe holds. Without groups it is the resident memory, the page tables and the /tmp of the processes.
"""

import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

_PAUSE = 0.004  # seconds between two looks, at least
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_GONE = (FileNotFoundError, ProcessLookupError, PermissionError, NotADirectoryError)


@dataclass
class RunUse:
    """The peaks of one run of a program: everything in one process namespace, which is `depth` namespaces deep."""

    depth: int
    began: float  # when the program's process was there
    ended: float = 0.0
    cpu_by_process: dict[int, float] = field(default_factory=dict)
    tasks: int = 0
    processes: int = 0
    open_files: int = 0
    disk: int = 0
    inodes: int = 0
    file_size: int = 0
    written: int = 0
    memory: int = 0
    load: float = 0.0  # mean of the machine's runnable tasks per core
    looks: int = 0
    over_memory: float = 0.0  # seconds above the trace's mark
    program: set[int] = field(default_factory=set)
    group: "MemoryGroup | None" = None  # of its own

    @property
    def cpu(self) -> float:
        return sum(self.cpu_by_process.values())

    @property
    def wall(self) -> float:
        return self.ended - self.began


@dataclass
class Trace:
    """One judge while it judges one completion. `mark` is the memory above which time is counted."""

    pid: int
    mark: int
    group: "MemoryGroup | None"
    runs: dict[int, RunUse] = field(default_factory=dict)
    base: int = 0
    judge_cpu: float = 0.0
    judge_memory: int = 0
    first_judge_cpu: float = 0.0
    first_judge_memory: int = 0
    last_look: float = 0.0
    first_stolen: list[int] = field(default_factory=list)
    stolen: float = 0.0  # seconds for which a virtual machine's host kept a core for itself, of the core with the most

    def programs(self) -> list[RunUse]:
        """The runs of programs, in order: a sandbox may pass through another namespace while it is set up."""
        deepest = max((run.depth for run in self.runs.values()), default=0)
        return [run for run in self.runs.values() if run.depth == deepest]


class MemoryGroup:
    """A memory control group without a limit around a judge and all that it starts."""

    def __init__(self, folder: Path, usage: str) -> None:
        self.folder, self._usage = folder, folder / usage

    @classmethod
    def make(cls, name: str) -> "MemoryGroup | None":
        """`None` where this user may not make one."""
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if "memory" in controllers.split(","):
                parents, usage = [Path(f"/sys/fs/cgroup/memory{path}")], "memory.usage_in_bytes"
            elif not controllers:  # version 2: a group with processes has no groups with limits, except the first
                parents, usage = [Path(f"/sys/fs/cgroup{path}").parent, Path("/sys/fs/cgroup")], "memory.current"
            else:
                continue
            for parent in parents:
                folder = parent / name
                with suppress(OSError):
                    folder.mkdir()
                    if (folder / usage).exists() and os.access(folder / "cgroup.procs", os.W_OK):
                        return cls(folder, usage)
                    folder.rmdir()
        return None

    @classmethod
    def made_for(cls, pid: int) -> "MemoryGroup | None":
        """The group that a judge has put a program into, if it is not also the judge's."""
        for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if Path(path).name.startswith("agon-verl-"):
                usage = "memory.current" if not controllers else "memory.usage_in_bytes"
                for mounted in ("/sys/fs/cgroup/memory", "/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
                    if os.path.exists(f"{mounted}{path}/{usage}"):
                        return cls(Path(mounted + path), usage)
        return None

    def add(self, pid: int) -> None:
        (self.folder / "cgroup.procs").write_text(str(pid))

    def usage(self) -> int:
        return int(self._usage.read_text())

    def remove(self) -> None:
        """Once its processes have gone; groups that a judge made in it go first."""
        for _ in range(50):
            try:
                for below in sorted(self.folder.glob("**/"), reverse=True):
                    below.rmdir()
                return
            except OSError:
                time.sleep(0.1)


class Meter(threading.Thread):
    """Looks at every traced judge in turn."""

    def __init__(self) -> None:
        super().__init__(daemon=True, name="meter")
        self._traces: list[Trace] = []
        self._lock = threading.Lock()
        self._finished = threading.Event()
        self._depth: dict[tuple[int, bytes], int] = {}
        self._tmp = os.stat("/tmp").st_dev
        self._cores = len(os.sched_getaffinity(0))

    def begin(self, pid: int, mark: int, group: MemoryGroup | None) -> Trace:
        trace = Trace(pid, mark, group)
        trace.first_judge_cpu, trace.first_judge_memory = _judge_use(pid)
        trace.base = group.usage() - trace.first_judge_memory if group else 0
        trace.first_stolen = _stolen()
        with self._lock:
            self._traces.append(trace)
        return trace

    def end(self, trace: Trace) -> None:
        stolen = [now - first for now, first in zip(_stolen(), trace.first_stolen, strict=False)]
        trace.stolen = max(stolen, default=0) / _TICKS
        with self._lock:
            self._traces.remove(trace)
            with suppress(*_GONE):
                cpu, _ = _judge_use(trace.pid)
                trace.judge_cpu = max(trace.judge_cpu, cpu - trace.first_judge_cpu)

    def stop(self) -> None:
        self._finished.set()
        self.join()

    def run(self) -> None:
        pause = _PAUSE
        while not self._finished.wait(pause):
            began = time.monotonic()
            with self._lock:
                for trace in self._traces:
                    with suppress(*_GONE):
                        self._look(trace)
            pause = max(_PAUSE, time.monotonic() - began)  # at most half of a core

    def _look(self, trace: Trace) -> None:
        now = time.monotonic()
        since, trace.last_look = now - (trace.last_look or now), now
        cpu, judge_memory = _judge_use(trace.pid)
        trace.judge_cpu = cpu - trace.first_judge_cpu
        trace.judge_memory = max(trace.judge_memory, judge_memory - trace.first_judge_memory)
        with open("/proc/loadavg") as file:
            runnable = int(file.read().split()[3].partition("/")[0])
        depths = {pid: self._depth_of(pid) for pid in descendants(trace.pid)[1:]}
        deepest = max(depths.values(), default=0)
        if deepest <= _OWN_DEPTH:
            return
        program = {pid for pid, depth in depths.items() if depth == deepest}
        run = next((run for run in trace.runs.values() if run.program & program), None)
        if run is None:
            run = trace.runs[min(program)] = RunUse(deepest, now, group=MemoryGroup.made_for(min(program)))
        run.program |= program
        run.ended = now
        run.looks += 1
        run.load += (max(runnable - 1, 1) / self._cores - run.load) / run.looks
        in_tmp, inodes = self._look_at_run(run, program)
        run.inodes = max(run.inodes, inodes)
        if run.group is not None:
            used = run.group.usage()
        elif trace.group is not None:
            used = trace.group.usage() - judge_memory - trace.base
        else:
            used = sum(map(_resident, program)) + in_tmp
        run.memory = max(run.memory, used)
        run.over_memory += since if used > trace.mark else 0.0

    def _look_at_run(self, use: RunUse, program: set[int]) -> tuple[int, int]:
        tasks = 0
        for pid in program:
            with suppress(*_GONE):
                fields = _stat(pid)
                tasks += int(fields[17])
                use.cpu_by_process[pid] = (int(fields[11]) + int(fields[12])) / _TICKS
                with open(f"/proc/{pid}/io") as file:
                    use.written = max(use.written, int(file.read().split()[3]))
                use.open_files = max(use.open_files, len(os.listdir(f"/proc/{pid}/fd")))
        use.tasks, use.processes = max(use.tasks, tasks), max(use.processes, len(program))
        return self._tmp_of(use, program)

    def _tmp_of(self, use: RunUse, program: set[int]) -> tuple[int, int]:
        """The bytes and the files in the program's own /tmp; the largest size of a file is noted."""
        for pid in program:
            for thread in _threads(pid)[-1:]:
                with suppress(OSError):
                    space = own_space(f"/proc/{pid}/task/{thread}/root/tmp", self._tmp)
                    if space is None:
                        continue
                    use.disk, use.file_size = max(use.disk, space.used), max(use.file_size, space.largest)
                    return space.used, space.inodes
        return 0, 0

    def _depth_of(self, pid: int) -> int:
        """In how many process namespaces a process lives."""
        with suppress(*_GONE):
            key = (pid, _stat(pid)[19])
            if key not in self._depth:
                self._depth[key] = _depth(pid)
            return self._depth[key]
        return 0


@dataclass(frozen=True, slots=True)
class FolderSpace:
    """Bytes and inodes in use in a file system, and the largest of a few files in a folder of it."""

    used: int
    inodes: int
    largest: int


def own_space(path: str, host: int) -> FolderSpace | None:
    """Of a sandbox's folder; `None` if it is on device `host`, as before the sandbox's root is in place.

    It is opened once: while bubblewrap changes the root, one path leads to its file system, then to the host's.
    """
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if os.fstat(folder).st_dev == host:
            return None
        space = os.statvfs(folder)
        with os.scandir(folder) as entries:
            sizes = [entry.stat(follow_symlinks=False).st_size for _, entry in zip(range(16), entries, strict=False)]
        used = (space.f_blocks - space.f_bfree) * space.f_frsize
        return FolderSpace(used, space.f_files - space.f_ffree, max(sizes, default=0))
    finally:
        os.close(folder)


def children(pid: int) -> list[int]:
    """Of all its threads; zombies are among them."""
    pids: list[int] = []
    for thread in _threads(pid):
        with suppress(*_GONE), open(f"/proc/{pid}/task/{thread}/children") as file:
            pids += map(int, file.read().split())
    return pids


def descendants(pid: int) -> list[int]:
    """`pid` and everything below it."""
    found = [pid]
    for one in found:
        if len(found) < 1000:
            found += children(one)
    return found


def is_zombie(pid: int) -> bool:
    try:
        return _stat(pid)[0] == b"Z"
    except _GONE:
        return True


def _threads(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")
    except _GONE:
        return []


def _stat(pid: int) -> list[bytes]:
    """The fields after the name, which the program chooses."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()


def _stolen() -> list[int]:
    """Per core, the ticks that a virtual machine's host kept for itself since the start ("steal" in proc_stat(5))."""
    with open("/proc/stat") as file:
        return [int(line.split()[8]) for line in file if line.startswith("cpu") and line[3].isdigit()]


def _judge_use(pid: int) -> tuple[float, int]:
    """CPU seconds and the bytes that no other process shares."""
    fields = _stat(pid)
    with open(f"/proc/{pid}/statm") as file:
        _, resident, shared, *_ = map(int, file.read().split())
    return (int(fields[11]) + int(fields[12])) / _TICKS, (resident - shared) * _PAGE


def _resident(pid: int) -> int:
    """Resident bytes and page tables, read from a thread that lives: the first one may be gone."""
    for thread in reversed(_threads(pid)):
        with suppress(*_GONE), open(f"/proc/{pid}/task/{thread}/status", "rb") as file:
            sizes = dict(line.split(b":", 1) for line in file.read().split(b"\n") if line.startswith(b"Vm"))
            if b"VmRSS" in sizes:
                return sum(int(sizes[name].split()[0]) for name in (b"VmRSS", b"VmPTE")) * 1024
    return 0


def _depth(pid: int) -> int:
    with open(f"/proc/{pid}/status", "rb") as file:
        return len(file.read().partition(b"\nNSpid:")[2].partition(b"\n")[0].split())


_OWN_DEPTH = _depth(os.getpid())
