"""Programs judged where verl judges them: in asynchronous Ray actors, several on a machine."""

import json
import subprocess
import sys

import pytest

from tests.real.runs import kill_marked, ray_environment

SCRIPT = """
import ctypes, json, os, time
import psutil
import ray

PR_SET_CHILD_SUBREAPER = 36  # orphans become children of this process
assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
ray.init(num_cpus=2, include_dashboard=False)
NAME = f"agon-verl-test-{os.getpid()}"
TESTS = {"inputs": ["1 2"] * 5, "outputs": ["3"] * 5, "time_limit": 60}

@ray.remote(num_cpus=0)
class Worker:
    async def judge(self, source):
        from reward_fns.sandbox import slots
        from reward_fns.unit_tests import compute_score
        slots.NAME = NAME  # slots of this run's own: others may be in use on this machine
        return (await compute_score("test", f"```py\\n{source}\\n```", TESTS, slots=2))["verdict"]

def programs():
    # descendants of this process, orphans included
    pids = []
    for process in psutil.Process().children(recursive=True):
        try:
            command = process.cmdline()
        except psutil.Error:
            continue
        if command[-1:] == ["/box/main"] and "--die-with-parent" not in command:
            pids.append(process.pid)
    return pids

def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.1)

workers = [Worker.remote() for _ in range(3)]
correct = [w.judge.remote("a, b = map(int, input().split())\\nprint(a + b)") for w in workers for _ in range(4)]
verdicts = ray.get(correct)
asleep = [w.judge.remote("import time\\ntime.sleep(1000)") for w in workers for _ in range(2)]
wait_until(lambda: len(programs()) >= 2)
time.sleep(1)
running = len(programs())
for worker in workers:
    ray.kill(worker)
wait_until(lambda: not programs())
print("result", json.dumps({"verdicts": verdicts, "running": running, "left": programs()}))
"""


@pytest.mark.usefixtures("isolated")
def test_workers_share_the_slots_of_the_machine_and_leave_nothing_when_they_are_killed():
    with ray_environment() as (environment, mark):
        try:
            command = [sys.executable, "-c", SCRIPT]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        finally:
            kill_marked(mark)
    lines = [line for line in done.stdout.splitlines() if line.startswith("result ")]
    assert lines, done.stderr
    result = json.loads(lines[0].removeprefix("result "))
    assert result == {"verdicts": ["correct"] * 12, "running": 2, "left": []}
