"""Memory groups (cgroups): the kernel itself keeps a memory limit, over everything that a program makes it store.

The watch in process.py sees what is resident in a process, every 50 ms. A group also counts pages in pipes and sockets,
files in memory, page tables and other kernel memory, and refuses the page that would exceed the limit: the kernel then
kills the program.

In version 1 of the interface a group is made below the judge's own, wherever that is writable (root), so whatever
limits the judge also limits its programs. In version 2 a group with processes has
no groups below it that limit memory, so ours is made below the nearest ancestor that already limits memory and that we
may write to: under systemd that is the slice of a scope or service, for root and for `systemd-run --user --scope`.
Limits of the judge's own scope or service then do not hold for its programs: set them on the slice.
"""

import errno
import os
import re
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_MOUNT = re.compile(r"^\S+ \S+ \S+ (\S+) (\S+) .* - (cgroup2?) \S+ (\S+)$", re.M)

_GRACE = 5.0  # seconds for killed processes to disappear


@dataclass(frozen=True, slots=True)
class CgroupInterface:
    """The files of one version."""

    version: int
    limit: str
    swap: str
    usage: str
    events: str


VERSION_1 = CgroupInterface(1, "memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.usage_in_bytes",
                             "memory.oom_control")  # fmt: skip
VERSION_2 = CgroupInterface(2, "memory.max", "memory.swap.max", "memory.current", "memory.events")


@dataclass(frozen=True, slots=True)
class CgroupPlace:
    """Where groups can be made (`parent`), and the group that this process is in (`home`)."""

    interface: CgroupInterface
    parent: Path
    home: Path


def find_cgroups(mounts: str, own: str) -> CgroupPlace | None:
    """The place for groups, from /proc/self/mountinfo and /proc/self/cgroup; `None` if there is none."""
    paths = {names: path for _, names, path in (line.split(":", 2) for line in own.splitlines())}
    for root, mounted, kind, options in _MOUNT.findall(mounts):
        controllers = "" if kind == "cgroup2" else "memory"
        path = paths.get(controllers)
        if path is None or (controllers and controllers not in options.split(",")):
            continue
        if os.path.commonpath([root, path]) != root:
            continue  # mounted by another container
        home = Path(mounted) / os.path.relpath(path, root)
        if kind == "cgroup" and _writable(home):
            return CgroupPlace(VERSION_1, home, home)
        if kind == "cgroup2":
            for folder in (home, *home.parents):
                if not folder.is_relative_to(mounted):
                    break
                if "memory" in _read(folder / "cgroup.subtree_control").split() and _writable(folder):
                    return CgroupPlace(VERSION_2, folder, home)
    return None


class MemoryCgroup:
    """One group: its limit can be changed for every run, and it counts the processes that the kernel killed."""

    def __init__(self, place: CgroupPlace, name: str) -> None:
        self.home, self.folder, self._interface = place.home, place.parent / name, place.interface
        self.folder.mkdir()

    @property
    def version(self) -> int:
        return self._interface.version

    def add(self, pid: int) -> None:
        (self.folder / "cgroup.procs").write_text(str(pid))

    def limit(self, size: int) -> None:
        """Without swap. Version 1 limits memory and swap together, and never less than memory alone."""
        limit, swap = self.folder / self._interface.limit, self.folder / self._interface.swap
        if self._interface.version == 1 and swap.exists():
            swap.write_text("-1")
        limit.write_text(str(size))
        if swap.exists():
            swap.write_text(str(size if self._interface.version == 1 else 0))

    def remove(self) -> None:
        """End what is left in it, and remove it; a launcher that has ended by itself has done so already."""
        deadline = time.monotonic() + _GRACE
        while time.monotonic() < deadline:
            for pid in map(int, _read(self.folder / "cgroup.procs").split()):
                if pid:  # 0 is a process that cannot be seen from here, and to `kill` our own process group
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            try:
                self.folder.rmdir()
            except FileNotFoundError:
                return
            except OSError:  # the last process is still ending
                time.sleep(0.01)

    def residue(self) -> int:
        """Bytes in use that the kernel cannot drop at once, as it can the pages of files that were read."""
        used = int((self.folder / self._interface.usage).read_text())
        stat = dict(map(str.split, (self.folder / "memory.stat").read_text().splitlines()))
        return used - int(stat["active_file"]) - int(stat["inactive_file"])

    def kills(self) -> int:
        """0 if the group is gone: a launcher that ends by itself removes it."""
        try:
            events = (self.folder / self._interface.events).read_text()
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENODEV):
                return 0
            raise
        return int(dict(map(str.split, events.splitlines()))["oom_kill"])


def _writable(folder: Path) -> bool:
    return os.access(folder, os.W_OK) and os.access(folder / "cgroup.procs", os.W_OK)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
