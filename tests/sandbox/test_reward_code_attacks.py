"""Hostile programs, judged together with honest ones: none scores, no honest program fails, nothing is left.

All run once, each together with an honest program, in enough slots to run several attacks at a time; the tests then
check the results.
"""

import asyncio
import ctypes
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from reward_fns.unit_tests import compute_score
from tests.sandbox.code_attacks import ATTACKS, Attack

SLOTS = 4
SUM = {"inputs": ["1 2\n", "30 12\n", "-5 -6\n"], "outputs": ["3\n", "42\n", "-11\n"]}
HONEST = "a, b = map(int, input().split())\nprint(a + b)"
RUN = [attack for attack in ATTACKS if attack.language != "cpp" or shutil.which("g++")]


class Battle:
    """The results of all attacks, and what they could have stolen, reached or left behind."""

    def __init__(self, folder: Path) -> None:
        self.mark = f"agon-attack-{secrets.token_hex(8)}"
        secret = f"SECRET-{secrets.token_hex(16)}"
        self.problems = {"sum": SUM, "secret": {"inputs": ["1\n"], "outputs": [secret + "\n"]}}
        self.file = folder / "tests.json"
        self.file.write_text(json.dumps(self.problems))
        self.left_running: dict[int, str] = {}
        self.results: dict[str, str] = {}
        self.neighbours: dict[str, str] = {}

    async def fight(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.setblocking(False)
            self.port = server.getsockname()[1]
            await asyncio.gather(*(self.one(attack) for attack in RUN))
            with pytest.raises(BlockingIOError):
                server.accept()

    async def one(self, attack: Attack) -> None:
        source = attack.source
        for name, value in {"FILE": self.file, "PID": os.getpid(), "PORT": self.port, "MARK": self.mark}.items():
            source = source.replace(f"@{name}@", str(value))
        hostile = judge(source, attack.language, self.problems[attack.problem], time_limit=0.5, memory_limit=96)
        honest = judge(HONEST, "python", SUM, time_limit=5, memory_limit=128)
        self.results[attack.name], self.neighbours[attack.name] = await asyncio.gather(hostile, honest)


async def judge(source: str, language: str, problem: dict, **limits: float) -> str:
    completion = f"<think>r</think><answer>\n```{language}\n{source}\n```\n</answer>"
    result = await compute_score("test", completion, {**problem, **limits}, slots=SLOTS)
    assert result["acc"] == float(result["verdict"] == "correct")
    return str(result["verdict"])


@pytest.fixture(scope="module")
def battle(isolated: None, tmp_path_factory: pytest.TempPathFactory) -> Battle:
    battle = Battle(tmp_path_factory.mktemp("tests"))
    inherit_orphans(True)
    try:
        before, began = children(), time.monotonic()
        asyncio.run(battle.fight())
        print(f"{len(RUN)} attacks and as many honest programs in {time.monotonic() - began:.0f} s")
        battle.left_running = {pid: command for pid, command in children().items() if pid not in before}
    finally:
        inherit_orphans(False)
    return battle


def inherit_orphans(enabled: bool) -> None:
    """Let orphaned descendants become children of this process instead of the machine's first process."""
    pr_set_child_subreaper = 36
    assert ctypes.CDLL(None).prctl(pr_set_child_subreaper, int(enabled), 0, 0, 0) == 0


def children() -> dict[int, str]:
    """The children of this process, zombies included, with their command lines."""
    pids = " ".join(path.read_text() for path in Path("/proc/self/task").glob("*/children")).split()
    return {int(pid): Path(f"/proc/{pid}/cmdline").read_text() for pid in pids}


@pytest.mark.parametrize("attack", RUN, ids=lambda attack: attack.name)
def test_an_attack_fails_as_expected(attack: Attack, battle: Battle) -> None:
    assert battle.results[attack.name] in attack.verdict.split("|")


def test_no_honest_program_fails(battle: Battle) -> None:
    assert {name: verdict for name, verdict in battle.neighbours.items() if verdict != "correct"} == {}


def test_nothing_is_left_running(battle: Battle) -> None:
    """By parentage: whatever an attack could have left would now be a child of this process."""
    assert battle.left_running == {}


def test_an_orphan_would_be_noticed() -> None:
    inherit_orphans(True)
    try:
        before = children()
        subprocess.run(["sh", "-c", "sleep 60 &"], check=True)
        orphans = children().keys() - before.keys()
        assert len(orphans) == 1
        for pid in orphans:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    finally:
        inherit_orphans(False)


def test_nothing_is_left_on_disk(battle: Battle) -> None:
    folders = [battle.file.parent, Path.cwd(), Path.home(), *map(Path, ("/", "/tmp", "/var/tmp", "/dev", "/dev/shm"))]
    folders += map(Path, ("/box", "/run", "/etc", "/usr/lib", "/root", "/home", os.path.dirname(os.__file__)))
    assert [str(path) for folder in folders if folder.is_dir() for path in folder.glob(f"{battle.mark}*")] == []
    assert json.loads(battle.file.read_text()) == battle.problems
    assert not Path("/box").exists()


def test_no_file_is_left_open(battle: Battle) -> None:
    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    asyncio.run(judge(HONEST, "python", SUM))
    before = open_files()
    for _ in range(3):
        asyncio.run(judge(HONEST, "python", SUM))
        asyncio.run(judge("while True: print(1)", "python", SUM))
    assert open_files() == before
