"""The limits of a program, whatever it does to its name, its first thread, its priority and its memory."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from reward_fns.sandbox import MB, Job, Program, ProgramLimits, RunResult
from reward_fns.sandbox.local import LocalSandbox
from reward_fns.sandbox.process import fair_share
from reward_fns.unit_tests import compute_score

LIMITS = ProgramLimits(cpu=2.0, memory=128 * MB, output=MB)
SUM = {"inputs": ["1 2\n"], "outputs": ["3\n"]}

# Runs `work` in a thread and ends the first thread, which leaves a process whose own entry in /proc says nothing.
WITHOUT_FIRST_THREAD = """
import ctypes, os, threading, time
def then():
    time.sleep(0.1)
    work()
threading.Thread(target=then).start()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)
"""


def run(source: str, limits: ProgramLimits = LIMITS) -> RunResult:
    return asyncio.run(LocalSandbox().run(Job(Program("python", source.encode()), b"", limits)))


@contextmanager
def busy_core(hogs: int) -> Iterator[None]:
    """This thread, and what it starts, share one core with so many processes that never sleep."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    command = [sys.executable, "-S", "-c", "while True: pass"]
    processes = [subprocess.Popen(command, start_new_session=True) for _ in range(hogs)]
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)
        for process in processes:
            process.kill()
            process.wait()


@pytest.mark.usefixtures("isolated")
@pytest.mark.parametrize("name", [b"\xff", b"a b", b") R 1 (", b"\n\\)\n", b"VmHWM: 1 kB\n"])
def test_a_program_may_have_any_name(name):
    """Its name is part of files in /proc that the judge reads: it need not be text."""
    source = f"""
import ctypes, time
ctypes.CDLL(None).prctl(15, {name!r}, 0, 0, 0)
time.sleep(0.2)
print(sum(map(int, input().split())))
"""
    result = asyncio.run(compute_score("test", f"```python\n{source}\n```", SUM))
    assert result["verdict"] == "correct"


@pytest.mark.usefixtures("isolated")
@pytest.mark.parametrize("file", ["comm", "autogroup", "oom_score_adj", "clear_refs", "timerslack_ns"])
def test_a_program_cannot_write_its_own_entry_in_proc(file):
    result = run(f"open('/proc/self/{file}', 'w').write('5')")
    assert (result.exit_code, b"Read-only file system" in result.stderr) == (1, True)


@pytest.mark.usefixtures("isolated")
@pytest.mark.parametrize(
    ("work", "ending"),
    [
        ("x = []\n    while True: x.append(bytearray(1 << 20))", "memory"),
        ("i = 0\n    while True: i += 1; open(f'/tmp/{i}', 'w').close()", "disk_limit"),
        ("while True: pass", "timeout"),
        ("time.sleep(1000)", "timeout"),
    ],
)
def test_limits_hold_after_the_first_thread_has_ended(work, ending):
    limits = ProgramLimits(cpu=60.0 if ending == "disk_limit" else 1.0, memory=128 * MB, output=MB)
    assert run(f"def work():\n    {work}\n{WITHOUT_FIRST_THREAD}", limits).ending == ending


@pytest.mark.usefixtures("isolated")
def test_a_program_may_end_after_its_first_thread():
    result = run(
        "def work():\n    time.sleep(0.2)\n    print('done', flush=True)\n    os._exit(0)" + WITHOUT_FIRST_THREAD
    )
    assert (result.ending, result.exit_code, result.stdout) == ("exited", 0, b"done\n")


@pytest.mark.usefixtures("isolated")
def test_a_program_cannot_make_itself_wait():
    """Neither by its priority nor by its core: with them it could hold a slot for as long as the machine is busy."""
    result = run("""
import os
calls = [
    lambda: os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0)),
    lambda: os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0)),
    lambda: os.sched_setparam(0, os.sched_param(0)),
    lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}),
    lambda: os.nice(19),
    lambda: os.setpriority(os.PRIO_PROCESS, 0, 19),
]
refused = 0
for call in calls:
    try:
        call()
    except PermissionError:
        refused += 1
print(refused, len(calls))
""")
    assert result.stdout == b"6 6\n", result.stderr


def test_the_share_that_others_leave():
    """Other processes of the machine can only make it smaller, the program's own threads do not count."""
    with busy_core(8):
        assert 0 < fair_share(0) <= 1 / 9
        assert fair_share(1_000_000) == 1.0


@pytest.mark.usefixtures("isolated")
def test_a_threaded_program_on_a_busy_machine_is_not_late():
    """Its first thread sleeps and the other one waits for the core: that does not count either."""
    source = """
import threading, time
def work():
    while time.process_time() < 0.5: pass
    print('done')
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""
    sandbox = LocalSandbox()
    sandbox.prepare()
    with busy_core(8):
        limits = ProgramLimits(cpu=0.8, memory=128 * MB, output=MB)  # 3.4 seconds asleep would be too many
        result = sandbox._run(Job(Program("python", source.encode()), b"", limits))
    assert (result.ending, result.stdout) == ("exited", b"done\n")


@pytest.mark.usefixtures("isolated")
def test_sleeping_on_a_busy_machine_counts():
    sandbox = LocalSandbox()
    sandbox.prepare()
    with busy_core(8):
        job = Job(Program("python", b"import time\ntime.sleep(1000)"), b"", ProgramLimits(0.2, 128 * MB, MB))
        assert sandbox._run(job).ending == "timeout"
