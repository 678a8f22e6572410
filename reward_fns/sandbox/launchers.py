"""The launchers of this process (launcher.py): one for each program that runs, reused for the next one."""

import atexit
import itertools
import json
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reward_fns.sandbox import MB, SandboxError
from reward_fns.sandbox.cgroup import CgroupPlace, MemoryCgroup, find_cgroups

_SCRIPT = Path(__file__).with_name("launcher.py")
_GRACE = 5.0  # seconds for a launcher to end
# Bytes in a memory group between two programs: the launcher's own, and what the kernel counts ahead for each core. More
# is left from the last program, as the kernel frees some memory late, and would count for the next one.
_RESIDUE = 8 * MB
_log = logging.getLogger(__name__)
_numbers = itertools.count()
_lock = threading.Lock()
_idle: list["Launcher"] = []
_place: list[CgroupPlace | None] = []  # once searched: where memory groups can be made, if anywhere


@dataclass(frozen=True, slots=True)
class CollectedCommand:
    """Its exit code (128 + n after signal n), CPU time, and whether the kernel killed it for its memory."""

    code: int
    cpu: float
    out_of_memory: bool


class OutOfMemory(SandboxError):
    """A program used all memory of its group, and the kernel killed the launcher too."""


class Launcher:
    """Runs one command at a time, in a memory group if there is one. A `plain` one has no namespaces of its own."""

    def __init__(self, group: MemoryCgroup | None, plain: bool) -> None:
        self._group, self._pid, self.plain = group, 0, plain
        self._limit, self._kills = 0, 0  # of the group, so far
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        arguments = [str(theirs.fileno()), str(os.getpid()), "plain" if plain else "sandboxes"]
        if group is not None:
            arguments += [str(group.folder), str(group.home)]
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_SCRIPT), *arguments], pass_fds=[theirs.fileno()], env={}, cwd="/",
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        try:
            self._receive()  # before it counts: its own memory stays outside of the group
            if group is not None:
                group.add(self._process.pid)
        except BaseException:
            self.close()
            raise

    @property
    def idle(self) -> bool:
        return self._pid == 0

    @property
    def usable(self) -> bool:
        """Whether it lives, and its group has nothing of the last program."""
        return self._process.poll() is None and (self._group is None or self._group.residue() <= _RESIDUE)

    @property
    def group(self) -> MemoryCgroup | None:
        return self._group

    def start(self, command: Sequence[str], descriptors: Sequence[int], cwd: str, memory: int) -> int:
        """Start a command, which sees the descriptors as 0, 1, 2, …; returns its process."""
        if self._group is not None and memory != self._limit:
            try:
                self._group.limit(memory)
            except OSError as error:
                raise SandboxError(f"the memory limit of {self._group.folder} cannot be set: {error}") from error
            self._limit = memory
        self._pid = -1
        answer = self._ask({"command": command, "cwd": cwd}, descriptors)
        if "error" in answer:
            self._pid = 0
            raise SandboxError(f"{command[0]} could not be started: {answer['error']}")
        self._pid = answer["pid"]
        return self._pid

    def limit_inodes(self, pid: int, folder: str, size: int, inodes: int) -> bool:
        """Let the kernel limit the files of a sandbox in which process `pid` waits; false if this machine refuses."""
        return bool(self._ask({"pid": pid, "folder": folder, "size": size, "inodes": inodes})["limited"])

    def collect(self) -> CollectedCommand:
        """How the command has ended; nothing of it is left."""
        answer = self._ask({"pid": self._pid})
        before = self._kills
        self._kills = self._group.kills() if self._group is not None else 0
        self._pid = 0
        code = os.waitstatus_to_exitcode(answer["status"])
        return CollectedCommand(code if code >= 0 else 128 - code, answer["cpu"], self._kills > before)

    def close(self) -> None:
        """End it, and what it has started, and its group."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)  # forked processes have copies of it
        self._connection.close()
        try:
            self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._group is not None:
            self._group.remove()

    def _ask(self, request: dict[str, Any], descriptors: Sequence[int] = ()) -> dict[str, Any]:
        try:
            socket.send_fds(self._connection, [json.dumps(request).encode()], descriptors)
        except ConnectionError as error:
            raise self._ended() from error
        return json.loads(self._receive())

    def _receive(self) -> bytes:
        try:
            message = self._connection.recv(1 << 18)
        except ConnectionError:
            message = b""
        if not message:
            raise self._ended()
        return message

    def _ended(self) -> SandboxError:
        if self._group is not None and self._group.kills() > self._kills:
            return OutOfMemory(f"the kernel ended the launcher of programs: no memory is left in {self._group.folder}")
        return SandboxError(f"the launcher of programs has ended: {sys.executable} {_SCRIPT}")


@contextmanager
def launcher(plain: bool = False) -> Iterator[Launcher]:
    """A launcher that nobody else uses meanwhile. One that is still busy afterwards is ended."""
    one = None
    while one is None:
        with _lock:  # not while one starts or ends: others wait for it
            one = next((idle for idle in reversed(_idle) if idle.plain == plain), None)
            if one is not None:
                _idle.remove(one)
        if one is None:
            one = _make(plain)
        elif not one.usable:
            one.close()
            one = None
    try:
        yield one
    finally:
        if one.idle:
            with _lock:
                _idle.append(one)
        else:
            one.close()


def end_launchers() -> None:
    """End those that are idle."""
    with _lock:
        while _idle:
            _idle.pop().close()


def memory_keeper() -> str:
    """Who keeps the memory limit on this machine, in words."""
    with launcher() as one:
        group = one.group
    if group is None:
        return "this process, which checks every 50 ms (no memory cgroup can be made)"
    return f"the kernel, by cgroups of version {group.version} in {group.folder.parent}"


def _make(plain: bool) -> Launcher:
    if not _place:
        _place.append(find_cgroups(Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text()))
    if _place[0] is None:
        return Launcher(None, plain)
    try:
        return Launcher(MemoryCgroup(_place[0], f"agon-verl-{os.getpid()}-{next(_numbers)}"), plain)
    except OSError as error:
        _log.warning("no memory cgroup can be used in %s, so memory is only watched: %s", _place[0].parent, error)
        _place[0] = None
        return Launcher(None, plain)


def _after_fork() -> None:
    """A forked process has none of its own; those of its parent stay the parent's."""
    global _lock
    _lock = threading.Lock()
    _of_parent.extend(_idle)
    _idle.clear()


_of_parent: list[Launcher] = []
atexit.register(end_launchers)
os.register_at_fork(after_in_child=_after_fork)
