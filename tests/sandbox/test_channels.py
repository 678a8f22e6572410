"""Programs that run side by side share read-only files: none of the ways to talk through them works.

Each program does alone what the two sides of a channel would do, and prints what the second sees of the first.
"""

import asyncio
import fcntl
import os
import socket

import pytest

from reward_fns.sandbox import MB, Job, Program, ProgramLimits
from reward_fns.sandbox.bwrap import SIGNALS
from reward_fns.sandbox.local import LocalSandbox

pytestmark = pytest.mark.usefixtures("isolated")

LIMITS = ProgramLimits(cpu=5.0, memory=128 * MB, output=MB)
BEFORE = r"""
import ctypes, errno, fcntl, os, signal, socket, struct
libc = ctypes.CDLL(None, use_errno=True)
SHARED = os.__file__
one, two = open(SHARED, "rb"), open(SHARED, "rb")
def refused(call, *arguments):
    try:
        return f"returned {call(*arguments)}"
    except OSError as error:
        return errno.errorcode[error.errno]
def raw(x86_64, aarch64, *arguments):
    result = libc.syscall(x86_64 if os.uname().machine == "x86_64" else aarch64, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return result
def lock(kind):
    return struct.pack("hhqqi4x", kind, os.SEEK_SET, 0, 0, 0)
def conflict(command):  # whether a lock for writing would conflict with another one
    return struct.unpack("hhqqi4x", fcntl.fcntl(two, command, lock(fcntl.F_WRLCK)))[0] != fcntl.F_UNLCK
"""
CHANNELS = {
    "flock": ("fcntl.flock(one, 2)\nprint(refused(fcntl.flock, two, 2 | fcntl.LOCK_NB))", "returned None"),
    "locks of open files": ("fcntl.fcntl(one, 37, lock(fcntl.F_RDLCK))\nprint(conflict(36))", "False"),
    "locks that wait": ("fcntl.fcntl(one, 38, lock(fcntl.F_RDLCK))\nprint(conflict(36))", "False"),
    "locks of processes": ("fcntl.lockf(one, fcntl.LOCK_SH)\nprint(repr(open('/proc/locks').read()))", "''"),
    "leases": ("print(refused(fcntl.fcntl, one, fcntl.F_SETLEASE, fcntl.F_RDLCK))", "EINVAL"),
    "watches of a folder": (
        "print(refused(fcntl.fcntl, os.open('/usr/lib', os.O_RDONLY), fcntl.F_NOTIFY, fcntl.DN_ACCESS))", "EINVAL"),
    "inotify": ("print(refused(raw, 294, 26, 0))", "EPERM"),
    "fanotify": ("print(refused(raw, 300, 262, 0, 0))", "EPERM"),
    "write hints": ("print(refused(fcntl.fcntl, one, 1036, struct.pack('Q', 3)))", "EINVAL"),
    "times of a device": (
        "before = os.stat('/dev/null')\nos.utime('/dev/null')\nprint(os.stat('/dev/null') == before)", "True"),
    "what is in the page cache": (
        "print(refused(raw, 327, 286, one.fileno(), None, 0, 0, 0, os.RWF_NOWAIT))", "ENOSYS"),
    "what is in memory": ("print(refused(raw, 27, 232, 0, 4096, 0))", "EPERM"),
    "statistics of the page cache": ("print(refused(raw, 451, 451, one.fileno(), 0, 0, 0))", "EPERM"),
    "eviction from the page cache": ("print(raw(221, 223, -1, 0, 0, 4))", "0"),  # not even tried
    "descriptors in flight": (
        "a, b = socket.socketpair()\nprint(refused(socket.send_fds, a, [b'x'], [0]))", "EPERM"),
    "pages of pipes": ("print(refused(fcntl.fcntl, os.pipe()[1], 1031, 1 << 20))", "EINVAL"),
    "signals that wait": (r"""
signal.pthread_sigmask(signal.SIG_BLOCK, [40])
sent = 0
while libc.sigqueue(os.getpid(), 40, None) == 0:
    sent += 1
print(sent <= @SIGNALS@)
""", "True"),
    "a disk that is waited for": ("print(raw(74, 82, -1), raw(75, 83, -1))", "0 0"),
    "an abstract socket": (r"""
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
print(refused(a.connect, "\0agon-verl-test-channel"))
""", "ECONNREFUSED"),
    "System V memory and queues": ("print(refused(raw, 29, 194, 1, 4096, 0o1666), refused(raw, 68, 186, 1, 0o1666))",
                                   "EPERM EPERM"),
    "POSIX queues": ("print(refused(raw, 240, 180, b'agon', 0o102, 0o666, None))", "EPERM"),
    "keys": ("print(refused(raw, 248, 217, b'user', b'x', b'y', 1, -4))", "EPERM"),
}  # fmt: skip


@pytest.fixture(scope="module")
def outputs(isolated: None) -> dict[str, str]:
    sandbox = LocalSandbox()

    async def run(source: str) -> str:
        program = Program("python", (BEFORE + source.replace("@SIGNALS@", str(SIGNALS))).encode())
        result = await sandbox.run(Job(program, b"", LIMITS))
        return (result.stdout + result.stderr).decode().strip()

    async def all_of_them() -> list[str]:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as host:
            host.bind("\0agon-verl-test-channel")
            return await asyncio.gather(*(run(source) for source, _ in CHANNELS.values()))

    return dict(zip(CHANNELS, asyncio.run(all_of_them()), strict=True))


@pytest.mark.parametrize("channel", CHANNELS)
def test_a_channel_is_closed(channel: str, outputs: dict[str, str]) -> None:
    assert outputs[channel] == CHANNELS[channel][1]


def test_a_lock_of_the_host_is_not_seen() -> None:
    sandbox = LocalSandbox()
    source = "import fcntl, os\nfcntl.flock(open(os.__file__), fcntl.LOCK_EX)\nprint('locked')"
    with open(os.__file__) as shared:
        fcntl.flock(shared, fcntl.LOCK_EX)
        result = asyncio.run(sandbox.run(Job(Program("python", source.encode()), b"", LIMITS)))
    assert (result.ending, result.stdout) == ("exited", b"locked\n")
