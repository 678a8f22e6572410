"""The verifier for programs: correct if every test passes, each test in its own sandbox.

The program is the last fenced block after the reasoning. It is treated as hostile: it sees its input and nothing else,
and the expected output never leaves this process. For each test it must exit with 0 within its limits, and its output
must match (output_match.py) or satisfy the problem's checker, which runs in a sandbox too. The first failure ends the
run and is the verdict: `wrong`, `timeout`, `memory`, `runtime_error`, `output_limit`, `disk_limit`, `compile_error`;
`no_program` if there is no block, `language` if its language is not supported here.

Where a problem names a function (`fn_name`), that function is called in place of running the program, and the values
are compared here (reward_fns/calls). All calls are made in one run with the time limit of one call. If that is not
enough, the calls that were not answered run one by one, so no call ever has more than its limit.

A failure of the verifier raises: `SandboxError` for a sandbox that does not start, `GroundTruthError` for a ground
truth that cannot be used or a checker that rejects the expected output of a test (checkers.py).

`reward.custom_reward_function.reward_kwargs.backend` chooses where programs run: `local` (local.py) or `e2b` (e2b.py);
see docs/sandbox.md.
"""

import asyncio
import marshal
import os
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from agon_verl.game.fences import Fence
from agon_verl.game.transcript import REASONING_TAGS, final_block
from reward_fns.calls import driver
from reward_fns.calls.assertions import Call
from reward_fns.calls.values import read_answers
from reward_fns.checkers import checker_accepts, require_sound_checker
from reward_fns.code_problem import CodeProblem
from reward_fns.output_match import same_output
from reward_fns.sandbox import MB, WALL_PER_CPU, Job, Program, ProgramLimits, RunResult, Sandbox, language_of
from reward_fns.scoring import read_completion, score_dict

_LARGE = 1 << 16  # bytes of output that are compared in a thread
_CHECKED_OUTPUT = 16 * MB  # output limit for problems with a checker
# More time for a run of several calls: where all but the last took less than this share, that one had its full limit.
_SHARE = 0.1
_OUT_OF_MEMORY = re.compile(rb"^MemoryError|std::bad_alloc", re.M)
_NOT_PYTHON = re.compile(rb"^(?:SyntaxError|IndentationError|TabError):", re.M)


async def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: dict[str, Any] | None = None,
    *,
    format_weight: float = 0.5,
    opened: bool = False,
    reasoning_tags: Sequence[str] = REASONING_TAGS,
    needs_summary: bool = False,
    backend: str = "local",
    time_limit: float = 10.0,
    memory_limit: int = 512,
    total_time: float = 60.0,
    slots: int | None = None,
    trusted: bool = False,
    python: str | None = None,
    template: str | None = None,
    **kwargs: Any,
) -> dict[str, float | str]:
    """Score one completion: `score` is 2c + lambda phi, `acc` c, `format` phi, `pred` the program ("" if none).

    `time_limit` (CPU seconds per test) and `memory_limit` (megabytes) apply to problems that set none; `total_time` is
    for all tests of a program together. `slots`, `trusted` and `python` configure the local sandbox, `slots` and
    `template` e2b.
    """
    problem = CodeProblem.read(ground_truth, data_source, time_limit=time_limit, memory_limit=memory_limit)
    transcript = read_completion(solution_str, extra_info, reasoning_tags, opened, needs_summary)
    block = final_block(transcript.summary)
    verdict = "no_program"
    if block is not None:
        sandbox = _sandbox(backend, slots, trusted, python, template)
        await require_sound_checker(problem, sandbox, _name(data_source, extra_info))
        verdict = await judge(block, problem, sandbox, total_time)
    return score_dict(verdict, transcript, None if block is None else block.body, format_weight)


def _name(data_source: str, extra_info: dict[str, Any] | None) -> str:
    index = (extra_info or {}).get("index")
    return f"a {data_source!r} problem" + ("" if index is None else f" (extra_info.index {index})")


async def judge(block: Fence, problem: CodeProblem, sandbox: Sandbox, total_time: float) -> str:
    """The verdict on one program: "correct", or the first failure."""
    language = language_of(block.tag)
    if language is None or not await sandbox.can_run(language) or (problem.calls and language != "python"):
        return "language"
    program = await sandbox.build(block.body, language)
    if program is None:
        return "compile_error"
    if problem.calls:
        return await _judge_calls(program, problem, sandbox, total_time)
    left = total_time
    for stdin, expected in problem.cases:
        output = _CHECKED_OUTPUT if problem.checker else MB + 4 * len(expected)
        limits = ProgramLimits(problem.time_limit, problem.memory_limit * MB, output)
        run = await sandbox.run(Job(program, stdin, limits))
        if (failure := _failure(run)) is not None:
            return failure
        if not await _accepted(run.stdout, stdin, expected, problem.checker, sandbox):
            return "wrong"
        left -= max(run.cpu, run.wall / WALL_PER_CPU)
        if left < 0:
            return "timeout"
    return "correct"


async def _judge_calls(program: Program, problem: CodeProblem, sandbox: Sandbox, total_time: float) -> str:
    left, calls = total_time, list(problem.calls)
    together = len(calls) > 1
    while calls:
        batch = calls if together else calls[:1]
        run = await sandbox.run(_calling(program, problem, batch))
        passed, seconds = await asyncio.to_thread(_check_answers, run.stdout, batch)
        if passed is None:
            return "wrong"
        failure = _failure(run)
        if failure is None and passed < len(batch):
            return "wrong"  # it ended early
        if failure is not None:
            hangs = failure == "timeout" and seconds <= _SHARE * problem.time_limit
            if not together or not passed or hangs or run.ending == "exited":
                return failure
            together = False
        calls = calls[passed:]
        left -= max(run.cpu, run.wall / WALL_PER_CPU)
        if left < 0:
            return "timeout"
    return "correct"


def _calling(program: Program, problem: CodeProblem, calls: Sequence[Call]) -> Job:
    """Only the arguments are sent, never what is expected."""
    request = marshal.dumps((problem.fn_name, problem.setup, [call.sent for call in calls]), 2)
    cpu = problem.time_limit * (1 + _SHARE if len(calls) > 1 else 1)
    limits = ProgramLimits(cpu, problem.memory_limit * MB, MB + 4 * sum(call.size for call in calls))
    return Job(Program("python", _driver()), request, limits, {"solution.py": program.code})


def _check_answers(output: bytes, calls: Sequence[Call]) -> tuple[int | None, float]:
    """How many calls were answered, `None` if one of them wrongly, and the seconds up to the last answer."""
    answers = read_answers(output, len(calls))
    if not all(call.expectation.holds(value) for call, (value, _) in zip(calls, answers, strict=False)):
        return None, 0.0
    return len(answers), answers[-1][1] if answers else 0.0


@cache
def _driver() -> bytes:
    return Path(driver.__file__).read_bytes()


def _failure(run: RunResult) -> str | None:
    """The failure of a run, if any. The program's stderr only chooses the name of the failure."""
    if run.ending != "exited":
        return run.ending
    if run.exit_code == 0:
        return None
    if _OUT_OF_MEMORY.search(run.stderr):
        return "memory"
    return "compile_error" if _NOT_PYTHON.search(run.stderr) else "runtime_error"


async def _accepted(output: bytes, stdin: bytes, expected: bytes, checker: str | None, sandbox: Sandbox) -> bool:
    if checker is None:
        if len(output) < _LARGE:
            return same_output(output, expected)
        return await asyncio.to_thread(same_output, output, expected)
    return await checker_accepts(checker, stdin, output, expected, sandbox)


@cache
def _sandbox(backend: str, slots: int | None, trusted: bool, python: str | None, template: str | None) -> Sandbox:
    if backend == "local":
        from reward_fns.sandbox.local import LocalSandbox

        return LocalSandbox(slots, trusted, python)
    if backend == "e2b":
        from reward_fns.sandbox.e2b import E2BSandbox

        return E2BSandbox(slots, template)
    raise ValueError(f"backend={backend!r} is unknown: use local or e2b")


os.register_at_fork(after_in_child=_sandbox.cache_clear)  # its threads are the parent's
