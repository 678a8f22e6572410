"""Algebra with limits: what is killed, what survives, and whether answer or reference is the cause."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection, Pipe
from pathlib import Path

import pytest

from reward_fns.math_answer import compute_score, judge
from reward_fns.mathematics import pool as pool_module
from reward_fns.mathematics import pool_worker
from reward_fns.mathematics.equal import UnreadableReference
from reward_fns.mathematics.pool import CRASH, FALSE, MEMORY, TIMEOUT, TRUE, Pool, PoolError, PoolLimits, pool
from tests.ended import alive, gone

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 1.0
SUM, SAME_SUM = r"\sum_{k=1}^{n} k", r"\frac{n(n+1)}{2}"  # algebra is needed
ENDLESS = [rf"\sum_{{k=1}}^{{n}} {base}^{{9^{{9^{{k}}}}}}" for base in range(2, 10)]  # as an answer to SUM


@pytest.fixture(scope="module")
def workers() -> Iterator[Pool]:
    made = Pool(PoolLimits(LIMIT))
    assert made.submit(SUM, SAME_SUM, True).result(60) == TRUE  # started
    yield made


def processes(made: Pool) -> list[int]:
    """The one that forks, and its workers."""
    assert made.forker is not None
    pid = made.forker.pid
    return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


def test_an_answer_that_never_ends_is_killed_at_the_limit(workers: Pool) -> None:
    seen: set[int] = set()
    began = time.monotonic()
    endless = workers.submit(SUM, ENDLESS[0], True)
    while not endless.done():
        seen.update(processes(workers))
        time.sleep(0.05)
    assert endless.result() == TIMEOUT
    assert LIMIT <= time.monotonic() - began < LIMIT + 20  # on an idle machine a tenth of a second more
    assert workers.submit(SUM, SAME_SUM + "+1", True).result(30) == FALSE
    killed = seen - set(processes(workers))
    assert killed and gone(killed, 5)


def test_a_slow_answer_keeps_nobody_waiting(workers: Pool) -> None:
    slow = [workers.submit(SUM, endless, True) for endless in ENDLESS[1:5]]
    assert workers.submit(SUM, SAME_SUM + "+2", True).result(60) == FALSE
    assert not all(future.done() for future in slow)
    assert [future.result(60) for future in slow] == [TIMEOUT] * 4


def test_memory_is_limited() -> None:
    """The worker, with a comparison that takes all memory at once or, like sympy, catches the error."""

    def at_once(*_: object, **__: object) -> bool:
        return bool(bytearray(2**30))

    def bit_by_bit(*_: object, **__: object) -> bool:
        taken = []
        try:
            while True:
                taken.append(bytearray(2**20))
        except MemoryError:
            return False

    for greedy in (at_once, bit_by_bit):
        ours, theirs = socket.socketpair()
        if not (child := os.fork()):
            ours.close()
            pool_worker.equal = greedy  # type: ignore[assignment]
            pool_worker.work(Connection(theirs.detach()), megabytes=64)
            os._exit(0)
        theirs.close()
        jobs = Connection(ours.detach())
        jobs.send_bytes(json.dumps(["5", "6", True]).encode())
        assert json.loads(jobs.recv_bytes()) == MEMORY
        jobs.close()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_dead_worker_is_replaced(workers: Pool) -> None:
    forker, *idle = processes(workers)
    for pid in idle:
        os.kill(pid, signal.SIGKILL)
    assert gone(idle, 5)
    assert workers.submit(SUM, SAME_SUM + "+3", True).result(30) == FALSE
    os.kill(forker, signal.SIGKILL)
    assert gone([forker], 5)
    assert workers.submit(SUM, SAME_SUM + "+4", True).result(30) == FALSE
    assert forker not in processes(workers)


def test_a_worker_that_dies_at_work_is_tried_once_more(workers: Pool) -> None:
    def kill_the_worker(after: set[int]) -> int:
        end = time.monotonic() + 10
        while time.monotonic() < end:
            for pid in set(processes(workers)[1:]) - after:
                os.kill(pid, signal.SIGKILL)
                return pid
            time.sleep(0.005)
        raise AssertionError("no worker is busy")

    idle = processes(workers)[1:]
    for pid in idle:
        os.kill(pid, signal.SIGKILL)
    assert gone(idle, 5)
    future = workers.submit(SUM, ENDLESS[5], True)
    first = kill_the_worker(set(idle))
    kill_the_worker({*idle, first})
    assert future.result(30) == CRASH
    assert workers.submit(SUM, SAME_SUM + "+5", True).result(30) == FALSE


@pytest.mark.parametrize(("used", "replied"), [(0.4, True), (0.6, False)])
def test_a_busy_machine_stops_nothing_before_half_its_limit_as_processor_time(
    used: float, replied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first comparison needs 0.06 s of processor time on an idle machine, and has needed over 0.1 s on a busy one."""
    made, (ours, theirs), asked = Pool(PoolLimits(LIMIT)), Pipe(), []

    def processor_time(pid: int) -> float:
        asked.append(pid)
        if len(asked) == 3:
            theirs.send_bytes(b"false")  # late, but with little processor time
        return used * LIMIT

    monkeypatch.setattr(pool_module, "_cpu", processor_time)
    late = time.monotonic() - 2 * LIMIT
    assert made._replied(pool_module._Worker(ours, 1), late, 0.0, pool_module._SHARE) is replied
    assert len(asked) == (3 if replied else 1)


def test_equal_requests_are_computed_once(workers: Pool) -> None:
    first = workers.submit(SUM, "n^2", True)
    assert workers.submit(SUM, "n^2", True) is first
    assert first.result(30) == FALSE


def test_the_loop_runs_on(workers: Pool) -> None:
    async def longest_pause() -> float:
        """As a share of the total time."""

        async def tick() -> float:
            longest, last = 0.0, (began := time.monotonic())
            while not done.is_set():
                await asyncio.sleep(0.01)
                now = time.monotonic()
                longest, last = max(longest, now - last), now
            return longest / (last - began)

        done = asyncio.Event()
        ticking = asyncio.create_task(tick())
        limits = PoolLimits(LIMIT, 512, 3)  # another pool: its start must not block either
        verdicts = await asyncio.gather(
            judge(SUM, ENDLESS[0], True, limits), *(judge(SUM, f"n^2+{i}", True, limits) for i in range(50))
        )
        done.set()
        assert verdicts == ["timeout"] + ["wrong"] * 50
        return await ticking

    assert asyncio.run(longest_pause()) < 0.5  # blocking for the time-out or the start of the workers would be more


def test_works_off_the_main_thread() -> None:
    verdicts: list[str] = []
    limits = PoolLimits(LIMIT, 512, 2)
    thread = threading.Thread(target=lambda: verdicts.append(asyncio.run(judge(SUM, SAME_SUM, True, limits))))
    thread.start()
    thread.join(60)
    assert verdicts == ["correct"]
    assert pool(limits) is pool(limits)


def test_a_fork_has_its_own_pool() -> None:
    limits = PoolLimits(LIMIT, 512, 2)
    assert pool(limits).submit(SUM, SAME_SUM, True).result(60) == TRUE
    if not (child := os.fork()):
        os._exit(0 if pool(limits).submit(SUM, SAME_SUM + "+6", True).result(60) == FALSE else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


PARENT = f"""
import sys, time
from reward_fns.mathematics.pool import PoolLimits, Pool
workers = Pool(PoolLimits(60.0, 512, 2))
workers.submit({SUM!r}, {SAME_SUM!r}, True).result(60)
workers.submit({SUM!r}, {ENDLESS[0]!r}, True)
workers.submit({SUM!r}, {ENDLESS[1]!r}, True)
pid = workers.forker.pid
while len(children := open(f"/proc/{{pid}}/task/{{pid}}/children").read().split()) < 2:
    time.sleep(0.01)
print(pid, *children, flush=True)
time.sleep(600)
"""


def test_processes_end_with_their_parent_even_if_it_is_killed() -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, env=environment) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) >= 3 and all(map(alive, pids))
        parent.kill()
    assert gone(pids, 10)


def test_workers_that_do_not_start_are_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "reward_fns").mkdir()
    (tmp_path / "reward_fns" / "__init__.py").write_text("raise RuntimeError('no such luck')")
    broken = Pool(PoolLimits(LIMIT, 512, 1))
    with pytest.raises(PoolError, match="(?s)does not start.*no such luck"):
        broken.submit(SUM, SAME_SUM, True).result(60)
    monkeypatch.undo()
    assert broken.submit(SUM, SAME_SUM, True).result(60) == TRUE  # an error is not cached


def test_a_time_out_by_the_answer_and_one_by_the_reference() -> None:
    result = asyncio.run(compute_score("test", f"<answer>{ENDLESS[0]}</answer>", SUM, time_limit=LIMIT))
    assert (result["verdict"], result["acc"], result["pred"]) == ("timeout", 0.0, ENDLESS[0])
    with pytest.raises(UnreadableReference, match="by itself it ends in 'timeout'"):
        asyncio.run(compute_score("test", f"<answer>{SUM}</answer>", ENDLESS[0], time_limit=LIMIT))


@pytest.mark.parametrize("answer", ["9**9**9", r"\frac" * 199 + "12"], ids=["tower", "fractions"])
def test_large_answers_that_reach_algebra(answer: str) -> None:
    assert asyncio.run(judge("x^2+1", answer, True, PoolLimits(LIMIT))) == "wrong"


def test_a_reference_is_checked_by_itself() -> None:
    fresh = Pool(PoolLimits(LIMIT, 512, 1))
    assert fresh.submit(SUM, None, None).result(60) == TRUE
    assert fresh.submit(r"\infty", None, None).result(60) == TRUE
    assert fresh.submit(r"\text{even}", None, None).result(60) == TRUE
