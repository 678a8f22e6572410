"""What ordinary correct programs use beside input and print: threads, time zones, files, databases, large numbers.

The program reads "7 8" and another line; each must end well with the output beside it.
"""

import asyncio
import os
import shutil

import pytest

from reward_fns.sandbox import MB, Job, Program, ProgramLimits
from reward_fns.sandbox.local import LocalSandbox
from reward_fns.unit_tests import compute_score

STDIN = b"7 8\nsecond\n"
LIMITS = ProgramLimits(cpu=8.0, memory=256 * MB, output=16 * MB)
# fmt: off
PROGRAMS = {
    "multiprocessing.dummy.Pool":
        ("from multiprocessing.dummy import Pool\nwith Pool(4) as p: print(sum(p.map(lambda x: x + 1, range(50))))",
         "1275"),
    "multiprocessing.dummy.Pool of the machine's size":
        ("from multiprocessing.dummy import Pool\nprint(sum(Pool().map(int, '1234')))", "10"),
    "ThreadPool, closed and joined":
        ("from multiprocessing.pool import ThreadPool\np = ThreadPool(8)\n"
         "print(sum(p.imap_unordered(int, ['1'] * 200)))\np.close()\np.join()", "200"),
    "multiprocessing's locks and queues in one process":
        ("import multiprocessing as m\nv = m.Value('i', 3)\nq = m.SimpleQueue()\nq.put(4)\nl = m.Lock()\n"
         "with l: print(v.value + q.get())", "7"),
    "as many threads as processors":
        ("import os, threading\nt = [threading.Thread(target=int) for _ in range(os.cpu_count())]\n"
         "for x in t: x.start()\nfor x in t: x.join()\nprint(len(t) <= 64)", "True"),
    "32 threads at a time":
        ("import threading\nb = threading.Barrier(33)\nt = [threading.Thread(target=b.wait) for _ in range(32)]\n"
         "for x in t: x.start()\nb.wait()\nfor x in t: x.join()\nprint('done')", "done"),
    "ThreadPoolExecutor of the default size":
        ("import time\nfrom concurrent.futures import ThreadPoolExecutor\n"
         "with ThreadPoolExecutor() as e: print(sum(e.map(lambda x: (time.sleep(0.001), x)[1], range(200))))", "19900"),
    "sys.exit in a thread":
        ("import sys, threading\nt = threading.Thread(target=lambda: (print(1), sys.exit(3)))\nt.start()\nt.join()",
         "1"),
    "a daemon that sleeps":
        ("import threading, time\nthreading.Thread(target=time.sleep, args=(99,), daemon=True).start()\nprint(1)", "1"),
    "threading.Timer": ("import threading\nthreading.Timer(0.05, print, ['later']).start()\nprint('now')", "now later"),
    "a stack of 512 MB":
        ("import sys, threading\nsys.setrecursionlimit(10**7)\nthreading.stack_size(512 << 20)\n"
         "def f(n): return 0 if n == 0 else 1 + f(n - 1)\n"
         "t = threading.Thread(target=lambda: print(f(100_000)))\nt.start()\nt.join()", "100000"),
    "deep recursion through a cache":  # in steps where Python itself limits recursion through C code
        ("import sys\nfrom functools import cache\nsys.setrecursionlimit(10**6)\n@cache\n"
         "def f(n): return 0 if n == 0 else 1 + f(n - 1)\n"
         "for n in range(0, 20_000, 20_000 if sys.version_info < (3, 12) else 100): f(n)\nprint(f(20_000))", "20000"),
    "an unlimited stack":
        ("import resource, sys\nresource.setrlimit(resource.RLIMIT_STACK, (-1, -1))\nprint('ok')", "ok"),
    "zoneinfo":
        ("from datetime import datetime\nfrom zoneinfo import ZoneInfo\n"
         "print(datetime(2024, 7, 1, 12, tzinfo=ZoneInfo('Europe/Berlin')).astimezone(ZoneInfo('Asia/Tokyo')))",
         "2024-07-01 19:00:00+09:00"),
    "local time": ("import time\nprint(time.strftime('%Y-%m-%d %H:%M', time.localtime(0)))", "1970-01-01 00:00"),
    "locale": ("import locale\nlocale.setlocale(locale.LC_ALL, '')\nprint(f'{1234567:n}')", "1234567"),
    "a number of 14,314 digits": ("print(len(str(3 ** 30000)))", "14314"),
    "a number of 10,000 digits that is read": ("print(int('7' * 10_000) % 1000)", "777"),
    "decimals of 5,000 digits":
        ("from decimal import Decimal, getcontext\ngetcontext().prec = 5000\nprint(len(str(Decimal(2).sqrt())))",
         "5001"),
    "asyncio": ("import asyncio\nasync def f(): return await asyncio.to_thread(input)\nprint(asyncio.run(f()))", "7 8"),
    "input at the end": ("n = 0\ntry:\n    while True: n += len(input())\nexcept EOFError: print(n)", "9"),
    "os.read": ("import os\nprint(os.read(0, 100).split()[1].decode())", "8"),
    "a mapped input": ("import mmap\nprint(mmap.mmap(0, 0, prot=mmap.PROT_READ).readline().decode())", "7 8"),
    "fileinput": ("import fileinput\nprint(sum(len(l) for l in fileinput.input()))", "11"),
    "input read twice": ("import sys\na = sys.stdin.read()\nsys.stdin.seek(0)\nprint(a == sys.stdin.read())", "True"),
    "readline and cmd":
        ("import cmd, readline\nclass C(cmd.Cmd):\n    prompt = ''\n    def default(self, line): print(line)\n"
         "    def do_EOF(self, line): return True\nC().cmdloop()", "7 8 second"),
    "select on the input": ("import select, sys\nprint(len(select.select([sys.stdin], [], [], 5)[0]))", "1"),
    "random numbers":
        ("import random, secrets, uuid\nprint(random.SystemRandom().random() < 1, len(secrets.token_hex()),"
         " uuid.uuid4().version)", "True 64 4"),
    "a million lines": ("print('\\n'.join(map(str, range(10**6))))", " ".join(map(str, range(10**6)))),
    "100,000 flushed lines": ("for i in range(100_000): print(i, flush=True)", " ".join(map(str, range(100_000)))),
    "a database in a file":
        ("import sqlite3\nc = sqlite3.connect('x.db')\nc.execute('create table t(a)')\n"
         "c.executemany('insert into t values(?)', [(i,) for i in range(9)])\nc.commit()\nc.close()\n"
         "print(sqlite3.connect('x.db').execute('select sum(a) from t').fetchone()[0])", "36"),
    "a database with a log":
        ("import sqlite3\nc = sqlite3.connect('x.db')\nprint(c.execute('pragma journal_mode=wal').fetchone()[0])\n"
         "c.execute('create table t(a)')\nc.commit()", "wal"),
    "a shelf": ("import shelve\nwith shelve.open('s') as s:\n    s['a'] = 1\n    print(s['a'])", "1"),
    "locks on its own file":
        ("import fcntl\nf = open('a', 'w')\nfcntl.lockf(f, fcntl.LOCK_EX)\nfcntl.flock(f, fcntl.LOCK_EX)\nprint(1)",
         "1"),
    "copies with times, and archives":
        ("import shutil, tarfile, zipfile\nopen('a', 'w').write('1')\nshutil.copy2('a', 'b')\n"
         "with zipfile.ZipFile('z', 'w') as z: z.write('b')\nzipfile.ZipFile('z').extractall('c')\n"
         "with tarfile.open('t', 'w:gz') as t: t.add('c')\ntarfile.open('t').extractall('d')\n"
         "print(open('d/c/b').read())", "1"),
    "a mapped file":
        ("import mmap\nf = open('a', 'w+b')\nf.write(bytes(4096))\nf.flush()\nm = mmap.mmap(f.fileno(), 0)\n"
         "m[0] = 65\nm.flush()\nprint(open('a').read(1))", "A"),
    "fsync of a file and of the output":
        ("import os, sys\nf = open('a', 'w')\nf.write('1')\nf.flush()\nos.fsync(f.fileno())\nprint(1, flush=True)\n"
         "os.fsync(1)", "1"),
    "preadv": ("import os\nb = bytearray(3)\nos.preadv(0, [b], 0)\nprint(b.decode())", "7 8"),
    "ctypes":
        ("from ctypes import *\nf = CDLL('libm.so.6').sqrt\nf.restype, f.argtypes = c_double, [c_double]\n"
         "print(f(2.25))", "1.5"),
    "signals":
        ("import os, signal\nsignal.signal(signal.SIGUSR1, lambda *_: print('got'))\n"
         "os.kill(os.getpid(), signal.SIGUSR1)\nsignal.setitimer(signal.ITIMER_REAL, 60)", "got"),
    "logging, warnings and noise":
        ("import logging, warnings\nlogging.basicConfig(filename='l', level=10)\nlogging.debug('x')\n"
         "warnings.warn('y')\nprint(len(open('l').read()))", "13"),
    "a module of its own":
        ("import sys\nopen('helper.py', 'w').write('x = 5')\nsys.path.insert(0, '.')\nimport helper\nprint(helper.x)",
         "5"),
    "unittest and doctest": ("import doctest, unittest\ndoctest.testmod()\nunittest.main(exit=False)\nprint(1)", "1"),
}
# fmt: on


@pytest.fixture(scope="module")
def results(isolated: None) -> dict[str, str]:
    sandbox = LocalSandbox()

    async def run(source: str) -> str:
        result = await sandbox.run(Job(Program("python", source.encode()), STDIN, LIMITS))
        if (result.ending, result.exit_code) != ("exited", 0):
            return f"{result.ending}, exit code {result.exit_code}: {result.stderr.decode(errors='replace')}"
        return " ".join(result.stdout.decode().split())

    async def all_of_them() -> list[str]:
        return await asyncio.gather(*(run(source) for source, _ in PROGRAMS.values()))

    return dict(zip(PROGRAMS, asyncio.run(all_of_them()), strict=True))


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_ordinary_program_works(name: str, results: dict[str, str]) -> None:
    if name == "zoneinfo" and not os.path.isdir("/usr/share/zoneinfo"):
        pytest.skip("this machine has no time zones")
    assert results[name][:2000] == PROGRAMS[name][1][:2000]
    assert results[name] == PROGRAMS[name][1]


@pytest.mark.usefixtures("isolated")
@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")
@pytest.mark.parametrize(
    "source",
    [
        "std::vector<int> v{a, b}; std::ranges::sort(v); std::cout << v[0] + v[1];",  # C++20
        "typeof(a) c = a + b; std::cout << c;",  # GNU's extensions
        "int ssize = a; using namespace std; cout << ssize + b;",  # a name that C++20 has
        "std::cout << (std::thread::hardware_concurrency() <= 8 ? a + b : 0);",
        "std::vector<std::thread> t; std::atomic<int> s{0}; for (int x : {a, b}) t.emplace_back([&, x] { s += x; });"
        "for (auto &x : t) x.join(); std::cout << s;",
        "std::random_device r; std::mt19937 g(r()); std::cout << a + b + int(g() - g.max() > 0) * 0;",
    ],
)
def test_an_ordinary_program_in_cpp(source: str) -> None:
    program = f"#include <bits/stdc++.h>\nint main() {{ int a, b; std::cin >> a >> b; {source} }}"
    truth = {"inputs": ["1 2\n"], "outputs": ["3\n"]}
    assert asyncio.run(compute_score("test", f"```C++20\n{program}\n```", truth))["verdict"] == "correct"


@pytest.mark.usefixtures("isolated")
@pytest.mark.parametrize(
    "completion",
    [
        "1. Read.\n2. Add:\n\n   ```python\n   a, b = map(int, input().split())\n   if a:\n       print(a + b)\n   ```",
        "- ```python\n  print(sum(map(int, input().split())))\n  ```",
        "<think>r</think>\n   ```python\n   x = input()\n   print(sum(map(int, x.split())))\n   ```\n",
        "```Python3.11\nprint(sum(map(int, input().split())))\n```",
        "```pypy3\nprint(sum(map(int, input().split())))\n```",
    ],
)
def test_a_program_in_an_ordinary_completion(completion: str) -> None:
    truth = {"inputs": ["1 2\n"], "outputs": ["3\n"]}
    assert asyncio.run(compute_score("test", completion, truth))["verdict"] == "correct"
