"""The limits of a program, whatever it does to its name, its first thread, its priority and its memory."""

import asyncio
import os
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from reward_fns.sandbox import MB, Job, Program, ProgramLimits, RunResult, SandboxError, launchers, process
from reward_fns.sandbox.launchers import end_launchers, memory_keeper
from reward_fns.sandbox.local import LocalSandbox
from reward_fns.sandbox.process import Launch, fair_share, supervise
from reward_fns.unit_tests import compute_score
from tests.sandbox.ordinary_user import ordinary_user

ROOT = Path(__file__).resolve().parents[2]
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
    end_launchers()  # a program has the cores of its launcher: a new one has the core of this thread
    os.sched_setaffinity(0, {min(cores)})
    command = [sys.executable, "-S", "-c", "print(flush=True)\nwhile True: pass"]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) for _ in range(hogs)]
    try:
        for process in processes:
            assert process.stdout.read(1) == b"\n"  # it has begun
        yield
    finally:
        os.sched_setaffinity(0, cores)
        end_launchers()
        for process in processes:
            process.kill()
            process.communicate()


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
        ("while True: pass", "timeout"),
        ("time.sleep(1000)", "timeout"),
    ],
)
def test_limits_hold_after_the_first_thread_has_ended(work, ending):
    limits = ProgramLimits(cpu=1.0, memory=128 * MB, output=MB)
    assert run(f"def work():\n    {work}\n{WITHOUT_FIRST_THREAD}", limits).ending == ending


@pytest.mark.usefixtures("isolated")
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_full_pipe_does_not_delay_the_end(stream, monkeypatch):
    """What surrounds the program may report its end on stderr, and must not wait for room there."""
    ended, wait = [], process._wait
    monkeypatch.setattr(process, "_wait", lambda pidfd: ended.append(wait(pidfd)))
    result = run(f"import sys\nwhile True: sys.{stream}.write('x' * 100_000)")
    assert (result.ending, all(ended), len(ended) > 0) == ("output_limit", True, True)


ENDLESS_FILES = "def work():\n    i = 0\n    while True: i += 1; open(f'/tmp/{i}', 'w').close()" + WITHOUT_FIRST_THREAD


@pytest.mark.usefixtures("isolated")
def test_the_watch_limits_files_where_the_kernel_refuses_to(monkeypatch):
    monkeypatch.setattr(launchers.Launcher, "limit_inodes", lambda *_: False)
    assert run(ENDLESS_FILES, ProgramLimits(cpu=60.0, memory=128 * MB, output=MB)).ending == "disk_limit"


FILES = """
import os
from reward_fns.sandbox import *
from reward_fns.sandbox.local import LocalSandbox
source = b'''
import os
made = 0
try:
    while made < 20_000:
        made += 1
        os.{call}
except OSError as error:
    print(made, os.strerror(error.errno))
space = os.statvfs("/tmp")
print(space.f_files, space.f_blocks * space.f_frsize >> 20)
'''
result = LocalSandbox()._run(Job(Program("python", source), b"", ProgramLimits(20.0, 128 * MB, MB)))
assert result.stdout == b"4096 No space left on device\\n4096 16\\n", result
"""


def errors(command: list[str], folder: str, source: str) -> str:
    """What a script that uses our packages writes to stderr; empty if it ends well."""
    script = [*command, "-c", source]
    done = subprocess.run(script, env={"PYTHONPATH": folder}, cwd="/", capture_output=True, text=True)
    return done.stderr or f"exit code {done.returncode}" * bool(done.returncode)


@pytest.mark.usefixtures("isolated")
@pytest.mark.parametrize("user", ["this", "another"])
@pytest.mark.parametrize(
    "call",
    [
        "mkdir(f'/tmp/{made}')",
        "close(os.open(f'/tmp/{made}', os.O_CREAT))",
        "link('/tmp/1', f'/tmp/{made}') if made > 1 else os.mkfifo('/tmp/1')",
    ],
)
def test_the_kernel_limits_files(call, user):
    """Exactly, however fast they are made: the first of 4,096 is /tmp itself."""
    environment = nullcontext(([sys.executable], str(ROOT))) if user == "this" else ordinary_user()
    with environment as (command, folder):
        assert errors(command, folder, FILES.replace("{call}", call)) == ""


OTHER_LAUNCHER = """
import sys
sys.path.insert(0, {folder!r})
import launcher
launcher.{function} = lambda *_: {result}
launcher.main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
"""


@pytest.mark.usefixtures("isolated")
@pytest.mark.parametrize(
    ("function", "result"),
    [("inside", "sys.exit()"), ("make_namespaces", "False")],
    ids=["in its own namespaces", "where the machine refuses them"],
)
def test_an_ordinary_users_launcher_limits_files(function, result):
    """By its rights over all sandboxes, without a process per program; else by entering each sandbox."""
    with ordinary_user() as (command, folder):
        script = Path(folder, "other_launcher.py")
        sandbox = f"{folder}/reward_fns/sandbox"
        script.write_text(OTHER_LAUNCHER.format(folder=sandbox, function=function, result=result))
        program = f"from reward_fns.sandbox import launchers\nlaunchers._SCRIPT = {str(script)!r}\n"
        assert errors(command, folder, program + FILES.replace("{call}", "mkdir(f'/tmp/{made}')")) == ""


RIGHTS = """
import os
from reward_fns.sandbox import *
from reward_fns.sandbox import launchers
from reward_fns.sandbox.local import LocalSandbox

def namespaces(process):
    return {os.readlink(f"/proc/{process}/ns/{kind}") for kind in ("user", "mnt")}

def run(trusted):
    look = b"import os; print(*(os.readlink(f'/proc/self/ns/{kind}') for kind in ('user', 'mnt')))"
    job = Job(Program("python", look), b"", ProgramLimits(5.0, 128 * MB, MB))
    return set(LocalSandbox(1, trusted)._run(job).stdout.decode().split())

sandboxed, trusted, own = run(False), run(True), namespaces("self")
with launchers.launcher() as one:
    above = namespaces(one._process.pid)
    reader, writer = os.pipe()
    null = os.open("/dev/null", os.O_RDWR)
    one.start(["/bin/cat", "/proc/self/status"], [null, writer, null], "/", 128 * MB)
    os.close(writer)
    status = open(reader).read()
    one.collect()
assert trusted == own
assert len(own | above | sandboxed) == 6
status = dict(line.split(":", 1) for line in status.splitlines())
assert [int(status[f"Cap{kind}"], 16) for kind in ("Inh", "Prm", "Eff", "Amb")] == [0, 0, 0, 0]
assert status["Uid"].split() == [str(os.getuid())] * 4
"""


@pytest.mark.usefixtures("isolated")
def test_an_ordinary_users_launcher_keeps_its_rights_to_itself():
    """Sandboxes have namespaces below the launcher's, trusted programs the judge's, and no command has its rights."""
    with ordinary_user() as (command, folder):
        assert errors([*command, "-W", "ignore"], folder, RIGHTS) == ""


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


# Ready for six seconds. It measures that by the clock: a virtual machine may count as CPU time what its host took.
READY = """
import threading, time
end = time.monotonic() + 6
def work():
    while time.monotonic() < end: pass
    print('done')
thread = threading.Thread(target=work)
"""


@pytest.mark.usefixtures("isolated")
@pytest.mark.parametrize("begin", ["thread.run()", "thread.start()"], ids=["first thread", "another thread"])
def test_waiting_for_a_core_does_not_count(begin):
    """Nor if the first thread sleeps meanwhile, and another one waits."""
    limits = ProgramLimits(cpu=1.5, memory=128 * MB, output=MB)  # 5.5 seconds asleep would be too many
    sandbox = LocalSandbox()
    sandbox.prepare()
    with busy_core(8):
        result = sandbox._run(Job(Program("python", f"{READY}{begin}".encode()), b"", limits))
    assert (result.ending, result.stdout) == ("exited", b"done\n")
    assert result.wall < limits.wall


@pytest.mark.usefixtures("isolated")
@pytest.mark.parametrize(("then", "ending"), [("", "timeout"), ("print('x' * 2_000_000)", "output_limit")])
def test_the_time_of_a_killed_program_is_known(then, ending):
    """The process that starts a sandbox may be killed before it has heard what its program used."""
    source = f"import time\nwhile time.process_time() < 0.5: pass\n{then}\nwhile True: pass"
    result = run(source, ProgramLimits(cpu=1.0, memory=128 * MB, output=MB))
    assert result.ending == ending
    assert result.cpu > (1.0 if ending == "timeout" else 0.3)


@pytest.mark.usefixtures("isolated")
def test_sleeping_on_a_busy_machine_counts():
    sandbox = LocalSandbox()
    sandbox.prepare()
    with busy_core(8):
        job = Job(Program("python", b"import time\ntime.sleep(1000)"), b"", ProgramLimits(0.2, 128 * MB, MB))
        assert sandbox._run(job).ending == "timeout"


# Pages of a shared mapping without a file stay when they are unmapped, if one of them is not: no process has them.
UNMAPPED = """
import ctypes, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
size = 16 << 20
for _ in range(30):
    place = libc.mmap(None, size, 3, 0x21, -1, 0)
    if place == ctypes.c_void_p(-1).value:
        sys.exit("refused")
    ctypes.memset(place, 1, size)
    libc.munmap(place + 4096, size - 4096)
time.sleep(0.2)
"""


@pytest.mark.usefixtures("isolated")
def test_memory_that_no_process_has_is_refused():
    assert run(UNMAPPED).stderr == b"refused\n"


@pytest.mark.usefixtures("isolated")
def test_the_kernel_keeps_the_memory_limit(monkeypatch):
    """Also of what no process has: here the filter lets it through, and the watch cannot see it."""
    if not memory_keeper().startswith("the kernel"):
        pytest.skip("no memory cgroup can be made here")
    sandbox = LocalSandbox()
    sandbox.prepare()
    for kind in sandbox._kinds.values():
        monkeypatch.setattr(kind, "filter", struct.pack("<HBBI", 6, 0, 0, 0x7FFF0000))  # allows everything
    job = Job(Program("python", UNMAPPED.encode()), b"", LIMITS)
    assert sandbox._run(job).ending == "memory"
    next_one = sandbox._run(Job(Program("python", b"print(len(bytearray(64 << 20)))"), b"", LIMITS))
    assert (next_one.ending, next_one.stdout) == ("exited", b"67108864\n")


@pytest.mark.usefixtures("isolated")
def test_memory_that_an_earlier_program_has_left_is_not_counted():
    """The kernel frees some memory after a program has ended; here a file keeps it in the group."""
    if not memory_keeper().startswith("the kernel"):
        pytest.skip("no memory cgroup can be made here")
    with launchers.launcher() as one, tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        script = f"open({str(one.group.folder / 'cgroup.procs')!r}, 'w').write('0')\n"
        subprocess.run(
            [sys.executable, "-c", script + f"open({file.name!r}, 'wb').write(bytes(100 << 20))"], check=True
        )
        launchers._idle.append(one)
        result = run("print(len(bytearray(64 << 20)))")
        assert (result.ending, result.stdout) == ("exited", b"67108864\n")
        assert not one.usable


@pytest.mark.usefixtures("isolated")
def test_a_limit_that_is_too_small_to_start_is_a_verdict():
    if not memory_keeper().startswith("the kernel"):
        pytest.skip("no memory cgroup can be made here")
    end_launchers()
    with launchers.launcher() as one:
        folder = one.group.folder
    assert run("print(1)", ProgramLimits(cpu=1.0, memory=3 * MB, output=MB)).ending == "memory"
    assert run("print(1)").stdout == b"1\n"
    end_launchers()
    assert not folder.exists()


@pytest.mark.usefixtures("isolated")
def test_the_kernel_kills_the_program_first():
    assert run("print(open('/proc/self/oom_score_adj').read())").stdout.strip() == b"1000"
    lower = "from pathlib import Path; Path('/proc/self/oom_score_adj').write_text('-1000')"
    if subprocess.run([sys.executable, "-c", lower], capture_output=True).returncode:
        pytest.skip("this user may not protect a process from being killed")
    with launchers.launcher() as one:
        assert int(Path(f"/proc/{one._process.pid}/oom_score_adj").read_text()) == -1000


class SilentLaunch(Launch):
    """A sandbox that ends before its program starts, and does not say why."""

    command, fds, cwd = ["/bin/sh", "-c", "exit 7"], [], "/"

    def begin(self, launcher, command):
        return None


def test_a_sandbox_that_fails_silently_has_a_reason():
    with pytest.raises(SandboxError, match="/bin/sh could not start the program: it ended with code 7"):
        supervise(SilentLaunch(), b"", LIMITS)


@pytest.mark.usefixtures("isolated")
@pytest.mark.parametrize("keeper", ["kernel", "watch"])
def test_files_in_tmp_count_as_memory(keeper, monkeypatch):
    end_launchers()
    if keeper == "watch":
        monkeypatch.setattr(launchers, "_place", [None])
    source = "open('/tmp/x', 'wb').write(bytes(12 << 20))\nx = bytearray({} << 20)\nwhile True: pass"
    limits = ProgramLimits(cpu=0.5, memory=64 * MB, output=MB)
    assert run(source.format(50), limits).ending == "memory"
    assert run(source.format(20), limits).ending == "timeout"
    end_launchers()


@pytest.mark.usefixtures("isolated")
def test_launchers_end_and_leave_no_group():
    run("print(1)")
    with launchers.launcher() as one:
        group, process = one.group, one._process
    end_launchers()
    assert process.returncode == 0
    assert group is None or not group.folder.exists()


def test_a_sandbox_that_has_ended_before_its_files_are_limited_costs_no_launcher():
    gone = subprocess.Popen(["true"])
    gone.wait()
    with launchers.launcher() as one:
        assert one.limit_inodes(gone.pid, "/tmp", MB, 100) is False
        assert one.usable


def test_a_launcher_that_has_ended_by_itself_is_reported():
    """It has removed its memory group, so nothing says whether the kernel killed a program."""
    with launchers.launcher() as one:
        one._connection.shutdown(socket.SHUT_WR)
        one._process.wait()
        with pytest.raises(SandboxError, match="the launcher of programs has ended"):
            one.limit_inodes(1, "/tmp", MB, 100)


@pytest.mark.usefixtures("isolated")
def test_a_launcher_that_was_killed_is_replaced():
    run("print(1)")
    with launchers.launcher() as one:
        one._process.kill()
        one._process.wait()
    assert run("print(1)").stdout == b"1\n"


KILLED_WHILE_STARTING = """
import ctypes, os, signal, time
from reward_fns.sandbox import *
from reward_fns.sandbox import launchers
from reward_fns.sandbox.local import LocalSandbox
assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0  # orphans become children of this process
sandbox = LocalSandbox()
sandbox.prepare()
launchers.end_launchers()
write = os.write

def start_and_die(descriptor, data):
    written = write(descriptor, data)
    if data == b"1":  # the signal to start
        os.kill(os.getpid(), signal.SIGKILL)
    return written

for _ in range(20):
    judge = os.fork()
    if judge == 0:
        os.write = start_and_die
        job = Job(Program("python", b"import time; time.sleep(1000)"), b"", ProgramLimits(300.0, 128 * MB, MB))
        sandbox._run(job)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(judge, 0)[1]) == -signal.SIGKILL
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
print("nothing left", flush=True)
"""


@pytest.mark.usefixtures("isolated")
@pytest.mark.parametrize("user", ["this user", "an ordinary user"])
def test_judges_that_are_killed_while_they_start_programs_leave_none(user):
    """Bubblewrap sets the parent-death signal late: if its parent is gone by then, the program would stay."""
    with nullcontext(([sys.executable], str(ROOT))) if user == "this user" else ordinary_user() as (command, folder):
        script = [*command, "-c", KILLED_WHILE_STARTING]
        done = subprocess.run(script, cwd=folder, env={}, capture_output=True, text=True, timeout=300)
    assert done.stdout == "nothing left\n", done.stderr
