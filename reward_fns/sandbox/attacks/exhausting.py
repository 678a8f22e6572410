"""Programs that use more than they may: memory by every route, processes, threads, files, disk and output."""

from reward_fns.sandbox.attacks.programs import CALLS, PAGES, SOLVE, Attack, attack

# fmt: off
FILLING: list[Attack] = [
    attack("fork bomb", "runtime_error", "import os\nwhile True:\n    os.fork()"),
    attack("fork bomb that takes no for an answer", "timeout", r"""
import os
while True:
    try:
        os.fork()
    except OSError:
        pass
"""),
    attack("a bomb of raw clones", "wrong", CALLS + r"""
for flags in (17, 0x4111, 0x100, 0x10000000 | 17, 0x20000000 | 17):
    for number in (56, 57, 58, 220, 435, 1079):
        libc.syscall(number, flags, 0, 0, 0, 0)
print(os.getpid(), len([n for n in os.listdir("/proc") if n.isdigit()]))
"""),
    attack("a daemon", "runtime_error", r"""
import os, subprocess, sys
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True)
"""),
    attack("children through the shell", "wrong", "import os\nprint(os.system('sleep 1000 &'))"),
    attack("worker processes", "runtime_error", r"""
import multiprocessing
multiprocessing.get_context("fork").Pool(64)
"""),
    attack("thread bomb", "timeout", r"""
import threading, time
while True:
    threading.Thread(target=time.sleep, args=(1000,)).start()
"""),
    attack("thread bomb with small stacks", "timeout", r"""
import threading, time
threading.stack_size(1 << 18)
while True:
    try:
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
    except RuntimeError:
        pass
"""),
    attack("one large allocation", "memory", "x = bytearray(1 << 40)"),
    attack("allocate without end", "memory", "x = []\nwhile True:\n    x.append(bytearray(1 << 20))"),
    attack("allocate what is not counted as ours", "runtime_error", r"""
import mmap
kept = []
while True:
    m = mmap.mmap(-1, 1 << 25)
    for at in range(0, 1 << 25, 4096):
        m[at] = 1
    kept.append(m)
"""),
    attack("shared memory segments", "runtime_error",
          CALLS + "while True:\n    must(libc.shmget(0, 1 << 28, 0o1600))"),
    attack("memory files", "runtime_error",
          "import os\nwhile True:\n    os.write(os.memfd_create('x'), bytes(1 << 24))"),
    attack("fill the disk", "runtime_error", r"""
with open("/tmp/@MARK@", "wb") as file:
    while True:
        file.write(bytes(1 << 20))
"""),
    attack("fill the disk with many files", "runtime_error", r"""
for i in range(1000):
    with open(f"/tmp/@MARK@{i}", "wb") as file:
        file.write(bytes(1 << 20))
"""),
    attack("fill the disk with empty files", "disk_limit|runtime_error", r"""
import os
i = 0
while True:
    os.close(os.open(f"/tmp/@MARK@{i}", os.O_CREAT | os.O_WRONLY))
    i += 1
"""),
    attack("endless output", "output_limit", "while True:\n    print('x' * 1000)", problem="long"),
    attack("endless output without lines", "output_limit",
          "import os\nwhile True:\n    os.write(1, b'x' * 65536)", problem="long"),
    attack("endless noise", "output_limit",
          "import sys\nwhile True:\n    sys.stderr.write('x' * 1000)", problem="long"),
    attack("open files without end", "runtime_error", "x = []\nwhile True:\n    x.append(open('/dev/null'))"),
    attack("pipes without end", "runtime_error", r"""
import fcntl, os
while True:
    _, w = os.pipe()
    fcntl.fcntl(w, 1031, 1 << 20)
    os.set_blocking(w, False)
    os.write(w, bytes(1 << 20))
"""),
    attack("grow the input", "runtime_error", r"""
import os
writable = os.open("/proc/self/fd/0", os.O_RDWR)
while True:
    os.write(writable, bytes(1 << 20))
"""),
    attack("stack overflow", "runtime_error", r"""
import sys
sys.setrecursionlimit(10**9)
class Deep:
    def __getattr__(self, name): return getattr(self, name)
Deep().x
"""),
    attack("a number without end", "timeout", "x = 3\nwhile True:\n    x = x * x"),
    attack("a regular expression that backtracks", "timeout", "import re\nre.match('(a*)*b', 'a' * 100)"),
    attack("output of both kinds at once", "output_limit", r"""
import os, threading
def flood(number):
    while True:
        os.write(number, b"x" * 65536)
threading.Thread(target=flood, args=(2,), daemon=True).start()
flood(1)
""", problem="long"),
    attack("output at the last moment", "output_limit", r"""
import atexit, os
atexit.register(lambda: [os.write(1, b"x" * 65536) for _ in range(10**6)])
""", problem="long"),
]

MEMORY: list[Attack] = [
    attack("huge pages held by pipes", "correct|memory|runtime_error", PAGES + r"""
import fcntl
class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
HUGE = 1 << 21
held = 0
try:
    while held < 900 << 20:
        reader, writer = os.pipe()
        for _ in range(16):
            place = libc.mmap(None, 2 * HUGE, 3, 0x22, -1, 0)
            aligned = (place + HUGE - 1) // HUGE * HUGE
            libc.madvise(aligned, HUGE, 14)
            ctypes.memset(aligned, 1, HUGE)
            call("vmsplice", writer, ctypes.byref(Vector(aligned, 1)), 1, 0)
            libc.munmap(place, 2 * HUGE)
            held += HUGE
except OSError:
    pass
import time
time.sleep(0.5)
""" + SOLVE, problem="one_sum", solves=True, memory=128, cpu=1.5, alone=True),
    attack("pages of deleted files held by pipes", "correct|memory|runtime_error|timeout", CALLS + r"""
import fcntl, time
try:
    for i in range(28):
        reader, writer = os.pipe()
        fcntl.fcntl(writer, 1031, 1 << 20)
        with open("/tmp/x", "wb+") as file:
            file.write(bytes(1 << 20))
            file.flush()
            os.splice(file.fileno(), writer, 1 << 20, 0)
        os.unlink("/tmp/x")
        time.sleep(0.01)
except (OSError, AttributeError):
    pass
time.sleep(0.3)
""" + SOLVE, problem="one_sum", solves=True, memory=64, cpu=1.5),
    attack("memory after the main thread is gone", "memory|runtime_error", PAGES + r"""
import threading, time
def fill():
    time.sleep(0.2)
    kept = [pages(1 << 24) for _ in range(44)]
    time.sleep(1)
    os._exit(0)
threading.Thread(target=fill).start()
call("exit", 0)
""", memory=64, cpu=1.5),
    attack("right after the main thread is gone", "memory|correct|runtime_error", PAGES + r"""
import threading, time
def fill():
    time.sleep(0.2)
    kept = [pages(1 << 24) for _ in range(30)]
    time.sleep(0.5)
    print(sum(map(int, open(0).read().split())), flush=True)
    os._exit(0)
threading.Thread(target=fill).start()
call("exit", 0)
""", problem="one_sum", solves=True, memory=64, cpu=1.5),
    attack("a spike between two looks", "memory|correct|runtime_error", PAGES + r"""
size = 600 << 20
try:
    place = libc.mmap(None, size, 3, 0x22, -1, 0)
    libc.madvise(place, size, 14)
    ctypes.memset(place, 1, size)
    libc.munmap(place, size)
except Exception:
    pass
""" + SOLVE, problem="one_sum", solves=True, cpu=1.5),
    attack("many spikes", "memory|timeout|runtime_error", PAGES + r"""
import time
while True:
    place = pages(200 << 20)
    libc.munmap(place, 200 << 20)
    time.sleep(0.01)
""", cpu=1.5),
    attack("shared pages", "memory|runtime_error", PAGES + "while True:\n    pages(1 << 24, 0x21)"),
    attack("locked pages", "memory|runtime_error",
          PAGES + "while True:\n    libc.mlock(ctypes.c_void_p(pages(1 << 22)), 1 << 22)"),
    attack("stacks of threads", "memory|runtime_error|timeout", PAGES + r"""
import threading, time
threading.stack_size(1 << 24)
def fill():
    ctypes.memset((ctypes.c_char * 1).from_buffer(bytearray(1)), 0, 1)
    pages(1 << 23)
    time.sleep(1000)
while True:
    threading.Thread(target=fill, daemon=True).start()
"""),
    attack("page tables", "memory|wrong|runtime_error", CALLS + r"""
size = 1 << 30
place = libc.mmap(None, size, 1, 0x22 | 0x4000, -1, 0)
if place not in (None, ctypes.c_void_p(-1).value):
    for at in range(0, size, 1 << 21):
        ctypes.string_at(place + at, 1)
"""),
    attack("socket pairs", "wrong|runtime_error|memory", r"""
import socket
kept = []
try:
    while True:
        a, b = socket.socketpair()
        a.setblocking(False)
        a.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 24)
        kept += [a, b]
        try:
            while True:
                a.send(bytes(1 << 16))
        except BlockingIOError:
            pass
except OSError:
    pass
import time
time.sleep(0.3)
"""),
    attack("files in flight", "wrong|runtime_error|memory|timeout", r"""
import fcntl, os, socket, time
kept = []
try:
    a, b = socket.socketpair()
    kept += [a, b]
    for _ in range(2000):
        r, w = os.pipe()
        fcntl.fcntl(w, 1031, 1 << 20)
        os.set_blocking(w, False)
        os.write(w, bytes(1 << 20))
        socket.send_fds(a, [b"x"], [r, w])
        os.close(r)
        os.close(w)
except OSError:
    pass
time.sleep(0.3)
"""),
    attack("pipes that are full", "wrong|runtime_error|memory", r"""
import fcntl, os, time
try:
    while True:
        _, w = os.pipe()
        try:
            fcntl.fcntl(w, 1031, 1 << 20)
        except OSError:
            pass
        os.set_blocking(w, False)
        try:
            while True:
                os.write(w, bytes(1 << 16))
        except BlockingIOError:
            pass
except OSError:
    pass
time.sleep(0.3)
"""),
    attack("locks without end", "timeout|memory|wrong|runtime_error", r"""
import fcntl
file = open("/tmp/x", "wb+")
for i in range(10**7):
    fcntl.lockf(file, fcntl.LOCK_EX, 1, 10**8 - 2 * i)
""", cpu=1.0),
    attack("timers without end", "wrong|runtime_error|timeout|memory", CALLS + r"""
timer = ctypes.c_void_p()
while libc.timer_create(1, None, ctypes.byref(timer)) == 0:
    pass
"""),
    attack("signals that wait", "wrong|runtime_error|timeout|memory", CALLS + r"""
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
while libc.sigqueue(os.getpid(), 40, None) == 0:
    pass
"""),
    attack("names that do not exist", "timeout|memory", r"""
import os
i = 0
while True:
    os.path.exists(f"/tmp/{i:0200}")
    i += 1
""", cpu=1.0),
    attack("attributes of files", "wrong|runtime_error|disk_limit|memory", r"""
import os
try:
    for i in range(4000):
        open(f"/tmp/{i}", "w")
        for k in range(60):
            os.setxattr(f"/tmp/{i}", f"user.{k}", bytes(60_000))
except OSError:
    pass
"""),
    attack("long links", "wrong|runtime_error|disk_limit|memory", r"""
import os
try:
    for i in range(10**6):
        os.symlink("x" * 4000, f"/tmp/{i}")
except OSError:
    pass
"""),
    attack("a secret memory file", "runtime_error", CALLS + r"""
file = call("memfd_secret", 0)
os.ftruncate(file, 1 << 26)
"""),
    attack("memory that is mapped twice", "memory|runtime_error", r"""
import mmap, os
kept = []
while True:
    place = mmap.mmap(-1, 1 << 24)
    place[:] = bytes(1 << 24)
    place.madvise(mmap.MADV_DONTFORK)
    kept.append(place)
"""),
    attack("children that share the bill", "runtime_error|memory|timeout", r"""
import os, time
for _ in range(12):
    if os.fork() == 0:
        kept = [bytearray(b"x" * (1 << 20)) for _ in range(60)]
        time.sleep(3)
        os._exit(0)
time.sleep(3)
""", cpu=1.0),
    attack("a child that takes it all", "runtime_error|memory|timeout", r"""
import os, time
if os.fork() == 0:
    kept = [bytearray(b"x" * (1 << 20)) for _ in range(400)]
    time.sleep(1)
    os._exit(0)
os.wait()
""" + SOLVE, problem="one_sum", solves=True, cpu=1.0),
    attack("files on every disk that is memory", "runtime_error|wrong|memory", r"""
import os, time
for folder in ("/tmp", "/var/tmp", "/dev/shm"):
    try:
        for i in range(20):
            open(f"{folder}/{i}", "wb").write(bytes(1 << 20))
    except OSError:
        pass
time.sleep(0.3)
"""),
]

DISK: list[Attack] = [
    attack("files after the main thread is gone", "disk_limit|runtime_error|wrong|timeout", CALLS + r"""
import threading
def fill():
    for i in range(60_000):
        os.close(os.open(f"/tmp/{i}", os.O_CREAT | os.O_WRONLY))
    os._exit(0)
threading.Thread(target=fill).start()
call("exit", 0)
""", cpu=2.0),
    attack("a file with a hole", "wrong", r"""
import os, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
file = os.open("/tmp/x", os.O_CREAT | os.O_RDWR)
for size in (1 << 40, 1 << 30, 1 << 26):
    try:
        os.ftruncate(file, size)
        os.lseek(file, size - 1, 0)
        os.write(file, b"x")
    except OSError:
        pass
import time
time.sleep(0.2)
"""),
    attack("space that is reserved", "wrong|runtime_error", r"""
import os, signal, time
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
for i in range(4):
    try:
        os.posix_fallocate(os.open(f"/tmp/{i}", os.O_CREAT | os.O_RDWR), 0, 1 << 26)
    except OSError:
        pass
time.sleep(0.2)
"""),
    attack("files that are deleted but open", "wrong|runtime_error", r"""
import os, time
kept = []
try:
    while True:
        kept.append(open(f"/tmp/{len(kept)}", "wb", 0))
        os.unlink(f"/tmp/{len(kept) - 1}")
        kept[-1].write(bytes(1 << 20))
except OSError:
    pass
time.sleep(0.2)
"""),
    attack("names of one file", "disk_limit|runtime_error|wrong", r"""
import os
open("/tmp/x", "w")
try:
    for i in range(100_000):
        os.link("/tmp/x", f"/tmp/{i}")
except OSError:
    pass
""", cpu=2.0),
    attack("folders and pipes with names", "disk_limit|runtime_error|wrong", r"""
import os
try:
    for i in range(100_000):
        os.mkdir(f"/tmp/d{i}")
        os.mkfifo(f"/tmp/p{i}")
except OSError:
    pass
""", cpu=2.0),
    attack("more open files than allowed", "wrong|runtime_error", r"""
import os, resource, time
try:
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    while True:
        os.dup2(0, 63)
        os.dup(0)
except OSError:
    pass
time.sleep(0.2)
"""),
]
