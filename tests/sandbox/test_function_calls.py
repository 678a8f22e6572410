"""Tests that call a function: the runs that they take, and what enters the sandbox. The attacks are in the suite."""

import asyncio
import os
import signal

import pytest

from reward_fns.sandbox import Job
from reward_fns.sandbox.local import LocalSandbox
from reward_fns.unit_tests import compute_score

pytestmark = pytest.mark.usefixtures("isolated")
ADD = {"fn_name": "add", "asserts": ["assert add(1, 2) == 3", "assert add(30, 12) == 42", "assert add(5, 5) == 10"]}


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


def test_the_expected_values_are_never_sent(jobs: list[Job]) -> None:
    asserts = {"fn_name": "f", "asserts": ["assert f(1) == 'expected text'", "assert f(2) in ['expected text', 7]"]}
    outputs = {"fn_name": "f", "inputs": ["1", "2"], "outputs": ['"expected text"', '["expected text"]']}
    for problem in (asserts, outputs):
        assert verdict("def f(n): return 1", problem) == "wrong"
    assert len(jobs) == 2
    for job in jobs:
        for part in (job.program.code, job.stdin, *job.files.values()):
            assert b"expected text" not in part and b"assert" not in job.stdin


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
    busy = SLOW.replace("if (a, b) == (5, 5):", "if True:").format(seconds=1.0)
    assert verdict(busy, {**ADD, "time_limit": 1.6}) == "correct"
    assert [job.limits.cpu for job in jobs] == pytest.approx([1.76, 1.6, 1.6])


def test_the_time_of_all_calls_together() -> None:
    """The run of all four is stopped after two calls or more; its time counts like that of those after it."""
    busy = "import time\ndef f(x):\n    end = time.process_time() + 0.8\n    while time.process_time() < end: pass\n"
    truth = {"fn_name": "f", "asserts": [f"assert f({n}) == {n}" for n in range(4)], "time_limit": 1.6}
    assert verdict(busy + "    return x", truth) == "correct"
    assert verdict(busy + "    return x", truth, total_time=3.0) == "timeout"


def test_a_function_of_setup_is_not_the_program_s() -> None:
    """LeetCode's setup imports all of heapq, itertools and math."""
    gcd = {
        "fn_name": "gcd",
        "setup": "from math import *",
        "asserts": ["assert gcd(4, 6) == 2", "assert gcd(3, 5) == 1"],
    }
    assert verdict("pass", gcd) == "runtime_error"
    assert verdict("class Solution:\n    def gcd(self, a, b): return math.gcd(a, b)\nimport math", gcd) == "correct"


def test_a_forked_process_judges_too() -> None:
    """The threads of the parent's sandbox are not in it."""
    assert verdict("def add(a, b): return a + b", ADD) == "correct"
    if not (child := os.fork()):
        signal.alarm(60)
        os._exit(verdict("def add(a, b): return a + b", ADD) != "correct")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
