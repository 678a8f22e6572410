"""The cost of judging programs: the sandbox compared with a plain process, and with verl's `prime_code`.

    python benchmarks/code_verifier.py [--data TESTS.jsonl] [--runs 60] [--programs 12] [--tests 20] [--rounds 3]

First single tests: the same program alternately as a plain process and in the sandbox, which gives the overhead of the
sandbox. Their processor time is printed too, of all processes and with the start of one launcher: it varies less with
the load of the machine. Then batches: every program with all its tests, by this judge and by verl's, as many at once as
there are slots. Correct and wrong programs are mixed, and wrong verdicts are counted. verl's judge runs programs
without a sandbox: these are harmless.

`--data` takes JSON lines with `test`, a list of {"input": {"stdin": ...}, "output": {"stdout": ...}} as a string; the
programs for them contain the answers. Without it, problems are generated.
"""

import argparse
import asyncio
import functools
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from reward_fns.sandbox import MB, Job, Program, ProgramLimits
from reward_fns.sandbox.launchers import end_launchers
from reward_fns.sandbox.local import LocalSandbox
from reward_fns.unit_tests import compute_score

LIMITS = ProgramLimits(cpu=10.0, memory=512 * MB, output=16 * MB)


@dataclass(frozen=True)
class Task:
    """A program with its tests. `right` is whether it solves them, by construction."""

    kind: str
    source: str
    inputs: list[str]
    outputs: list[str]
    right: bool

    @property
    def completion(self) -> str:
        return f"```python\n{self.source}\n```"

    @property
    def truth(self) -> dict[str, list[str]]:
        return {"inputs": self.inputs, "outputs": self.outputs}


KINDS = {
    "adds two numbers": "a, b = map(int, input().split())\nprint(a + b)",
    "works for 50 ms": (
        "import time\na, b = map(int, input().split())\nend = time.process_time() + 0.05\n"
        "while time.process_time() < end: pass\nprint(a + b)"
    ),
    "sorts 50,000 numbers": (
        "import sys\nn, *x = map(int, sys.stdin.read().split())\nprint('\\n'.join(map(str, sorted(x))))"
    ),
}


def case(kind: str, rng: random.Random) -> tuple[str, str]:
    if kind == "sorts 50,000 numbers":
        numbers = [rng.randrange(10**9) for _ in range(50_000)]
        return f"50000\n{' '.join(map(str, numbers))}\n", "\n".join(map(str, sorted(numbers))) + "\n"
    a, b = rng.randrange(10**6), rng.randrange(10**6)
    return f"{a} {b}\n", f"{a + b}\n"


def generated(programs: int, tests: int) -> list[Task]:
    """A third of the programs are wrong: they fail the last of their tests, the most work for a judge."""
    rng, tasks = random.Random(0), []
    for kind, source in KINDS.items():
        for i in range(programs):
            cases = [case(kind, rng) for _ in range(tests)]
            inputs, outputs = [list(column) for column in zip(*cases, strict=True)]
            if wrong := i % 3 == 2:
                outputs[-1] = f"{outputs[-1].split()[0]}1\n"
            tasks.append(Task(kind, source, inputs, outputs, not wrong))
    return tasks


def by_heart(path: Path, tests: int) -> list[Task]:
    tasks = []
    for line in path.read_text(encoding="utf-8").splitlines():
        cases = json.loads(json.loads(line)["test"])[:tests]
        table = {test["input"]["stdin"]: test["output"]["stdout"] for test in cases}
        inputs, outputs = list(table), list(table.values())
        source = f"import sys\ntable = {table!r}\nprint(table[sys.stdin.read()])"
        tasks.append(Task(path.name, source, inputs, outputs, True))
        tasks.append(Task(path.name, source, inputs, [*outputs[:-1], outputs[-1] + "x\n"], False))
    return tasks


def processor_time() -> float:
    """Seconds of this process and of its children that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


@dataclass(frozen=True)
class Overhead:
    """Seconds of plain runs and of runs in the sandbox, and the processor time of one run of each, on average."""

    plain: list[float]
    boxed: list[float]
    plain_cpu: float
    boxed_cpu: float


def overhead(task: Task, runs: int, sandbox: LocalSandbox) -> Overhead:
    """Alternately, so that both see the same load."""
    interpreter = os.path.realpath(sys.executable)
    stdin, program = task.inputs[0].encode(), Program("python", task.source.encode())
    plain, boxed, plain_cpu = [], [], 0.0
    end_launchers()
    before = processor_time()
    for _ in range(runs):
        began, used = time.perf_counter(), processor_time()
        subprocess.run([interpreter, "-I", "-S", "-c", task.source], input=stdin, capture_output=True, check=True)
        plain.append(time.perf_counter() - began)
        plain_cpu += processor_time() - used
        began = time.perf_counter()
        assert sandbox._run(Job(program, stdin, LIMITS)).exit_code == 0
        boxed.append(time.perf_counter() - began)
    end_launchers()  # the kernel adds their processor time to ours when they have ended
    return Overhead(plain, boxed, plain_cpu / runs, (processor_time() - before - plain_cpu) / runs)


async def ours(tasks: list[Task], slots: int) -> list[bool]:
    results = await asyncio.gather(*(compute_score("b", task.completion, task.truth, slots=slots) for task in tasks))
    return [result["acc"] == 1.0 for result in results]


def verls(tasks: list[Task], slots: int) -> list[bool]:
    """As verl calls it: in a thread, and with partial credit, of which only full marks count here."""
    from verl.utils.reward_score.prime_code import compute_score as prime_code

    def judge(task: Task) -> bool:
        return prime_code(task.completion, json.dumps(task.truth), continuous=True)[0] == 1

    with ThreadPoolExecutor(slots) as pool:
        return list(pool.map(judge, tasks))


def timed(judge, tasks: list[Task]) -> tuple[float, int]:
    began = time.perf_counter()
    verdicts = judge(tasks)
    return time.perf_counter() - began, sum(v != task.right for v, task in zip(verdicts, tasks, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="tests to use instead of generated ones")
    parser.add_argument("--runs", type=int, default=60, help="runs of each kind for the overhead")
    parser.add_argument("--programs", type=int, default=12, help="programs of each kind")
    parser.add_argument("--tests", type=int, default=20, help="tests per program, at most")
    parser.add_argument("--rounds", type=int, default=3, help="times that each judge gets the batch, alternately")
    parser.add_argument("--slots", type=int, default=len(os.sched_getaffinity(0)), help="programs at once")
    args = parser.parse_args()
    tasks = by_heart(args.data, args.tests) if args.data else generated(args.programs, args.tests)
    sandbox = LocalSandbox(args.slots)
    sandbox.prepare()

    print("one test, milliseconds, median (smallest)")
    print(f"{'':24} {'plain process':>16} {'in the sandbox':>16} {'overhead':>9} {'processor time of both':>23}")
    for kind in dict.fromkeys(task.kind for task in tasks):
        task = next(task for task in tasks if task.kind == kind)
        one = overhead(task, args.runs, sandbox)
        middle = [1000 * statistics.median(times) for times in (one.plain, one.boxed)]
        least = [1000 * min(times) for times in (one.plain, one.boxed)]
        cells = [f"{m:7.1f} ({s:.1f})" for m, s in zip(middle, least, strict=True)]
        cpu = f"{1000 * one.plain_cpu:.1f} {1000 * one.boxed_cpu:7.1f}"
        print(f"{kind:24} {cells[0]:>16} {cells[1]:>16} {middle[1] - middle[0]:9.1f} {cpu:>23}")

    print(f"\nall tests of all programs, {args.slots} at a time, median of {args.rounds} alternating rounds")
    print(f"{'':24} {'tests':>6} {'this judge':>22} {'prime_code':>22} {'wrong verdicts':>15}")
    asyncio.run(ours(tasks[:2], args.slots))  # both have run once before they are timed
    verls(tasks[:2], args.slots)
    for kind in dict.fromkeys(task.kind for task in tasks):
        some = [task for task in tasks if task.kind == kind]
        tests = sum(len(task.inputs) for task in some)
        judges = (lambda batch: asyncio.run(ours(batch, args.slots)), functools.partial(verls, slots=args.slots))
        rounds = [[timed(judge, some) for judge in judges] for _ in range(args.rounds)]
        seconds = [statistics.median(one[i][0] for one in rounds) for i in range(2)]
        errors = [max(one[i][1] for one in rounds) for i in range(2)]
        cells = [f"{s:7.1f} s {tests / s:7.1f}/s" for s in seconds]
        print(f"{kind:24} {tests:6} {cells[0]:>22} {cells[1]:>22} {errors[0]:7} {errors[1]:7}")


if __name__ == "__main__":
    main()
