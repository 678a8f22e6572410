"""Starts the programs of one judge, one at a time, and ends them if the judge is gone.

It is a process of its own for two reasons. A program inherits the launcher's memory group: moving every program into
one would take 10 ms, as long as everything else in its start. And a judge that is killed while it starts a program
cannot end it: bubblewrap sets the parent-death signal only after its set-up, and by then the parent may be gone. The
launcher inherits such orphans (it is their subreaper) and ends them.

It also lets the kernel limit the files of a sandbox, which bubblewrap cannot. That takes rights over the sandbox's user
namespace. Root has them. An ordinary user's launcher makes itself a user and a mount namespace at its start: sandboxes
are then made below them, and the kernel gives it rights over everything below. Bubblewrap gets none of them: they end
when another file is executed. Where the machine refuses these namespaces (it may allow them to bubblewrap only), a
process is forked for every program, which enters its sandbox: 2 ms more.

When memory is short in its group the kernel chooses a program first, and with root's rights never the launcher.

This file is started as it is and imports only the standard library. It takes a message with descriptors to start a
command, which sees them as 0, 1, 2, …, and a message without to limit its files or to collect it.

    python3 launcher.py SOCKET JUDGE KIND [GROUP HOME]

KIND is `sandboxes`, or `plain` for programs that must see the machine as it is.
"""

import ctypes
import fcntl
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

SUBREAPER = 36  # prctl: orphans become children of this process
FSCONFIG, FSPICK = 431, 433  # system calls, with the same numbers on all architectures
AT_FDCWD = -100
EMPTY_PATH, SET_STRING, RECONFIGURE = 8, 1, 7  # of fspick; of fsconfig
USER_AND_MOUNTS = 0x10000000 | 0x00020000  # namespaces that are made or entered
SANDBOX_IS_MADE = 5.0  # seconds after which a sandbox has its own file systems
FIRST_OWN = 64  # below are the descriptors of commands
MESSAGE = 1 << 16  # bytes at most
LIBC = ctypes.CDLL(None)


def main(judge_socket: int, judge: int, kind: str, group: str = "", home: str = "") -> None:
    connection = socket.socket(fileno=judge_socket)
    connection.set_inheritable(False)
    if kind == "sandboxes" and os.geteuid() != 0 and in_child(make_namespaces):  # which cannot be left again
        make_namespaces()
    if LIBC.prctl(SUBREAPER, 1, 0, 0, 0):
        sys.exit("orphans cannot be inherited")
    with suppress(PermissionError):  # root may, unless a container has taken this right
        Path("/proc/self/oom_score_adj").write_text("-1000")
    try:
        gone = os.pidfd_open(judge)
        if os.getppid() == judge:  # else it was gone before, and its number may be another process's
            serve(connection, gone)
    except (ProcessLookupError, ConnectionError):
        pass  # the judge is gone
    finally:
        end_children()
        if group:
            (Path(home) / "cgroup.procs").write_text(str(os.getpid()))
            os.rmdir(group)


def serve(connection: socket.socket, gone: int) -> None:
    """Until the judge closes the connection or ends: others may have inherited its side of the connection."""
    connection.send(b"ready")
    poll = select.poll()
    for descriptor in (connection.fileno(), gone):
        poll.register(descriptor, select.POLLIN)
    while gone not in dict(poll.poll()):
        message, descriptors, _, _ = socket.recv_fds(connection, MESSAGE, FIRST_OWN)
        if not message:
            return
        request = json.loads(message)
        if descriptors:
            answer = start(descriptors, **request)
        else:
            answer = limit_inodes(**request) if "inodes" in request else collect(**request)
        connection.send(json.dumps(answer).encode())


def start(descriptors: list[int], command: list[str], cwd: str) -> dict[str, Any]:
    """Start a command in a session of its own, as the first to be killed when memory is short."""
    moved = []
    for descriptor in descriptors:
        moved.append(fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, FIRST_OWN))
        os.close(descriptor)
    actions = [(os.POSIX_SPAWN_DUP2, descriptor, number) for number, descriptor in enumerate(moved)]
    victim = open("/proc/self/oom_score_adj", "r+b", buffering=0)
    usual = victim.read()
    victim.write(b"1000")
    try:
        os.chdir(cwd)
        signals = [signal.SIGPIPE, signal.SIGXFSZ]  # which Python ignores
        pid = os.posix_spawn(command[0], command, {}, file_actions=actions, setsid=True, setsigdef=signals)
        return {"pid": pid}
    except OSError as error:
        return {"error": str(error)}
    finally:
        os.chdir("/")
        victim.write(usual)
        victim.close()
        for descriptor in moved:
            os.close(descriptor)


def limit_inodes(pid: int, folder: str, size: int, inodes: int) -> dict[str, Any]:
    """Limit the files in a sandbox's own file system, once it is there: not the host's, and the one of that size."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return {"limited": False}  # bubblewrap has ended, and it with it
    try:
        ended = select.poll()
        ended.register(process, select.POLLIN)
        deadline = time.monotonic() + SANDBOX_IS_MADE
        while time.monotonic() < deadline and not ended.poll(1):
            try:
                place = os.open(f"/proc/{pid}/root{folder}", os.O_PATH | os.O_DIRECTORY)
            except OSError:
                continue  # not there yet
            try:
                space = os.statvfs(place)
                own = os.fstat(place).st_dev != os.stat(folder).st_dev
                if own and space.f_blocks * space.f_frsize == size:
                    return {"limited": reconfigure(place, inodes) or inside(process, place, inodes)}
            finally:
                os.close(place)
        return {"limited": False}
    finally:
        os.close(process)


def reconfigure(place: int, inodes: int) -> bool:
    """Change a mounted tmpfs; false if the kernel refuses."""
    context = LIBC.syscall(FSPICK, place, b"", EMPTY_PATH)
    if context < 0:
        return False
    try:
        if LIBC.syscall(FSCONFIG, context, SET_STRING, b"nr_inodes", str(inodes).encode(), 0):
            return False
        return LIBC.syscall(FSCONFIG, context, RECONFIGURE, None, None, 0) == 0
    finally:
        os.close(context)


def inside(process: int, place: int, inodes: int) -> bool:
    """The same from inside the sandbox's namespaces, where an ordinary user may: nobody can leave them again."""
    return in_child(lambda: LIBC.setns(process, USER_AND_MOUNTS) == 0 and reconfigure(place, inodes))


def make_namespaces() -> bool:
    """Make a user and a mount namespace with the same users and mounts; whether this gives rights over mounts."""
    user, group = os.geteuid(), os.getegid()
    if LIBC.unshare(USER_AND_MOUNTS):
        return False
    Path("/proc/self/setgroups").write_text("deny")  # the kernel asks for this before it takes a map of groups
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    context = LIBC.syscall(FSPICK, AT_FDCWD, b"/", 0)
    if context < 0:
        return False
    os.close(context)
    return True


def in_child(act: Callable[[], bool]) -> bool:
    """What a forked process returns; false if it fails."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if act() else 1)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def collect(pid: int) -> dict[str, Any]:
    """The command's status and CPU time, when it has ended; the rest of its session is ended too."""
    os.killpg(pid, signal.SIGKILL)  # before wait4, which frees the number for others
    _, status, usage = os.wait4(pid, 0)
    end_children()
    return {"status": status, "cpu": usage.ru_utime + usage.ru_stime}


def end_children() -> None:
    """End all children, and what becomes a child when its parent has ended."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0]:
                continue
            for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
                os.kill(int(pid), signal.SIGKILL)
            os.wait()
        except ChildProcessError:
            return


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
