"""A problem's own checker: a Python program, run in a sandbox, that decides where more than one output is correct.

A checker that rejects a correct output makes correct programs wrong, and nothing shows it. So before the first program
of a problem is judged, its checker must accept the expected output of every test. This happens once per problem and
process: the samples of a group, which arrive together, wait for one and the same trial.
"""

import asyncio
import hashlib
import threading
from concurrent.futures import Future
from dataclasses import dataclass

from reward_fns.code_problem import CodeProblem, GroundTruthError
from reward_fns.sandbox import MB, Job, Program, ProgramLimits, RunResult, Sandbox

_LIMITS = ProgramLimits(cpu=10.0, memory=1024 * MB, output=MB)
_SHOWN = 200  # characters of an input or an error in a message


@dataclass(frozen=True, slots=True)
class _Rejection:
    """How the checker ended on the expected output of a test, which counts from 1."""

    test: int
    stdin: bytes
    run: RunResult


class _Abandoned(Exception):
    """The trial was cancelled, or the sandbox failed: nothing is known about the checker."""


_sound: set[bytes] = set()  # digests of problems
_trials: dict[bytes, "Future[_Rejection | None]"] = {}
_lock = threading.Lock()  # of both: the judge runs in any thread and event loop


async def checker_accepts(checker: str, stdin: bytes, output: bytes, expected: bytes, sandbox: Sandbox) -> bool:
    """Any failure of a checker that works counts as a rejection of the output."""
    return _accepted(await _run(checker, stdin, output, expected, sandbox))


async def require_sound_checker(problem: CodeProblem, sandbox: Sandbox, name: str) -> None:
    """`GroundTruthError`, with the problem's name, if its checker rejects the expected output of a test."""
    if problem.checker is None:
        return
    key = _digest(problem)
    while True:
        with _lock:
            if key in _sound:
                return
            trial, first = _trials.get(key), False
            if trial is None:
                trial, first = _trials.setdefault(key, Future()), True
        if first:
            await _try(problem, sandbox, key, trial)
        try:
            rejection = await asyncio.shield(asyncio.wrap_future(trial))  # one caller that gives up stops no other
        except _Abandoned:
            continue
        if rejection is None:
            return
        ended = rejection.run
        noise = ended.stderr.decode(errors="replace").split("\n")
        reason = next(
            (line for line in reversed(noise) if line.strip()), f"{ended.ending}, exit code {ended.exit_code}"
        )
        raise GroundTruthError(
            f"the checker of {name} rejects the expected output of test {rejection.test} of {len(problem.cases)}, "
            f"whose input begins with {rejection.stdin[:_SHOWN]!r}: {reason[:_SHOWN]}. Correct the checker or the test"
        )


async def _try(problem: CodeProblem, sandbox: Sandbox, key: bytes, trial: "Future[_Rejection | None]") -> None:
    try:
        rejection = await _first_rejection(problem, sandbox)
    except BaseException:
        with _lock:
            del _trials[key]
        trial.set_exception(_Abandoned())
        raise
    with _lock:
        del _trials[key]
        if rejection is None:
            _sound.add(key)
    trial.set_result(rejection)


async def _first_rejection(problem: CodeProblem, sandbox: Sandbox) -> _Rejection | None:
    assert problem.checker is not None
    for number, (stdin, expected) in enumerate(problem.cases, start=1):
        run = await _run(problem.checker, stdin, expected, expected, sandbox)
        if not _accepted(run):
            return _Rejection(number, stdin, run)
    return None


async def _run(checker: str, stdin: bytes, output: bytes, expected: bytes, sandbox: Sandbox) -> RunResult:
    files = {"input": stdin, "output": output, "answer": expected}
    return await sandbox.run(Job(Program("python", checker.encode("utf-8", "replace")), b"", _LIMITS, files))


def _accepted(run: RunResult) -> bool:
    return run.ending == "exited" and run.exit_code == 0


def _digest(problem: CodeProblem) -> bytes:
    digest = hashlib.sha256()
    for part in (str(problem.checker).encode("utf-8", "replace"), *(text for case in problem.cases for text in case)):
        digest.update(b"%d:" % len(part))
        digest.update(part)
    return digest.digest()
