"""Correct programs as people and models really write them; judges that run them inside their own process fail many.

Every program solves one of the problems below. Python first, then C++.
"""

import random
from dataclasses import dataclass
from fractions import Fraction

# fmt: off


@dataclass(frozen=True)
class Style:
    name: str
    problem: str
    source: str
    language: str = "python"


def _sorted_numbers(seed: int, size: int) -> tuple[str, str]:
    numbers = [random.Random(seed).randrange(-10**9, 10**9) for _ in range(size)]
    return f"{size}\n{' '.join(map(str, numbers))}\n", "\n".join(map(str, sorted(numbers))) + "\n"


def _pairs(*cases: tuple[str, str]) -> dict:
    return {"inputs": [case[0] for case in cases], "outputs": [case[1] for case in cases]}


PROBLEMS = {
    # two numbers: their sum
    "sum": _pairs(("1 2\n", "3\n"), ("30 12", "42"), ("-5\n-6\n", "-11\n")),
    # numbers until the end of the input: their sum
    "until_end": _pairs(("1\n2\n3\n", "6\n"), ("10", "10\n"), ("4 5\n\n6\n", "15\n")),
    # n, then n numbers: sorted, one a line; the last input is 5 MB or so of output
    "sort": _pairs(("3\n3 1 2\n", "1\n2\n3\n"), _sorted_numbers(0, 100), _sorted_numbers(1, 200_000)),
    # a / b
    "divide": _pairs(("1 3\n", "0.333333333\n"), ("2 1\n", "2.0\n"), ("1000000 7\n", "142857.142857143\n"),
                     ("1 1000000\n", f"{float(Fraction(1, 10**6)):.10f}\n")),
    # n: the nodes of a path of n nodes, counted by recursion
    "deep": _pairs(("10\n", "10\n"), ("50000\n", "50000\n")),
    # a line of text: the same, and its length in characters
    "echo": _pairs(("hello\n", "hello\n5\n"), ("grüße 日本 🙂\n", "grüße 日本 🙂\n10\n")),
    # n m, then a grid: the same grid
    "grid": _pairs(("2 3\n1 2 3\n4 5 6\n", "1 2 3\n4 5 6\n"), ("1 1\n7\n", "7\n")),
}


def style(name: str, problem: str, source: str, language: str = "python") -> Style:
    return Style(name, problem, source, language)


PYTHON = [
    style("input", "sum", "import sys\na, b = map(int, sys.stdin.read().split())\nprint(a + b)"),
    style("sys.stdin.buffer", "sort", r"""
import sys
data = sys.stdin.buffer.read().split()
n = int(data[0])
sys.stdout.buffer.write(b"\n".join(b"%d" % x for x in sorted(map(int, data[1 : n + 1]))) + b"\n")
"""),
    style("open(0)", "sort", "n, *x = map(int, open(0).read().split())\nprint(*sorted(x), sep='\\n')"),
    style("open(0, 'rb')", "sum", "print(sum(map(int, open(0, 'rb').read().split())))"),
    style("/dev/stdin", "sum", "print(sum(map(int, open('/dev/stdin').read().split())))"),
    style("/dev/stdout", "sum",
          "import sys\nopen('/dev/stdout', 'w').write(str(sum(map(int, sys.stdin.read().split()))))"),
    style("one os.read", "sort", r"""
import os
data = os.read(0, 10**8).split()
os.write(1, "\n".join(map(str, sorted(map(int, data[1:])))).encode())
"""),
    style("os.fstat for the size", "sort", r"""
import io, os, sys
buffer = io.BytesIO(os.read(0, os.fstat(0).st_size))
input = lambda: buffer.readline().decode()
n = int(input())
print("\n".join(map(str, sorted(map(int, input().split())))))
"""),
    style("mmap of the input", "sort", r"""
import mmap
data = mmap.mmap(0, 0, access=mmap.ACCESS_READ)[:].split()
print(*sorted(map(int, data[1:])), sep="\n")
"""),
    style("a FastIO class", "sort", r"""
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
    style("input until EOFError", "until_end", r"""
total = 0
while True:
    try:
        line = input()
    except EOFError:
        break
    total += sum(map(int, line.split()))
print(total)
"""),
    style("for line in sys.stdin", "until_end",
          "import sys\nprint(sum(int(x) for line in sys.stdin for x in line.split()))"),
    style("fileinput", "until_end",
          "import fileinput\nprint(sum(int(x) for line in fileinput.input() for x in line.split()))"),
    style("iter with a sentinel", "until_end", r"""
import sys
print(sum(int(x) for line in iter(sys.stdin.readline, "") for x in line.split()))
"""),
    style("globals", "sum", r"""
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
    style("if __name__", "sum", r"""
import sys
def solve():
    return sum(int(x) for x in sys.stdin.read().split())
if __name__ == "__main__":
    print(solve())
"""),
    style("a class Solution", "sum", r"""
import sys
class Solution:
    def __init__(self):
        self.numbers = list(map(int, sys.stdin.read().split()))
    @property
    def answer(self) -> int:
        return sum(self.numbers)
print(Solution().answer)
"""),
    style("exec", "sum", "exec('import sys; print(sum(map(int, sys.stdin.read().split())))')"),
    style("eval and globals()", "sum", r"""
globals()["f"] = eval("lambda s: sum(map(int, s.split()))")
import sys
print(f(sys.stdin.read()))
"""),
    style("walrus", "until_end", r"""
import sys
total = 0
while line := sys.stdin.readline():
    total += sum(map(int, line.split()))
print(total)
"""),
    style("match", "sum", r"""
import sys
match sys.stdin.read().split():
    case [a, b]:
        print(int(a) + int(b))
"""),
    style("generators", "sum", r"""
import sys
def tokens():
    for line in sys.stdin:
        yield from line.split()
numbers = map(int, tokens())
print(next(numbers) + next(numbers))
"""),
    style("an async main", "sum", r"""
import asyncio, sys
async def main():
    await asyncio.sleep(0)
    print(sum(map(int, sys.stdin.read().split())))
asyncio.run(main())
"""),
    style("threads and a queue", "sum", r"""
import queue, sys, threading
q = queue.Queue()
threads = [threading.Thread(target=lambda x=x: q.put(int(x))) for x in sys.stdin.read().split()]
for t in threads: t.start()
for t in threads: t.join()
print(sum(q.get() for _ in threads))
"""),
    style("a pool of threads", "sum", r"""
import sys
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(4) as pool:
    print(sum(pool.map(int, sys.stdin.read().split())))
"""),
    style("recursion with a larger limit", "deep", r"""
import sys
sys.setrecursionlimit(10**6)
def f(n): return 0 if n == 0 else 1 + f(n - 1)
print(f(int(input())))
"""),
    style("recursion in a thread with a larger stack", "deep", r"""
import sys, threading
sys.setrecursionlimit(1 << 30)
threading.stack_size(512 * 1024 * 1024)
def f(n): return 0 if n == 0 else 1 + f(n - 1)
def main(): print(f(int(input())))
t = threading.Thread(target=main)
t.start()
t.join()
"""),
    style("recursion through lru_cache", "deep", r"""
import sys
from functools import lru_cache
sys.setrecursionlimit(10**6)
@lru_cache(None)
def f(n): return 0 if n == 0 else 1 + f(n - 1)
print(f(int(input())))
"""),
    style("the bootstrap trick", "deep", r"""
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
    style("raising the stack limit", "deep", r"""
import resource, sys
resource.setrlimit(resource.RLIMIT_STACK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
sys.setrecursionlimit(10**6)
f = lambda n: 0 if n == 0 else 1 + f(n - 1)
print(f(int(input())))
"""),
    style("no line end at the end", "sum",
          "import sys\nsys.stdout.write(str(sum(map(int, sys.stdin.read().split()))))"),
    style("Windows line ends", "sort",
          "n, *x = map(int, open(0).read().split())\nprint(*sorted(x), sep='\\r\\n', end='\\r\\n')"),
    style("a source with Windows line ends", "sum",
          "import sys\r\nx = sys.stdin.read().split()\r\nprint(int(x[0]) + int(x[1]))\r"),
    style("trailing blanks and blank lines", "grid", r"""
n, m = map(int, input().split())
for _ in range(n):
    print(input() + "   ")
print("\n")
"""),
    style("end=' ' in a loop", "grid", r"""
n, m = map(int, input().split())
grid = [list(map(int, input().split())) for _ in range(n)]
for row in grid:
    for x in row:
        print(x, end=" ")
    print()
"""),
    style("pprint and textwrap", "grid", r"""
import textwrap
n, m = map(int, input().split())
print(textwrap.dedent("\n".join("    " + input() for _ in range(n))))
"""),
    style("noise on stderr", "sum", r"""
import sys
a, b = map(int, sys.stdin.read().split())
for i in range(5000): print("debug", i, file=sys.stderr)
print(a + b)
"""),
    style("sys.exit(0)", "sum", "import sys\nprint(sum(map(int, sys.stdin.read().split())))\nsys.exit(0)\nprint('no')"),
    style("exit()", "sum", "import sys\nprint(sum(map(int, sys.stdin.read().split())))\nexit()"),
    style("quit() in a function", "sum", r"""
import sys
def main():
    print(sum(map(int, sys.stdin.read().split())))
    quit()
main()
"""),
    style("raise SystemExit", "sum", "import sys\nprint(sum(map(int, sys.stdin.read().split())))\nraise SystemExit"),
    style("os._exit after a flush", "sum", r"""
import os, sys
print(sum(map(int, sys.stdin.read().split())), flush=True)
os._exit(0)
"""),
    style("atexit prints the answer", "sum", r"""
import atexit, sys
x = sys.stdin.read()
atexit.register(lambda: print(sum(map(int, x.split()))))
"""),
    style("output redirected", "sum", r"""
import contextlib, io, sys
with contextlib.redirect_stdout(io.StringIO()) as out:
    print(sum(map(int, sys.stdin.read().split())))
sys.__stdout__.write(out.getvalue())
"""),
    style("sys.stdout replaced", "sort", r"""
import io, sys
sys.stdout = io.TextIOWrapper(open(1, "wb", buffering=1 << 20), write_through=False)
n, *x = map(int, open(0).read().split())
for y in sorted(x): print(y)
sys.stdout.flush()
"""),
    style("two hundred thousand prints", "sort", r"""
n = int(input())
for x in sorted(map(int, input().split())):
    print(x)
"""),
    style("decimals in other formats", "divide", r"""
a, b = map(int, input().split())
print(f"{a / b:.12e}")
"""),
    style("fractions", "divide", r"""
from fractions import Fraction
a, b = map(int, input().split())
print(float(Fraction(a, b)))
"""),
    style("decimal", "divide", r"""
from decimal import Decimal, getcontext
getcontext().prec = 30
a, b = map(Decimal, input().split())
print(a / b)
"""),
    style("an integer where a decimal is expected", "divide", r"""
a, b = map(int, input().split())
print(a // b if a % b == 0 else round(a / b, 9))
"""),
    style("unicode", "echo", "x = input()\nprint(x)\nprint(len(x))"),
    style("unicode names and a coding line", "echo",
          "# -*- coding: utf-8 -*-\nλ = input()\nprint(λ, len(λ), sep='\\n')"),
    style("a temporary file", "sum", r"""
import os, sys, tempfile
with tempfile.NamedTemporaryFile("w+", dir="/tmp") as f:
    f.write(sys.stdin.read())
    f.seek(0)
    print(sum(map(int, f.read().split())))
"""),
    style("many imports", "sum", r"""
import bisect, cmath, collections, copy, datetime, functools, heapq, itertools, json, math, operator, random, re, string
import sqlite3, statistics, sys, typing, zlib
print(sum(map(int, sys.stdin.read().split())))
"""),
    style("a lambda for main, in one line", "sum",
          "print((lambda s: sum(map(int, s.split())))(__import__('sys').stdin.read()))"),
    style("a main guarded by try", "sum", r"""
import sys, traceback
try:
    a, b = map(int, sys.stdin.read().split())
    print(a + b)
except Exception:
    traceback.print_exc()
finally:
    sys.stdout.flush()
"""),
    style("a signal handler and a timer", "sum", r"""
import signal, sys
signal.signal(signal.SIGALRM, lambda *_: sys.exit(1))
signal.alarm(30)
print(sum(map(int, sys.stdin.read().split())))
signal.alarm(0)
"""),
    style("reading nothing that is not needed", "sum", r"""
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
    style("multiplied strings and star expressions", "sort", r"""
import sys
n, *a = map(int, sys.stdin.read().split())
a.sort()
print(("%d\n" * n) % (*a,), end="")
"""),
]

CPP = [
    style("C++: iostream", "sum", r"""
#include <iostream>
int main() { long long a, b; std::cin >> a >> b; std::cout << a + b << std::endl; }
""", "cpp"),
    style("C++: stdio", "sum",
          "#include <cstdio>\nint main() { int a, b; scanf(\"%d %d\", &a, &b); printf(\"%d\", a + b); }", "cpp"),
    style("C++: bits/stdc++.h and macros", "sort", r"""
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
    style("C++: until the end of the input", "until_end", r"""
#include <iostream>
int main() { long long s = 0, x; while (std::cin >> x) s += x; std::cout << s << "\r\n"; }
""", "cpp"),
    style("C++: deep recursion", "deep", r"""
#include <cstdio>
int f(int n) { volatile char pad[1000]; pad[0] = 0; return n ? 1 + f(n - 1) + pad[0] : 0; }
int main() { int n; scanf("%d", &n); printf("%d\n", f(n)); }
""", "cpp"),
    style("C++: threads", "sum", r"""
#include <iostream>
#include <thread>
int main() { long a, b, c; std::cin >> a >> b; std::thread t([&] { c = a + b; }); t.join(); std::cout << c; }
""", "C++"),
    style("C++: long doubles and exit", "divide", r"""
#include <cstdio>
#include <cstdlib>
int main() { double a, b; if (scanf("%lf%lf", &a, &b) != 2) abort(); printf("%.15Lf\n", (long double)a / b); exit(0); }
""", "cpp"),
]

STYLES = PYTHON + CPP
