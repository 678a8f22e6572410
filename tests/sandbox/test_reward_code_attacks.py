"""Every attack and every honest program of the suite, through the suite that users run; and whether it would notice."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from reward_fns.sandbox import bwrap
from reward_fns.sandbox.attacks import ATTACKS, HONEST, Attack, Honest, meter
from reward_fns.sandbox.attacks.honest_functions import FUNCTIONS
from reward_fns.sandbox.attacks.meter import RunUse, Trace
from reward_fns.sandbox.attacks.suite import AttackSuite, Outcome, Row, _exceeded
from reward_fns.unit_tests import compute_score
from tests.sandbox.ordinary_user import ordinary_user

ROOT = Path(__file__).resolve().parents[2]
RIGHT = "print(sum(map(int, open(0).read().split())))"


@pytest.fixture(scope="module")
def outcome(isolated: None) -> Outcome:
    return AttackSuite().run(ATTACKS, HONEST)


@pytest.fixture(scope="module")
def rows(outcome: Outcome) -> dict[str, Row]:
    return {row.name: row for row in outcome.attacks + outcome.honest}


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_an_attack_is_repelled_with_the_usual_verdict(attack: Attack, rows: dict[str, Row], outcome: Outcome) -> None:
    if attack.name in outcome.skipped:
        pytest.skip(outcome.skipped[attack.name])
    row = rows[attack.name]
    assert row.holes == ()
    assert row.verdict in attack.verdict.split("|")


@pytest.mark.parametrize("honest", HONEST, ids=lambda honest: honest.name)
def test_an_honest_program_scores(honest: Honest, rows: dict[str, Row], outcome: Outcome) -> None:
    if honest.name in outcome.skipped:
        pytest.skip(outcome.skipped[honest.name])
    assert (rows[honest.name].verdict, rows[honest.name].holes) == ("correct", ())


def test_the_host_is_as_before(outcome: Outcome) -> None:
    """No process, no file and no connection that an attack could have made."""
    assert [row.holes for row in outcome.attacks if row.family == "traces"] == []
    assert not Path("/box").exists()


def test_a_judges_first_program_may_be_one_that_does_not_compile(isolated: None) -> None:
    """The judge has tried the compiler just before: that run is not the program's."""
    first = [attack for attack in ATTACKS if attack.name == "C++: constants without end"]
    outcome = AttackSuite().run(first, [])
    assert [row.holes for row in outcome.attacks] == [()] * (1 - len(outcome.skipped))


def test_as_an_ordinary_user(isolated: None) -> None:
    """The programs that could notice the difference."""
    with ordinary_user() as (command, folder):
        command += ["-m", "reward_fns.sandbox.probe", "--attack", "--json", f"{folder}/result.json"]
        for families in ("privileges", "namespaces", "other processes", "memory", "survivors", "function"):
            command += ["--only", families]
        done = subprocess.run(command, cwd=folder, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True)
        result = json.loads(Path(f"{folder}/result.json").read_text())
    assert {row["name"]: row["holes"] for row in result["attacks"] if row["holes"]} == {}
    assert (done.returncode, result["user"]) == (0, "an ordinary user"), done.stdout + done.stderr


def test_in_the_stand_in_of_e2b() -> None:
    pytest.importorskip("e2b_code_interpreter")
    if os.geteuid() != 0 or not os.path.exists("/usr/bin/python3"):
        pytest.skip("the stand-in needs root and /usr/bin/python3")
    families = {"memory", "disk", "survivors", "failures of the judge", "forged verdicts", "calls of functions"}
    attacks = [attack for attack in ATTACKS if attack.family in families]
    suite = AttackSuite("e2b", [sys.executable, "-m", "tests.sandbox.e2b_attack_worker"], judges=2)
    functions = [honest for honest in FUNCTIONS if honest.cpu >= 10]  # e2b counts time without a core
    outcome = suite.run(attacks, HONEST[:20] + functions)
    assert {row.name: (row.verdict, row.holes) for row in outcome.holes} == {}


# A judge that does everything wrong: each completion is right, its program is this one, and something stays behind.
CARELESS = """
import json, os, subprocess, sys
from reward_fns.sandbox.attacks.worker import inherit_orphans
inherit_orphans()
GREEDY = '''
import os, sys, threading, time
kept = bytearray(b"x" * (300 << 20))
files = [open(os.__file__) for _ in range(200)]
for i in range(5000): open(f"/tmp/{i}", "w")
open("/tmp/big", "w").truncate(1 << 30)
stop = threading.Event()
for _ in range(100): threading.Thread(target=stop.wait).start()
time.sleep(1)
while time.process_time() < 2: pass
stop.set()
'''
jail = [sys.argv[1], "--unshare-user", "--unshare-pid", "--ro-bind", "/", "/", "--proc", "/proc", "--tmpfs", "/tmp"]
for line in sys.stdin:
    if "print(sum" in line:
        python = os.path.realpath(sys.executable)  # an environment may lie in /tmp
        done = subprocess.run([*jail, python, "-c", GREEDY], stderr=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit(f"{done.returncode}: {done.stderr.splitlines()[-1:]}")
        subprocess.run(["sh", "-c", "sleep 60 > /dev/null &"])
    print(json.dumps({"verdict": "correct", "accuracy": 1.0}), flush=True)
"""


def test_a_judge_that_keeps_no_limit_is_noticed(isolated: None) -> None:
    attack = Attack("greedy", RIGHT, "wrong", problem="sum", family="any")
    command = [sys.executable, "-c", CARELESS, bwrap.find_bwrap()[0]]
    outcome = AttackSuite("local", command, judges=1).run([attack], [])
    (row,) = (row for row in outcome.attacks if row.name == "greedy")
    told = " ".join(row.holes)
    for what in (
        "scored",
        "cpu:",
        "memory:",
        "tasks:",
        "open_files:",
        "inodes:",
        "file_size:",
        "left running: sleep 60",
    ):
        assert what in told


@pytest.mark.parametrize(
    ("cpu", "stolen", "exceeds"), [(0.64, 0.0, False), (0.7, 0.0, True), (0.7, 0.1, False), (0.8, 0.1, True)]
)
def test_cpu_time_while_the_host_kept_the_judges_core_is_allowed(cpu: float, stolen: float, exceeds: bool) -> None:
    run = RunUse(1, began=0.0, ended=1.0, cpu_by_process={1: cpu})
    holes, _ = _exceeded(Attack("spin", RIGHT, "timeout", cpu=0.5), Trace(1, 0, None, {1: run}, stolen=stolen), {})
    assert holes == ([f"cpu: {cpu} used, 0.5 allowed"] if exceeds else [])


def test_the_meter_reads_what_the_host_took(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    monkeypatch.setattr(meter, "_stolen", iter([[100, 200], [100 + ticks, 200 + 3 * ticks]]).__next__)
    trace = (own := meter.Meter()).begin(os.getpid(), 0, None)
    own.end(trace)
    assert trace.stolen == 3.0  # of the core with the most


def test_what_the_host_took_is_as_the_kernel_says() -> None:
    stolen = meter._stolen()
    total = next(
        int(line.split()[8]) for line in Path("/proc/stat").read_text().splitlines() if line.startswith("cpu ")
    )
    assert len(stolen) >= len(os.sched_getaffinity(0))
    assert abs(sum(stolen) - total) <= len(stolen) + 100  # the total is rounded for itself, and goes on


def test_other_children_of_the_caller_live_on(isolated: None) -> None:
    killing = [attack for attack in ATTACKS if attack.name == "a judge that is killed"]
    with subprocess.Popen(["sleep", "600"]) as other:
        outcome = AttackSuite(judges=1).run(killing, [])
        assert other.poll() is None
        other.kill()
    assert [row.holes for row in outcome.attacks] == [()]


def test_a_judge_that_fails_or_dies_is_noticed(isolated: None) -> None:
    judge = (
        "import sys\nfor i, line in enumerate(sys.stdin):\n"
        '    print([\'{"verdict": "correct"}\', \'{"error": "ValueError: x"}\'][i] if i < 2 else exit(3), flush=True)'
    )
    attacks = [Attack(name, "pass", "wrong", family="any") for name in ("first", "second")]
    outcome = AttackSuite("local", [sys.executable, "-c", judge], judges=1).run(attacks, [])
    assert [row.holes for row in outcome.attacks] == [
        ("the judge failed: ValueError: x",),
        ("the judge failed: the judge ended: ",),
    ]


def test_an_honest_program_that_fails_is_noticed() -> None:
    judge = (
        "import sys\nfor i, line in enumerate(sys.stdin):\n"
        "    print('{\"verdict\": \"%s\"}' % ['correct', 'wrong'][i], flush=True)"
    )
    outcome = AttackSuite("local", [sys.executable, "-c", judge], judges=1).run([], HONEST[:1])
    assert [row.holes for row in outcome.holes] == [("an honest program got wrong",)]


@pytest.mark.usefixtures("isolated")
def test_no_file_is_left_open() -> None:
    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    def judge(source: str) -> None:
        tests = {"inputs": ["1 2\n"], "outputs": ["3\n"]}
        asyncio.run(compute_score("test", f"```python\n{source}\n```", tests))

    judge(RIGHT)
    before = open_files()
    for _ in range(3):
        judge(RIGHT)
        judge("while True: print(1)")
    assert open_files() == before
