"""Hostile programs, judged beside honest ones: none scores, no neighbour notices, nothing is left.

All run once, each with an honest program beside it, in as many slots as keep several attacks going at a time; the tests
then look at what came of it.
"""

import asyncio
import json
import os
import secrets
import shutil
import socket
import time
from pathlib import Path

import pytest

from reward_fns.sandbox import process
from reward_fns.unit_tests import compute_score
from tests.sandbox.code_attacks import ATTACKS, Attack

SLOTS = 4
SUM = {"inputs": ["1 2\n", "30 12\n", "-5 -6\n"], "outputs": ["3\n", "42\n", "-11\n"]}
HONEST = "a, b = map(int, input().split())\nprint(a + b)"
RUN = [attack for attack in ATTACKS if attack.language != "cpp" or shutil.which("g++")]


class Battle:
    """What came of all attacks, and what was there to be stolen, reached or left behind."""

    def __init__(self, folder: Path) -> None:
        self.mark = f"agon-attack-{secrets.token_hex(8)}"
        secret = f"SECRET-{secrets.token_hex(16)}"
        self.problems = {"sum": SUM, "secret": {"inputs": ["1\n"], "outputs": [secret + "\n"]}}
        self.file = folder / "tests.json"
        self.file.write_text(json.dumps(self.problems))
        self.namespaces: set[int] = set()
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
    before = process.Watched.open.__func__

    def open_and_note(cls, pid, stack):
        battle.namespaces.add(os.stat(f"/proc/{pid}/ns/pid").st_ino)
        return before(cls, pid, stack)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process.Watched, "open", classmethod(open_and_note))
        began = time.monotonic()
        asyncio.run(battle.fight())
        print(f"{len(RUN)} attacks and as many honest programs in {time.monotonic() - began:.0f} s")
    return battle


def test_there_are_enough() -> None:
    assert len(ATTACKS) >= 100
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS)


@pytest.mark.parametrize("attack", RUN, ids=lambda attack: attack.name)
def test_an_attack_fails_as_foreseen(attack: Attack, battle: Battle) -> None:
    assert battle.results[attack.name] in attack.verdict.split("|")


def test_no_neighbour_is_disturbed(battle: Battle) -> None:
    assert {name: verdict for name, verdict in battle.neighbours.items() if verdict != "correct"} == {}


def test_nothing_is_left_running(battle: Battle) -> None:
    """By the process namespaces that the programs lived in: an orphan would have no other tie to this process."""
    assert len(battle.namespaces) >= SLOTS
    left = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{entry}/ns/pid").st_ino in battle.namespaces:
                left[entry] = Path(f"/proc/{entry}/cmdline").read_text()
        except (FileNotFoundError, PermissionError):  # gone, or not even root may look
            pass
    assert left == {}


def test_nothing_is_left_on_disk(battle: Battle) -> None:
    folders = [battle.file.parent, Path.cwd(), Path.home(), *map(Path, ("/", "/tmp", "/var/tmp", "/dev", "/dev/shm"))]
    folders += map(Path, ("/box", "/run", "/etc", "/usr/lib", "/root", "/home", os.path.dirname(os.__file__)))
    assert [str(path) for folder in folders if folder.is_dir() for path in folder.glob(f"{battle.mark}*")] == []
    assert json.loads(battle.file.read_text()) == battle.problems
    assert not Path("/box").exists()


def test_the_judge_holds_no_more_files_than_before(battle: Battle) -> None:
    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    asyncio.run(judge(HONEST, "python", SUM))
    before = open_files()
    for _ in range(3):
        asyncio.run(judge(HONEST, "python", SUM))
        asyncio.run(judge("while True: print(1)", "python", SUM))
    assert open_files() == before
