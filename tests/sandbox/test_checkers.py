"""A problem's checker must accept the expected output of every test before it judges anything."""

import asyncio

import pytest

from reward_fns import checkers
from reward_fns.code_problem import GroundTruthError
from reward_fns.sandbox import SandboxError
from reward_fns.sandbox.local import LocalSandbox
from reward_fns.unit_tests import compute_score

pytestmark = pytest.mark.usefixtures("isolated")

TESTS = {"inputs": ["1 2\n", "30 12\n", "5 5\n"], "outputs": ["3\n", "42\n", "10\n"]}
RIGHT = "a, b = map(int, input().split())\nprint(a + b)\n"
# Wrong for numbers of two digits, so the second and the third test's expected output is rejected.
SHORT = "import sys\nsys.exit(len(open(sys.argv[2]).read().strip()) > 1)"
ACCEPTS = "import sys\nsys.exit(open(sys.argv[2]).read().split() != open(sys.argv[3]).read().split())"


@pytest.fixture
def runs(monkeypatch):
    """The jobs that were run: files of a checker's run, none of a program's."""
    monkeypatch.setattr(checkers, "_sound", set())
    jobs, run = [], LocalSandbox.run

    async def counted(self, job):
        jobs.append(dict(job.files))
        return await run(self, job)

    monkeypatch.setattr(LocalSandbox, "run", counted)
    return jobs


async def verdict(checker: str, source: str = RIGHT, tests: dict = TESTS, info: dict | None = None) -> str:
    truth = {**tests, "checker": checker}
    return str((await compute_score("contest", f"```python\n{source}```", truth, info))["verdict"])


@pytest.mark.parametrize("source", [RIGHT, "print(3)\n", "1 / 0\n"])
def test_a_checker_that_rejects_a_later_test_is_an_error(source, runs):
    """Whatever the program does: it may fail before that test, and the next one may not."""
    with pytest.raises(GroundTruthError, match=r"checker of a 'contest' problem rejects .* test 2 of 3, .*b'30 12"):
        asyncio.run(verdict(SHORT, source))


def test_the_message_names_the_row_and_the_reason(runs):
    with pytest.raises(GroundTruthError, match=r"'contest' problem \(extra_info.index 7\) .*test 1 of 3.*ZeroDivision"):
        asyncio.run(verdict("1 / 0", info={"index": 7}))


def test_once_per_problem(runs):
    async def group() -> list[str]:
        return await asyncio.gather(*(verdict(ACCEPTS, source) for source in [RIGHT, RIGHT, "print(3)\n", RIGHT]))

    assert asyncio.run(group()) == ["correct", "correct", "wrong", "correct"]
    trials = [job for job in runs if job and job["output"] == job["answer"]]
    judged = 3 * 3 + 1  # right outputs that the programs printed
    assert len(trials) == 3 + judged
    assert asyncio.run(verdict(ACCEPTS)) == "correct"  # in another event loop
    assert len([job for job in runs if job]) == len(trials) + 1 + 3


def test_other_tests_are_another_problem(runs):
    assert asyncio.run(verdict(SHORT, tests={"inputs": ["1 2"], "outputs": ["3"]})) == "correct"
    with pytest.raises(GroundTruthError, match="test 2 of 3"):
        asyncio.run(verdict(SHORT))


def test_without_a_checker_nothing_is_tried(runs):
    result = asyncio.run(compute_score("contest", f"```python\n{RIGHT}```", TESTS))
    assert (result["verdict"], len(runs)) == ("correct", 3)


def test_a_caller_that_gives_up_leaves_the_trial_to_another(runs, monkeypatch):
    run, begun = LocalSandbox.run, asyncio.Event()

    async def slow(self, job):
        begun.set()
        await asyncio.sleep(0.05)
        return await run(self, job)

    async def main() -> str:
        first = asyncio.ensure_future(verdict(ACCEPTS))
        await begun.wait()
        second = asyncio.ensure_future(verdict(ACCEPTS))
        await asyncio.sleep(0)
        first.cancel()
        return await second

    monkeypatch.setattr(LocalSandbox, "run", slow)
    assert asyncio.run(main()) == "correct"


def test_an_outage_is_not_remembered(runs, monkeypatch):
    run = LocalSandbox.run

    async def fails(self, job):
        raise SandboxError("no sandbox")

    monkeypatch.setattr(LocalSandbox, "run", fails)
    with pytest.raises(SandboxError, match="no sandbox"):
        asyncio.run(verdict(ACCEPTS))
    monkeypatch.setattr(LocalSandbox, "run", run)
    assert asyncio.run(verdict(ACCEPTS)) == "correct"
