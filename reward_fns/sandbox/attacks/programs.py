"""What a hostile or an honest program is: its source, the problem that it is judged on, and how that must end.

Every problem is made so that a success can be seen from outside. The answer of a SECRET problem is a token that only
the judge has: whoever prints it has read an expected output. The answer of a BREACH problem is the word "breached",
which a program prints after something that it must not be able to do. In both cases a point means a hole. The other
problems can be solved; an attack on one of these tries to score without solving it, or (`solves`) solves it and tries
to exceed a limit meanwhile.

In a source `@FILE@` is a readable file of the host with the expected outputs, `@PID@` the judge's process, `@PORT@` a
port of the host that is listened on, `@MARK@` a name for files that must not be left behind and `@START@` a time of the
monotonic clock at which two programs meet.
"""

import random
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

SEARCH = r"""
import re, sys
def search(text):
    if isinstance(text, bytes):
        text = text.decode("latin-1")
    hit = re.search("SECRET-[0-9a-f]{32}", text)
    if hit:
        print(hit.group())
        sys.exit()
"""

# name: (x86_64, aarch64); None where the architecture has no such call
SYSTEM_CALLS: dict[str, tuple[int | None, int | None]] = {
    "acct": (163, 89), "add_key": (248, 217), "bpf": (321, 280), "cachestat": (451, 451), "chroot": (161, 51),
    "clock_settime": (227, 112), "clone": (56, 220), "clone3": (435, 435), "delete_module": (176, 106),
    "exit": (60, 93),
    "fanotify_init": (300, 262), "finit_module": (313, 273), "fork": (57, None), "fsconfig": (431, 431),
    "fsmount": (432, 432), "fsopen": (430, 430), "fspick": (433, 433), "init_module": (175, 105),
    "inotify_init": (253, None), "inotify_init1": (294, 26), "io_setup": (206, 0), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "io_uring_setup": (425, 425), "ioperm": (173, None), "iopl": (172, None),
    "kcmp": (312, 272), "kexec_file_load": (320, 294), "kexec_load": (246, 104), "keyctl": (250, 219),
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "mincore": (27, 232), "mount": (165, 40),
    "mount_setattr": (442, 442), "move_mount": (429, 429), "mq_open": (240, 180), "msgget": (68, 186),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "open_tree": (428, 428),
    "perf_event_open": (298, 241), "personality": (135, 92), "pidfd_getfd": (438, 438), "pivot_root": (155, 41),
    "process_madvise": (440, 440), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "ptrace": (101, 117), "reboot": (169, 142), "request_key": (249, 218), "semget": (64, 190),
    "setdomainname": (171, 162), "sethostname": (170, 161), "setns": (308, 268), "settimeofday": (164, 170),
    "shmget": (29, 194), "socket": (41, 198), "socketpair": (53, 199), "swapoff": (168, 225), "swapon": (167, 224),
    "sync": (162, 81), "syncfs": (306, 267), "syslog": (103, 116), "umount2": (166, 39), "unshare": (272, 97),
    "userfaultfd": (323, 282), "vfork": (58, None), "vhangup": (153, 58), "vmsplice": (278, 75),
}  # fmt: skip

# `call` makes a system call by its name and raises OSError if it is refused.
CALLS = f"""
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
NUMBERS = {SYSTEM_CALLS!r}
def must(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return result
def call(name, *arguments):
    number = NUMBERS[name][os.uname().machine == "aarch64"]
    if number is None:
        raise OSError(errno.ENOSYS, "not on this machine")
    return must(libc.syscall(number, *arguments))
"""

# A place of `size` bytes that is really used, as the C library hands out none that Python counts.
PAGES = (
    CALLS
    + r"""
def pages(size, flags=0x22):
    at = libc.mmap(None, size, 3, flags, -1, 0)
    if at in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "no memory")
    ctypes.memset(at, 1, size)
    return at
"""
)

SOLVE = "\nprint(sum(map(int, open(0).read().split())))\n"  # the problem "sum"


@dataclass(frozen=True, slots=True)
class Attack:
    """A program that must not reach what it tries.

    `verdict` is what it gets in the local sandbox, several joined by "|": another one is no hole, but a surprise.
    `solves`: it solves its problem, so a point is no hole by itself; its attack is on a limit. `local`: it tries
    something that only the local sandbox forbids (an e2b machine has a kernel and files of its own). `partner` runs
    beside it, in another sandbox. `alone`: no other attack runs meanwhile. `busy`: another process of the host competes
    for its core. `kill_judge`: the judge is killed while it runs.
    """

    name: str
    source: str
    verdict: str
    language: str = "python"
    problem: str = "secret"
    family: str = ""
    cpu: float = 0.5
    memory: int = 96
    solves: bool = False
    local: bool = False
    partner: str | None = None
    alone: bool = False
    busy: bool = False
    kill_judge: bool = False


@dataclass(frozen=True, slots=True)
class Honest:
    """A program that solves its problem. `indent` is the depth of its block in a list; `busy` as for an attack."""

    name: str
    problem: str
    source: str
    language: str = "python"
    indent: int = 0
    cpu: float = 10.0
    memory: int = 256
    busy: bool = False


def attack(name: str, verdict: str, source: str, **kwargs: Any) -> Attack:
    return Attack(name, source, verdict, **kwargs)


def breach(name: str, source: str, verdict: str = "runtime_error", **kwargs: Any) -> Attack:
    """An attack whose source must not come to its end."""
    return Attack(name, source + "\nprint('breached')", verdict, problem="breach", **kwargs)


def _sorted_numbers(seed: int, size: int) -> tuple[str, str]:
    numbers = [random.Random(seed).randrange(-(10**9), 10**9) for _ in range(size)]
    return f"{size}\n{' '.join(map(str, numbers))}\n", "\n".join(map(str, sorted(numbers))) + "\n"


def _tests(*cases: tuple[str, str]) -> dict[str, Any]:
    return {"inputs": [case[0] for case in cases], "outputs": [case[1] for case in cases]}


PROBLEMS: dict[str, dict[str, Any]] = {
    "breach": _tests(("1\n", "breached\n")),
    # two numbers: their sum
    "sum": _tests(("1 2\n", "3\n"), ("30 12", "42"), ("-5\n-6\n", "-11\n")),
    # the same once, for attacks that take long
    "one_sum": _tests(("1 2\n", "3\n")),
    # a small number
    "tiny": _tests(("1\n", "1e-9\n"), ("2\n", "0.000000002\n")),
    # an answer of megabytes, so that a tenth of the output limit is more than a pipe holds
    "long": _tests(("1\n", "0123456789 " * 220_000)),
    # numbers until the end of the input: their sum
    "until_end": _tests(("1\n2\n3\n", "6\n"), ("10", "10\n"), ("4 5\n\n6\n", "15\n")),
    # n, then n numbers: sorted, one per line
    "sort": _tests(("3\n3 1 2\n", "1\n2\n3\n"), _sorted_numbers(0, 100), _sorted_numbers(1, 200_000)),
    # a / b
    "divide": _tests(
        ("1 3\n", "0.333333333\n"),
        ("2 1\n", "2.0\n"),
        ("1000000 7\n", "142857.142857143\n"),
        ("1 1000000\n", f"{float(Fraction(1, 10**6)):.10f}\n"),
    ),
    # n: the nodes of a path of n nodes, counted by recursion
    "deep": _tests(("10\n", "10\n"), ("50000\n", "50000\n")),
    # a line of text: the same, and its length in characters
    "echo": _tests(("hello\n", "hello\n5\n"), ("grüße 日本 🙂\n", "grüße 日本 🙂\n10\n")),
    # n m, then a grid: the same grid
    "grid": _tests(("2 3\n1 2 3\n4 5 6\n", "1 2 3\n4 5 6\n"), ("1 1\n7\n", "7\n")),
}
