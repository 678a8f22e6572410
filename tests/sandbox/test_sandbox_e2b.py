"""The real e2b client with a local stand-in for its service (e2b_stand_in.py); the live service was never used."""

import asyncio
import base64
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from aiohttp import web

pytest.importorskip("e2b_code_interpreter")

from reward_fns.sandbox import MB, Job, Program, ProgramLimits, SandboxError, e2b
from reward_fns.sandbox.e2b import E2BSandbox
from reward_fns.unit_tests import compute_score
from tests.sandbox.e2b_stand_in import StandIn, gone, send, serve

ROOT = Path(__file__).resolve().parents[2]
TESTS = {"inputs": ["1 2\n", "30 12\n"], "outputs": ["3\n", "42\n"], "time_limit": 0.4, "memory_limit": 128}
RIGHT = "a, b = map(int, input().split())\nprint(a + b)\n"
LIMITS = ProgramLimits(cpu=2.0, memory=128 * MB, output=MB)
KEYS = b"""
import ctypes, os
libc = ctypes.CDLL(None)
add, request = {"x86_64": (248, 249), "aarch64": (217, 218)}[os.uname().machine]
"""
DOUBLE = Job(Program("python", b"print(2 * int(input()))"), b"21\n", LIMITS)


@pytest.fixture
def service(monkeypatch):
    if os.geteuid() != 0 or not os.path.exists("/usr/bin/python3"):
        pytest.skip("the stand-in needs root and /usr/bin/python3")
    service = StandIn()
    with serve(service) as url:
        for name in ("E2B_API_URL", "E2B_SANDBOX_URL"):
            monkeypatch.setenv(name, url)
        monkeypatch.setenv("E2B_API_KEY", "e2b_test")
        monkeypatch.setenv("E2B_HTTP_VERSION", "1.1")
        monkeypatch.setenv("E2B_CONNECTION_RETRIES", "0")
        monkeypatch.setattr(e2b, "PAUSE", 0.02)
        monkeypatch.setattr(e2b, "PATIENCE", 2.0)
        yield service
        e2b._end_all()
        assert service.machines == {}


def double(**kwargs) -> bytes:
    return asyncio.run(E2BSandbox(**kwargs).run(DOUBLE)).stdout


def answer(status: int, message: str = "no"):
    async def fault(request):
        return web.json_response({"code": status, "message": message}, status=status)

    return fault


async def drop(request):
    """The connection breaks while the command runs."""
    response = web.StreamResponse(headers={"Content-Type": "application/connect+json"})
    await response.prepare(request)
    await send(response, {"event": {"start": {"pid": 1}}})
    request.transport.abort()
    return response


def machine_ends(service: StandIn):
    async def fault(request):
        service.machines.clear()
        return gone()

    return fault


@pytest.mark.parametrize(
    ("source", "verdict"),
    [
        (RIGHT, "correct"),
        ("print(3)", "wrong"),
        ("1 / 0", "runtime_error"),
        ("print(", "compile_error"),
        ("while True: pass", "timeout"),
        ("while True: print('x' * 1000)", "output_limit"),
        ("import os, time\nos.close(1)\nos.close(2)\ntime.sleep(100)", "timeout"),
        ("import os, time\nprint(3, flush=True)\nif os.fork() == 0: time.sleep(100)", "wrong"),
        ("x = bytearray(1 << 40)", "memory"),
        (  # in steps where Python itself limits recursion through C code
            "import sys\nfrom functools import cache\nsys.setrecursionlimit(10**6)\n@cache\n"
            "def f(n): return n and 1 + f(n - 1)\n"
            "for n in range(0, 20_000, 20_000 if sys.version_info < (3, 12) else 100): f(n)\nf(20_000)\n" + RIGHT,
            "correct",
        ),
        ("from multiprocessing.dummy import Pool\nPool(28).map(int, '12')\n" + RIGHT, "correct"),
        ("x = str(3 ** 30000)\n" + RIGHT, "correct"),
    ],
)
def test_verdicts(source, verdict, service):
    result = asyncio.run(compute_score("test", f"```python\n{source}\n```", TESTS, backend="e2b", slots=2))
    assert result["verdict"] == verdict


def test_the_request_for_a_machine(service):
    double(template="mine")
    assert [(body["templateID"], body["allow_internet_access"]) for body in service.requests] == [("mine", False)]


def test_a_checker_and_no_other_language(service):
    checker = "import sys\nsys.exit(open(sys.argv[2]).read() != open(sys.argv[3]).read())"
    result = asyncio.run(
        compute_score("t", f"```py\n{RIGHT}```", {**TESTS, "checker": checker}, backend="e2b", slots=2)
    )
    assert result["verdict"] == "correct"
    result = asyncio.run(compute_score("t", "```cpp\nint main() {}\n```", TESTS, backend="e2b", slots=2))
    assert result["verdict"] == "language"


def test_machines_are_used_again_and_never_too_many(service):
    async def main() -> list[bytes]:
        sandbox = E2BSandbox(slots=2)
        return [run.stdout for run in await asyncio.gather(*(sandbox.run(DOUBLE) for _ in range(12)))]

    assert asyncio.run(main()) == [b"42\n"] * 12
    assert service.created == service.most == 2


@pytest.mark.parametrize(
    ("leave", "look"),
    [
        (
            b"for f in ('/tmp/x', '/var/tmp/x', '/dev/shm/x'): open(f, 'w').write('left')",
            b"import os\nprint([f for f in ('/tmp/x', '/var/tmp/x', '/dev/shm/x') if os.path.exists(f)])",
        ),
        (
            b"try: open('/run/lock/agon-verl-test', 'w').write('left')\nexcept OSError: pass",
            b"import os\nprint([f for f in os.listdir('/run/lock') if 'agon' in f])",
        ),
        (
            KEYS + b"libc.syscall(add, b'user', b'agon', b'left', 4, -4)",
            KEYS + b"print([key for key in [libc.syscall(request, b'user', b'agon', None, 0)] if key > 0])",
        ),
    ],
    ids=["temporary folders", "other folders", "keys"],
)
def test_one_sample_leaves_nothing_to_the_next(leave, look, service):

    async def main() -> bytes:
        sandbox = E2BSandbox(slots=1)
        left = await sandbox.run(Job(Program("python", leave), b"", LIMITS))
        assert (left.exit_code, left.stderr) == (0, b"")
        return (await sandbox.run(Job(Program("python", look), b"", LIMITS))).stdout

    assert asyncio.run(main()) == b"[]\n"
    assert service.created == 1


def test_nothing_is_left_on_a_device(service):
    before = os.stat("/dev/null")
    touch = Job(Program("python", b"import os\nos.utime('/dev/null')"), b"", LIMITS)
    assert b"Read-only file system" in asyncio.run(E2BSandbox(slots=1).run(touch)).stderr
    assert os.stat("/dev/null") == before


@pytest.mark.parametrize(
    ("operation", "status"), [("create", 429), ("create", 503), ("create", 500), ("write", 429), ("start", 429)]
)
def test_a_busy_service_is_waited_for(operation, status, service):
    service.faults[operation] = [answer(status)] * 3
    assert double() == b"42\n"
    assert service.created == 1 and not service.faults[operation]


@pytest.mark.parametrize("operation", ["create", "start"])
def test_a_service_that_stays_busy_is_an_outage(operation, service):
    service.faults[operation] = [answer(429)] * 10_000
    began = time.monotonic()
    with pytest.raises(SandboxError, match="e2b was busy or out of reach for 2 s"):
        double()
    assert 0.5 < time.monotonic() - began < 30
    assert 3 < 10_000 - len(service.faults[operation]) < 40  # the pauses grow


@pytest.mark.parametrize("fault", [drop, answer(503, "port is not open"), answer(502, "was not found")])
def test_a_machine_that_is_lost_is_replaced(fault, service):
    async def main() -> list[bytes]:
        sandbox = E2BSandbox(slots=1)
        first = (await sandbox.run(DOUBLE)).stdout
        service.faults["start"] = [fault]
        return [first, (await sandbox.run(DOUBLE)).stdout]

    assert asyncio.run(main()) == [b"42\n"] * 2
    assert service.created == 2


def test_a_machine_whose_time_was_up_is_replaced(service):
    async def main() -> list[bytes]:
        sandbox = E2BSandbox(slots=1)
        first = (await sandbox.run(DOUBLE)).stdout
        service.faults["write"] = [machine_ends(service)]
        return [first, (await sandbox.run(DOUBLE)).stdout]

    assert asyncio.run(main()) == [b"42\n"] * 2


def test_a_machine_that_hangs_is_replaced(service, monkeypatch):
    """A run ends by its own limit; if it does not, the machine has failed, not the program."""
    monkeypatch.setattr(e2b, "_GRACE", 0.0)

    async def hang(request):
        await asyncio.sleep(60)

    async def main() -> list[bytes]:
        sandbox = E2BSandbox(slots=1)
        first = (await sandbox.run(DOUBLE)).stdout
        service.faults["start"] = [hang]
        quick = Job(DOUBLE.program, DOUBLE.stdin, ProgramLimits(0.5, 128 * MB, MB))
        return [first, (await sandbox.run(quick)).stdout]

    assert asyncio.run(main()) == [b"42\n"] * 2
    assert service.created == 2


def test_machines_that_are_lost_again_and_again_are_an_outage(service):
    async def main() -> None:
        sandbox = E2BSandbox(slots=1)
        await sandbox.run(DOUBLE)

        async def lose(request):
            """The job, but not the trial run of a new machine."""
            return None if service.calls["start"] % 2 else await drop(request)

        service.calls["start"] = 1
        service.faults["start"] = [lose] * 100
        await sandbox.run(DOUBLE)

    with pytest.raises(SandboxError, match="3 e2b machines were lost on one run"):
        asyncio.run(main())


def test_no_service_no_key_and_no_template_are_outages(service, monkeypatch):
    service.faults["create"] = [answer(400, "template 'x' not found")]
    with pytest.raises(SandboxError, match="template 'x' not found"):
        double()
    monkeypatch.setenv("E2B_API_KEY", "wrong")
    with pytest.raises(SandboxError, match="Invalid API key"):
        double()
    monkeypatch.setenv("E2B_API_URL", "http://127.0.0.1:1")
    with pytest.raises(SandboxError, match="out of reach for 2 s"):
        double()


def test_a_machine_without_what_is_needed_is_refused(service):
    """Otherwise every program would fail on it and count as wrong."""

    async def no_python(request):
        response = web.StreamResponse(headers={"Content-Type": "application/connect+json"})
        await response.prepare(request)
        await send(response, {"event": {"start": {"pid": 1}}})
        await send(response, {"event": {"end": {"exitCode": 127, "exited": True, "status": "exit status 127"}}})
        await send(response, {}, flags=2)
        return response

    service.faults["start"] = [no_python]
    with pytest.raises(SandboxError, match="code 127"):
        double()


def test_a_caller_that_gives_up_costs_a_machine_not_an_answer(service):
    async def main() -> bytes:
        sandbox = E2BSandbox(slots=1)
        await sandbox.run(DOUBLE)
        sleeper = Job(Program("python", b"import time\ntime.sleep(4)"), b"", LIMITS)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(sandbox.run(sleeper), 0.5)
        return (await sandbox.run(DOUBLE)).stdout

    assert asyncio.run(main()) == b"42\n"
    assert service.created == 2 and service.most == 1


def test_a_long_run_keeps_its_machine_alive(service, monkeypatch):
    monkeypatch.setattr(e2b, "LIFETIME", 0)
    assert double() == b"42\n"
    assert service.calls["timeout"] == 2  # the trial run of a new machine, and ours


def test_machines_are_ended_at_exit(service):
    source = f"""
import asyncio
from reward_fns.sandbox import *
from reward_fns.sandbox.e2b import E2BSandbox
print(asyncio.run(E2BSandbox(slots=1).run({DOUBLE!r})).stdout)
"""
    done = subprocess.run([sys.executable, "-c", source], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "b'42\\n'\n", done.stderr
    assert (service.created, service.machines) == (1, {})


@pytest.mark.parametrize("grouped", [True, False])
@pytest.mark.parametrize(
    ("source", "ending"),
    [
        (
            "import os, time\nfor _ in range(4):\n"
            "    if os.fork() == 0: x = b'x' * (60 << 20); time.sleep(9)\nos.wait()",
            "memory",
        ),
        ("import os\nif os.fork() == 0:\n    while True: pass\nos.wait()", "timeout"),
        ("import os\nif os.fork() == 0: print(2, flush=True); os._exit(0)\nos.wait()", "exited"),
    ],
)
def test_limits_count_all_processes_of_a_run(source, ending, grouped, tmp_path):
    """Programs may fork on an e2b machine: none of the processes alone is above the limit here.

    The guest is a process of its own: the largest memory of a child includes what its parent had when it forked.
    """
    if os.geteuid() != 0:
        pytest.skip("the guest runs as root")
    content = base64.b64encode(source.encode()).decode()
    job = {"files": {"main": content}, "stdin": "", "cpu": 0.6, "memory": 96 * MB, "output": MB, "wall": 20.0}
    (tmp_path / "job.json").write_text(json.dumps(job))
    lines = [
        "import sys",
        "from reward_fns.sandbox import guest",
        "sys.executable = '/usr/bin/python3'",  # another user may read it
        "" if grouped else "guest.make_group = lambda memory: None",
        "guest.main(sys.argv[1])",
    ]
    command = [sys.executable, "-c", "\n".join(lines), str(tmp_path / "job.json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    result = json.loads(done.stdout)
    assert result["ending"] == ending, done.stderr
    assert ending != "timeout" or result["cpu"] > 0.6  # also of a program that was killed
