"""What a sandbox is to the judge: it builds a program, runs it on one input, and says how that ended.

A program that fails is a result (`RunResult`). A sandbox that fails raises `SandboxError`, because an outage is not a
wrong answer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from agon_verl.errors import AgonError

MB = 1 << 20
WALL_PER_CPU = 3.0  # a program has nothing to wait for: one that takes this many times longer than it works is asleep
# The tags of fenced blocks. A block without one is taken for Python.
LANGUAGES = {
    "": "python",
    "py": "python",
    "py3": "python",
    "python": "python",
    "python3": "python",
    "c++": "cpp",
    "cc": "cpp",
    "cpp": "cpp",
    "cxx": "cpp",
}

Ending = Literal["exited", "timeout", "memory", "output_limit", "disk_limit"]


class SandboxError(AgonError, RuntimeError):
    """The judge itself failed, whatever the program is worth."""


@dataclass(frozen=True, slots=True)
class ProgramLimits:
    """Of one run. `cpu` in seconds; `memory` (resident) and `output` (stdout, and as much again of stderr) in bytes.

    Time spent ready to run while no core was free counts for nothing: a busy machine makes no program wrong.
    """

    cpu: float
    memory: int
    output: int

    @property
    def wall(self) -> float:
        return WALL_PER_CPU * self.cpu + 1.0


@dataclass(frozen=True, slots=True)
class Program:
    """Ready to run: `code` is the source for Python, the executable for C++."""

    language: str
    code: bytes


@dataclass(frozen=True, slots=True)
class RunResult:
    """One run: `ending` is "exited" unless a limit stopped it; `exit_code` is 128 + n after signal n.

    `wall` leaves out the time spent waiting for a core.
    """

    ending: Ending
    exit_code: int
    stdout: bytes
    stderr: bytes  # at most its last few kilobytes
    cpu: float
    wall: float


@dataclass(frozen=True, slots=True)
class Job:
    """A program, its standard input, and files that only this run sees, named in its arguments (for a checker)."""

    program: Program
    stdin: bytes
    limits: ProgramLimits
    files: Mapping[str, bytes] = field(default_factory=dict)


class Sandbox(Protocol):
    async def can_run(self, language: str) -> bool: ...

    async def build(self, source: str, language: str) -> Program | None:
        """`None` where the compiler refuses the source."""

    async def run(self, job: Job) -> RunResult: ...
