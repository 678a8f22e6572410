"""Starts the programs of one judge, one at a time, and ends them if the judge is gone.

It is a process of its own for two reasons. A program inherits the launcher's memory group: moving every program into
one would take 10 ms, as long as everything else in its start. And a judge that is killed while it starts a program
cannot end it: bubblewrap sets the parent-death signal only after its set-up, and by then the parent may be gone. The
launcher inherits such orphans (it is their subreaper) and ends them.

This file is started as it is and imports only the standard library. It takes a message with descriptors to start a
command, which sees them as 0, 1, 2, …, and a message without to collect it.

    python3 launcher.py SOCKET JUDGE [GROUP HOME]
"""

import ctypes
import fcntl
import json
import os
import select
import signal
import socket
import sys
from pathlib import Path
from typing import Any

SUBREAPER = 36  # prctl: orphans become children of this process
FIRST_OWN = 64  # below are the descriptors of commands


def main(judge_socket: int, judge: int, group: str = "", home: str = "") -> None:
    connection = socket.socket(fileno=judge_socket)
    connection.set_inheritable(False)
    if ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0):
        sys.exit("orphans cannot be inherited")
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
        message, descriptors, _, _ = socket.recv_fds(connection, 1 << 18, FIRST_OWN)
        if not message:
            return
        request = json.loads(message)
        answer = start(descriptors, **request) if descriptors else collect(**request)
        connection.send(json.dumps(answer).encode())


def start(descriptors: list[int], command: list[str], cwd: str) -> dict[str, Any]:
    """Start a command in a session of its own, as the first to be killed when memory is short."""
    moved = []
    for descriptor in descriptors:
        moved.append(fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, FIRST_OWN))
        os.close(descriptor)
    actions = [(os.POSIX_SPAWN_DUP2, descriptor, number) for number, descriptor in enumerate(moved)]
    victim = Path("/proc/self/oom_score_adj")
    usual = victim.read_text()
    victim.write_text("1000")
    try:
        os.chdir(cwd)
        signals = [signal.SIGPIPE, signal.SIGXFSZ]  # which Python ignores
        pid = os.posix_spawn(command[0], command, {}, file_actions=actions, setsid=True, setsigdef=signals)
        return {"pid": pid}
    except OSError as error:
        return {"error": str(error)}
    finally:
        os.chdir("/")
        victim.write_text(usual)
        for descriptor in moved:
            os.close(descriptor)


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
