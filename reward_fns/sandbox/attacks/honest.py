"""Correct programs as people and models really write them; judges that run them inside their own process fail many.

A wrong reject teaches a policy to write otherwise for no reason. Python first, then C++.
"""

from typing import Any

from reward_fns.sandbox.attacks.programs import Honest

# fmt: off


def honest(name: str, problem: str, source: str, language: str = "python", **kwargs: Any) -> Honest:
    return Honest(name, problem, source, language, **kwargs)


PYTHON: list[Honest] = [
    honest("input", "sum", "import sys\na, b = map(int, sys.stdin.read().split())\nprint(a + b)"),
    honest("sys.stdin.buffer", "sort", r"""
import sys
data = sys.stdin.buffer.read().split()
n = int(data[0])
sys.stdout.buffer.write(b"\n".join(b"%d" % x for x in sorted(map(int, data[1 : n + 1]))) + b"\n")
"""),
    honest("open(0)", "sort", "n, *x = map(int, open(0).read().split())\nprint(*sorted(x), sep='\\n')"),
    honest("open(0, 'rb')", "sum", "print(sum(map(int, open(0, 'rb').read().split())))"),
    honest("/dev/stdin", "sum", "print(sum(map(int, open('/dev/stdin').read().split())))"),
    honest("/dev/stdout", "sum",
          "import sys\nopen('/dev/stdout', 'w').write(str(sum(map(int, sys.stdin.read().split()))))"),
    honest("one os.read", "sort", r"""
import os
data = os.read(0, 10**8).split()
os.write(1, "\n".join(map(str, sorted(map(int, data[1:])))).encode())
"""),
    honest("os.fstat for the size", "sort", r"""
import io, os, sys
buffer = io.BytesIO(os.read(0, os.fstat(0).st_size))
input = lambda: buffer.readline().decode()
n = int(input())
print("\n".join(map(str, sorted(map(int, input().split())))))
"""),
    honest("mmap of the input", "sort", r"""
import mmap
data = mmap.mmap(0, 0, access=mmap.ACCESS_READ)[:].split()
print(*sorted(map(int, data[1:])), sep="\n")
"""),
    honest("a FastIO class", "sort", r"""
import os, sys
from io import BytesIO, IOBase
class FastIO(IOBase):
    newlines = 0
    def __init__(self, file):
        self._fd = file.fileno()
        self.buffer = BytesIO()
        self.writable = "x" in file.mode or "r" not in file.mode
        self.write = self.buffer.write if self.writable else None
    def read(self):
        while True:
            b = os.read(self._fd, max(os.fstat(self._fd).st_size, 8192))
            if not b:
                break
            ptr = self.buffer.tell()
            self.buffer.seek(0, 2), self.buffer.write(b), self.buffer.seek(ptr)
        self.newlines = 0
        return self.buffer.read()
    def readline(self):
        while self.newlines == 0:
            b = os.read(self._fd, max(os.fstat(self._fd).st_size, 8192))
            self.newlines = b.count(b"\n") + (not b)
            ptr = self.buffer.tell()
            self.buffer.seek(0, 2), self.buffer.write(b), self.buffer.seek(ptr)
        self.newlines -= 1
        return self.buffer.readline()
    def flush(self):
        if self.writable:
            os.write(self._fd, self.buffer.getvalue())
            self.buffer.truncate(0), self.buffer.seek(0)
class IOWrapper(IOBase):
    def __init__(self, file):
        self.buffer = FastIO(file)
        self.flush = self.buffer.flush
        self.writable = self.buffer.writable
        self.write = lambda s: self.buffer.write(s.encode("ascii"))
        self.read = lambda: self.buffer.read().decode("ascii")
        self.readline = lambda: self.buffer.readline().decode("ascii")
sys.stdin, sys.stdout = IOWrapper(sys.stdin), IOWrapper(sys.stdout)
input = lambda: sys.stdin.readline().rstrip("\r\n")
n = int(input())
print("\n".join(map(str, sorted(map(int, input().split())))))
sys.stdout.flush()
"""),
    honest("input until EOFError", "until_end", r"""
total = 0
while True:
    try:
        line = input()
    except EOFError:
        break
    total += sum(map(int, line.split()))
print(total)
"""),
    honest("for line in sys.stdin", "until_end",
          "import sys\nprint(sum(int(x) for line in sys.stdin for x in line.split()))"),
    honest("fileinput", "until_end",
          "import fileinput\nprint(sum(int(x) for line in fileinput.input() for x in line.split()))"),
    honest("iter with a sentinel", "until_end", r"""
import sys
print(sum(int(x) for line in iter(sys.stdin.readline, "") for x in line.split()))
"""),
    honest("globals", "sum", r"""
import sys
total = 0
def add(x):
    global total
    total += x
def main():
    for x in sys.stdin.read().split():
        add(int(x))
    print(total)
main()
"""),
    honest("if __name__", "sum", r"""
import sys
def solve():
    return sum(int(x) for x in sys.stdin.read().split())
if __name__ == "__main__":
    print(solve())
"""),
    honest("a class Solution", "sum", r"""
import sys
class Solution:
    def __init__(self):
        self.numbers = list(map(int, sys.stdin.read().split()))
    @property
    def answer(self) -> int:
        return sum(self.numbers)
print(Solution().answer)
"""),
    honest("exec", "sum", "exec('import sys; print(sum(map(int, sys.stdin.read().split())))')"),
    honest("eval and globals()", "sum", r"""
globals()["f"] = eval("lambda s: sum(map(int, s.split()))")
import sys
print(f(sys.stdin.read()))
"""),
    honest("walrus", "until_end", r"""
import sys
total = 0
while line := sys.stdin.readline():
    total += sum(map(int, line.split()))
print(total)
"""),
    honest("match", "sum", r"""
import sys
match sys.stdin.read().split():
    case [a, b]:
        print(int(a) + int(b))
"""),
    honest("generators", "sum", r"""
import sys
def tokens():
    for line in sys.stdin:
        yield from line.split()
numbers = map(int, tokens())
print(next(numbers) + next(numbers))
"""),
    honest("an async main", "sum", r"""
import asyncio, sys
async def main():
    await asyncio.sleep(0)
    print(sum(map(int, sys.stdin.read().split())))
asyncio.run(main())
"""),
    honest("threads and a queue", "sum", r"""
import queue, sys, threading
q = queue.Queue()
threads = [threading.Thread(target=lambda x=x: q.put(int(x))) for x in sys.stdin.read().split()]
for t in threads: t.start()
for t in threads: t.join()
print(sum(q.get() for _ in threads))
"""),
    honest("a pool of threads", "sum", r"""
import sys
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(4) as pool:
    print(sum(pool.map(int, sys.stdin.read().split())))
"""),
    honest("recursion with a larger limit", "deep", r"""
import sys
sys.setrecursionlimit(10**6)
def f(n): return 0 if n == 0 else 1 + f(n - 1)
print(f(int(input())))
"""),
    honest("recursion in a thread with a larger stack", "deep", r"""
import sys, threading
sys.setrecursionlimit(1 << 30)
threading.stack_size(512 * 1024 * 1024)
def f(n): return 0 if n == 0 else 1 + f(n - 1)
def main(): print(f(int(input())))
t = threading.Thread(target=main)
t.start()
t.join()
"""),
    # In steps: Python 3.12 and 3.13 limit recursion through C code, whatever the program sets.
    honest("recursion through lru_cache", "deep", r"""
import sys
from functools import lru_cache
sys.setrecursionlimit(10**6)
@lru_cache(None)
def f(n): return 0 if n == 0 else 1 + f(n - 1)
n = int(input())
for i in range(0, n, 100):
    f(i)
print(f(n))
"""),
    honest("the bootstrap trick", "deep", r"""
from types import GeneratorType
def bootstrap(f, stack=[]):
    def wrapped(*args):
        if stack:
            return f(*args)
        to = f(*args)
        while True:
            if type(to) is GeneratorType:
                stack.append(to)
                to = next(to)
            else:
                stack.pop()
                if not stack:
                    return to
                to = stack[-1].send(to)
    return wrapped
@bootstrap
def f(n):
    if n == 0:
        yield 0
    yield 1 + (yield f(n - 1))
print(f(int(input())))
"""),
    honest("raising the stack limit", "deep", r"""
import resource, sys
resource.setrlimit(resource.RLIMIT_STACK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
sys.setrecursionlimit(10**6)
f = lambda n: 0 if n == 0 else 1 + f(n - 1)
print(f(int(input())))
"""),
    honest("no line end at the end", "sum",
          "import sys\nsys.stdout.write(str(sum(map(int, sys.stdin.read().split()))))"),
    honest("Windows line ends", "sort",
          "n, *x = map(int, open(0).read().split())\nprint(*sorted(x), sep='\\r\\n', end='\\r\\n')"),
    honest("a source with Windows line ends", "sum",
          "import sys\r\nx = sys.stdin.read().split()\r\nprint(int(x[0]) + int(x[1]))\r"),
    honest("trailing blanks and blank lines", "grid", r"""
n, m = map(int, input().split())
for _ in range(n):
    print(input() + "   ")
print("\n")
"""),
    honest("end=' ' in a loop", "grid", r"""
n, m = map(int, input().split())
grid = [list(map(int, input().split())) for _ in range(n)]
for row in grid:
    for x in row:
        print(x, end=" ")
    print()
"""),
    honest("pprint and textwrap", "grid", r"""
import textwrap
n, m = map(int, input().split())
print(textwrap.dedent("\n".join("    " + input() for _ in range(n))))
"""),
    honest("noise on stderr", "sum", r"""
import sys
a, b = map(int, sys.stdin.read().split())
for i in range(5000): print("debug", i, file=sys.stderr)
print(a + b)
"""),
    honest("sys.exit(0)", "sum",
          "import sys\nprint(sum(map(int, sys.stdin.read().split())))\nsys.exit(0)\nprint('no')"),
    honest("exit()", "sum", "import sys\nprint(sum(map(int, sys.stdin.read().split())))\nexit()"),
    honest("quit() in a function", "sum", r"""
import sys
def main():
    print(sum(map(int, sys.stdin.read().split())))
    quit()
main()
"""),
    honest("raise SystemExit", "sum", "import sys\nprint(sum(map(int, sys.stdin.read().split())))\nraise SystemExit"),
    honest("os._exit after a flush", "sum", r"""
import os, sys
print(sum(map(int, sys.stdin.read().split())), flush=True)
os._exit(0)
"""),
    honest("atexit prints the answer", "sum", r"""
import atexit, sys
x = sys.stdin.read()
atexit.register(lambda: print(sum(map(int, x.split()))))
"""),
    honest("output redirected", "sum", r"""
import contextlib, io, sys
with contextlib.redirect_stdout(io.StringIO()) as out:
    print(sum(map(int, sys.stdin.read().split())))
sys.__stdout__.write(out.getvalue())
"""),
    honest("sys.stdout replaced", "sort", r"""
import io, sys
sys.stdout = io.TextIOWrapper(open(1, "wb", buffering=1 << 20), write_through=False)
n, *x = map(int, open(0).read().split())
for y in sorted(x): print(y)
sys.stdout.flush()
"""),
    honest("two hundred thousand prints", "sort", r"""
n = int(input())
for x in sorted(map(int, input().split())):
    print(x)
"""),
    honest("decimals in other formats", "divide", r"""
a, b = map(int, input().split())
print(f"{a / b:.12e}")
"""),
    honest("fractions", "divide", r"""
from fractions import Fraction
a, b = map(int, input().split())
print(float(Fraction(a, b)))
"""),
    honest("decimal", "divide", r"""
from decimal import Decimal, getcontext
getcontext().prec = 30
a, b = map(Decimal, input().split())
print(a / b)
"""),
    honest("an integer where a decimal is expected", "divide", r"""
a, b = map(int, input().split())
print(a // b if a % b == 0 else round(a / b, 9))
"""),
    honest("unicode", "echo", "x = input()\nprint(x)\nprint(len(x))"),
    honest("unicode names and a coding line", "echo",
          "# -*- coding: utf-8 -*-\nλ = input()\nprint(λ, len(λ), sep='\\n')"),
    honest("a temporary file", "sum", r"""
import os, sys, tempfile
with tempfile.NamedTemporaryFile("w+", dir="/tmp") as f:
    f.write(sys.stdin.read())
    f.seek(0)
    print(sum(map(int, f.read().split())))
"""),
    honest("many imports", "sum", r"""
import bisect, cmath, collections, copy, datetime, functools, heapq, itertools, json, math, operator, random, re, string
import sqlite3, statistics, sys, typing, zlib
print(sum(map(int, sys.stdin.read().split())))
"""),
    honest("a lambda for main, in one line", "sum",
          "print((lambda s: sum(map(int, s.split())))(__import__('sys').stdin.read()))"),
    honest("a main guarded by try", "sum", r"""
import sys, traceback
try:
    a, b = map(int, sys.stdin.read().split())
    print(a + b)
except Exception:
    traceback.print_exc()
finally:
    sys.stdout.flush()
"""),
    honest("a signal handler and a timer", "sum", r"""
import signal, sys
signal.signal(signal.SIGALRM, lambda *_: sys.exit(1))
signal.alarm(30)
print(sum(map(int, sys.stdin.read().split())))
signal.alarm(0)
"""),
    honest("reading nothing that is not needed", "sum", r"""
import sys
digits = ""
numbers = []
while True:
    c = sys.stdin.read(1)
    if c.isspace() or not c:
        if digits: numbers.append(int(digits))
        digits = ""
        if not c or len(numbers) == 2: break
    else:
        digits += c
print(numbers[0] + numbers[1])
"""),
    honest("multiplied strings and star expressions", "sort", r"""
import sys
n, *a = map(int, sys.stdin.read().split())
a.sort()
print(("%d\n" * n) % (*a,), end="")
"""),
    honest("multiprocessing.dummy", "sum", r"""
import sys
from multiprocessing.dummy import Pool
print(sum(Pool(4).map(int, sys.stdin.read().split())))
"""),
    honest("multiprocessing.pool.ThreadPool", "sum", r"""
import sys
from multiprocessing.pool import ThreadPool
with ThreadPool(2) as pool:
    print(sum(pool.map(int, sys.stdin.read().split())))
"""),
    honest("time zones", "sum", r"""
import datetime, sys, zoneinfo
moment = datetime.datetime(2024, 7, 1, 12, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"))
assert moment.utcoffset() == datetime.timedelta(hours=2)
print(sum(map(int, sys.stdin.read().split())))
"""),
    honest("a block in a list", "sum", r"""
import sys
def main():
    print(sum(map(int, sys.stdin.read().split())))
main()
""", indent=3),
    honest("a block deep in a list", "sum",
          "for x in [1]:\n    print(sum(map(int, open(0).read().split())))", indent=6),
    honest("a tag with a version", "sum", "print(sum(map(int, open(0).read().split())))", "Python3.11"),
    honest("a tag with a short version", "sum", "print(sum(map(int, open(0).read().split())))", "python 3"),
    honest("a tag of PyPy", "sum", "print(sum(map(int, open(0).read().split())))", "pypy3"),
    honest("a database in memory", "sum", r"""
import sqlite3, sys
db = sqlite3.connect(":memory:")
db.execute("create table t (x integer)")
db.executemany("insert into t values (?)", [(int(x),) for x in sys.stdin.read().split()])
print(db.execute("select sum(x) from t").fetchone()[0])
"""),
    honest("a database in a file", "sum", r"""
import sqlite3, sys
with sqlite3.connect("/tmp/numbers.db") as db:
    db.execute("create table t (x integer)")
    db.executemany("insert into t values (?)", [(int(x),) for x in sys.stdin.read().split()])
print(db.execute("select sum(x) from t").fetchone()[0])
"""),
    honest("a lock on a file of its own", "sum", r"""
import fcntl, sys
with open("/tmp/lock", "w") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    print(sum(map(int, sys.stdin.read().split())))
"""),
    honest("an event loop with a pipe", "sum", r"""
import asyncio, sys
async def main():
    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    loop.call_soon_threadsafe(done.set)
    await done.wait()
    numbers = await loop.run_in_executor(None, sys.stdin.read)
    print(sum(map(int, numbers.split())))
asyncio.run(main())
"""),
    honest("a selector and a pipe", "sum", r"""
import os, selectors, sys
r, w = os.pipe()
os.write(w, sys.stdin.buffer.read())
os.close(w)
with selectors.DefaultSelector() as waiting:
    waiting.register(r, selectors.EVENT_READ)
    waiting.select()
print(sum(map(int, os.read(r, 1000).split())))
"""),
    honest("forty threads", "sum", r"""
import sys, threading
numbers = list(map(int, sys.stdin.read().split()))
threads = [threading.Thread(target=lambda: None) for _ in range(40)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(sum(numbers))
"""),
    honest("half of its memory", "sum",
          "import sys\nx = bytearray(b'x' * (120 << 20))\nprint(sum(map(int, sys.stdin.read().split())))"),
    honest("large arrays", "sum", r"""
import array, sys
x = array.array("q", [0]) * 8_000_000
x[-1] = sum(map(int, sys.stdin.read().split()))
print(x[-1])
"""),
    honest("twelve megabytes of files", "sum", r"""
import sys
for i in range(12):
    with open(f"/tmp/{i}", "wb") as file:
        file.write(bytes(1 << 20))
print(sum(map(int, sys.stdin.read().split())))
"""),
    honest("a thousand files", "sum", r"""
import os, sys
for i in range(1000):
    open(f"/tmp/{i}", "w").write("x")
print(sum(map(int, sys.stdin.read().split())) + len(os.listdir("/tmp")) - 1000)
"""),
    honest("thirty open files", "sum", r"""
import sys
files = [open("/dev/null") for _ in range(30)]
print(sum(map(int, sys.stdin.read().split())))
"""),
    honest("random numbers and hashes", "sum", r"""
import hashlib, random, secrets, sys, uuid
random.seed(1), secrets.token_hex(8), uuid.uuid4(), hashlib.sha256(b"x").hexdigest()
print(sum(map(int, sys.stdin.read().split())))
"""),
    honest("the clock and a short sleep", "sum", r"""
import sys, time
began = time.perf_counter()
time.sleep(0.05)
assert time.perf_counter() > began
print(sum(map(int, sys.stdin.read().split())))
"""),
    honest("ctypes and the C library", "sum", r"""
import ctypes, sys
libc = ctypes.CDLL(None)
print(libc.atoi(str(sum(map(int, sys.stdin.read().split()))).encode()))
"""),
    honest("memory views and structs", "sum", r"""
import struct, sys
numbers = list(map(int, sys.stdin.read().split()))
print(sum(struct.unpack(f"{len(numbers)}q", memoryview(struct.pack(f"{len(numbers)}q", *numbers)))))
"""),
    honest("numbers of ten thousand digits", "sum", r"""
import sys
sys.set_int_max_str_digits(0)
a, b = map(int, sys.stdin.read().split())
print((10**10_000 + a) - 10**10_000 + b)
"""),
    honest("dataclasses, enums and typing", "sum", r"""
import enum, sys
from dataclasses import dataclass
from typing import NamedTuple
class Kind(enum.Enum):
    A = 1
@dataclass(order=True, frozen=True, slots=True)
class Pair:
    a: int
    b: int
class Named(NamedTuple):
    pair: Pair
    kind: Kind = Kind.A
named = Named(Pair(*map(int, sys.stdin.read().split())))
print(named.pair.a + named.pair.b)
"""),
    # Each is ready for longer than it might sleep (1 s + 3 * `cpu`), and gets a ninth of a core meanwhile;
    # the pool has two threads, and at most a fifth.
    honest("work in a thread on a busy machine", "one_sum", r"""
import sys, threading, time
def work():
    end = time.monotonic() + 4.5
    while time.monotonic() < end: pass
thread = threading.Thread(target=work)
thread.start()
thread.join()
print(sum(map(int, sys.stdin.read().split())))
""", cpu=1.0, busy=True),
    honest("work on a busy machine", "one_sum", r"""
import sys, time
end = time.monotonic() + 4.5
while time.monotonic() < end: pass
print(sum(map(int, sys.stdin.read().split())))
""", cpu=1.0, busy=True),
    honest("a pool of threads on a busy machine", "one_sum", r"""
import sys, time
from concurrent.futures import ThreadPoolExecutor
end = time.monotonic() + 4.5
def work(x):
    while time.monotonic() < end: pass
    return int(x)
with ThreadPoolExecutor(4) as pool:
    print(sum(pool.map(work, sys.stdin.read().split())))
""", cpu=1.0, busy=True),
]

CPP: list[Honest] = [
    honest("C++: iostream", "sum", r"""
#include <iostream>
int main() { long long a, b; std::cin >> a >> b; std::cout << a + b << std::endl; }
""", "cpp"),
    honest("C++: stdio", "sum",
          "#include <cstdio>\nint main() { int a, b; scanf(\"%d %d\", &a, &b); printf(\"%d\", a + b); }", "cpp"),
    honest("C++: bits/stdc++.h and macros", "sort", r"""
#include <bits/stdc++.h>
using namespace std;
#define all(x) (x).begin(), (x).end()
typedef vector<int> vi;
int main() {
    ios_base::sync_with_stdio(false); cin.tie(NULL);
    int n; cin >> n; vi a(n); for (auto &x : a) cin >> x;
    sort(all(a)); for (int x : a) cout << x << '\n';
    return 0;
}
""", "cpp"),
    honest("C++: until the end of the input", "until_end", r"""
#include <iostream>
int main() { long long s = 0, x; while (std::cin >> x) s += x; std::cout << s << "\r\n"; }
""", "cpp"),
    honest("C++: deep recursion", "deep", r"""
#include <cstdio>
int f(int n) { volatile char pad[1000]; pad[0] = 0; return n ? 1 + f(n - 1) + pad[0] : 0; }
int main() { int n; scanf("%d", &n); printf("%d\n", f(n)); }
""", "cpp"),
    honest("C++: threads", "sum", r"""
#include <iostream>
#include <thread>
int main() { long a, b, c; std::cin >> a >> b; std::thread t([&] { c = a + b; }); t.join(); std::cout << c; }
""", "C++"),
    honest("C++: long doubles and exit", "divide", r"""
#include <cstdio>
#include <cstdlib>
int main() { double a, b; if (scanf("%lf%lf", &a, &b) != 2) abort(); printf("%.15Lf\n", (long double)a / b); exit(0); }
""", "cpp"),
]

PROGRAMS = PYTHON + CPP
