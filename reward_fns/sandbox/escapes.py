"""Whether a sandbox isolates programs: before any other program it runs one that tries to break out.

That bubblewrap accepts an option does not prove isolation: a container may forbid a namespace, an old kernel may count
threads differently, a mount may be writable. So each property is tested, and every failure is named.
"""

import json
import os
import socket
import tempfile
from collections.abc import Callable

from reward_fns.sandbox import MB, Job, Program, ProgramLimits, RunResult, SandboxError
from reward_fns.sandbox.bwrap import HEADROOM, THREADS

_LIMITS = ProgramLimits(cpu=5.0, memory=128 * MB, output=MB)

_ATTEMPTS = r"""
import ctypes, fcntl, json, mmap, os, socket, sys, threading
host = json.loads(sys.stdin.read())
holes = []
if extra := set(os.listdir("/proc/self/fd")) - {"0", "1", "2", "3"}:
    holes.append(f"{len(extra)} open files are inherited")

def attempt(hole, action):
    try:
        action()
    except (OSError, MemoryError):
        return
    holes.append(hole)

def write(path, size=1):
    with open(path, "wb") as file:
        for _ in range(0, size, 1 << 20):
            file.write(bytes(min(size, 1 << 20)))

def fork():
    if os.fork() == 0:
        os._exit(0)

def new_user_namespace():
    if ctypes.CDLL(None, use_errno=True).unshare(0x10000000):
        raise OSError(ctypes.get_errno())

attempt("the network can be reached", lambda: socket.create_connection(("127.0.0.1", host["port"]), 2))
attempt("files of the host can be read", lambda: open(host["file"]).read())
attempt("processes can be started", fork)
attempt("user namespaces can be made inside", new_user_namespace)
attempt("memory is not limited", lambda: mmap.mmap(-1, host["memory"], mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
attempt("memory that no process has can be made", lambda: mmap.mmap(-1, 4096))
for path in ("/escaped", "/box/escaped", "/dev/escaped", os.path.dirname(os.__file__) + "/escaped", "/usr/lib/escaped"):
    attempt(f"{path} can be written", lambda: write(path))
attempt("/tmp is not limited", lambda: [write(f"/tmp/{i}", 1 << 22) for i in range(8)])
attempt("files are not limited", lambda: write("/tmp/large", 1 << 26))
folder, file, again = (os.open(path, os.O_RDONLY) for path in ("/usr/lib", os.__file__, os.__file__))
attempt("shared folders can be watched", lambda: fcntl.fcntl(folder, fcntl.F_NOTIFY, fcntl.DN_ACCESS))
os.read(file, 1)  # now it is there
attempt("the page cache can be seen", lambda: os.preadv(file, [bytearray(1)], 0, os.RWF_NOWAIT))
try:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    holes.append("shared files can be locked")

if (seen := sum(name.isdigit() for name in os.listdir("/proc"))) != 1:
    holes.append(f"{seen} processes can be seen")
if extra := set(os.environ) - {"LC_CTYPE", "PWD"}:  # set by Python and bubblewrap themselves
    holes.append("the environment is inherited: " + ", ".join(sorted(extra)))
status = dict(line.split(":\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\t" in line)
if os.getuid() == 0 or int(status["CapEff"], 16) or int(status["CapPrm"], 16):
    holes.append("the program keeps root's rights")
if status["NoNewPrivs"] != "1":
    holes.append("the program can gain rights")
if status["Seccomp"] != "2":
    holes.append("system calls are not filtered")

started = 0
threading.stack_size(1 << 17)  # so that the memory limit is not reached first
stop = threading.Event()
try:
    while started < 2 * host["threads"]:
        threading.Thread(target=stop.wait, daemon=True).start()
        started += 1
except RuntimeError:
    pass
stop.set()
if started >= 2 * host["threads"]:
    holes.append("threads are not limited")
if started < 8:
    holes.append(f"only {started} threads can be started (before Linux 5.14 all processes of a user count)")
print(json.dumps(holes))
"""


def find_holes(run: Callable[[Job], RunResult]) -> list[str]:
    """What a program started by `run` can do although it must not; empty if the sandbox isolates it."""

    def attempt(source: str, stdin: bytes = b"", limits: ProgramLimits = _LIMITS) -> RunResult:
        return run(Job(Program("python", source.encode()), stdin, limits))

    with tempfile.NamedTemporaryFile("w") as file, socket.create_server(("127.0.0.1", 0)) as server:
        os.chmod(file.name, 0o644)
        host = {"file": file.name, "port": server.getsockname()[1]}
        host |= {"memory": _LIMITS.memory + HEADROOM, "threads": THREADS}
        try:
            result = attempt(_ATTEMPTS, json.dumps(host).encode())
        except SandboxError as error:
            return [str(error)]
    try:
        holes = json.loads(result.stdout)
    except ValueError:
        return [f"the attempts to break out ended with {result}"]
    if (endless := attempt("while True: pass", limits=ProgramLimits(0.2, 128 * MB, MB))).ending != "timeout":
        holes.append(f"an endless loop ended with {endless.ending}")
    if (flood := attempt("while True: print('x' * 65536)")).ending != "output_limit":
        holes.append(f"endless output ended with {flood.ending}")
    if (hungry := attempt("x = bytearray(400 << 20)\nwhile True: pass")).ending != "memory":
        holes.append(f"400 MB with a limit of 128 MB ended with {hungry.ending}")
    return holes
