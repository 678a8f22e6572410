"""Programs judged where verl judges them: in asynchronous Ray actors, several on a machine."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import json, os, time
import ray

ray.init(num_cpus=2, include_dashboard=False)
TESTS = {"inputs": ["1 2"] * 5, "outputs": ["3"] * 5, "time_limit": 60}

@ray.remote(num_cpus=0)
class Worker:
    async def judge(self, source):
        from reward_fns.unit_tests import compute_score
        return (await compute_score("test", f"```py\\n{source}\\n```", TESTS, slots=2))["verdict"]

def programs():
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            command = open(f"/proc/{pid}/cmdline").read().split("\\0")
        except OSError:
            continue
        if command[-2:] == ["/box/main", ""] and "--die-with-parent" not in command:
            found.append(pid)
    return found

workers = [Worker.remote() for _ in range(3)]
right = [w.judge.remote("a, b = map(int, input().split())\\nprint(a + b)") for w in workers for _ in range(4)]
verdicts = ray.get(right)
asleep = [w.judge.remote("import time\\ntime.sleep(1000)") for w in workers for _ in range(2)]
deadline = time.monotonic() + 60
while len(programs()) < 2 and time.monotonic() < deadline:
    time.sleep(0.1)
time.sleep(1)
running = len(programs())
for worker in workers:
    ray.kill(worker)
while programs() and time.monotonic() < deadline:
    time.sleep(0.1)
print("found", json.dumps({"verdicts": verdicts, "running": running, "left": programs()}))
"""


@pytest.mark.real
@pytest.mark.usefixtures("isolated")
def test_workers_share_the_slots_of_the_machine_and_leave_nothing_when_they_are_killed():
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True, timeout=300)
    told = [line for line in done.stdout.splitlines() if line.startswith("found ")]
    assert told, done.stderr
    found = json.loads(told[0].removeprefix("found "))
    assert found == {"verdicts": ["correct"] * 12, "running": 2, "left": []}
