"""The interface of a sandbox: it builds a program, runs it on one input, and reports how the run ended.

A program that fails is a result (`RunResult`). A sandbox that fails raises `SandboxError`, because an outage is not a
wrong answer.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from agon_verl.errors import AgonError

MB = 1 << 20
WALL_PER_CPU = 3.0  # programs do no waiting I/O: one that takes this many times its CPU time is asleep
# The first word of a fenced block's tag, such as Python3.11, {.python}, py:main.py or c++17.
_FIRST_WORD = re.compile(r"\{?\.?(?:language-)?([^\s{}:,;=]*)")
_LANGUAGES = {
    "python": re.compile(r"|(?:[ci]?python|py|pypy)(?:-?3(?:\.[0-9]+)*)?(?:-64)?"),  # a block without a tag is Python
    "cpp": re.compile(r"(?:c\+\+|cpp|cc|cxx|g\+\+|gnu\+\+)(?:[0-9]{2})?"),
}

Ending = Literal["exited", "timeout", "memory", "output_limit", "disk_limit"]


def language_of(tag: str) -> str | None:
    """The language that the tag of a fenced block names; `None` if it is none of ours."""
    match = _FIRST_WORD.match(tag.strip().lower())
    word = match[1] if match else ""
    return next((language for language, names in _LANGUAGES.items() if names.fullmatch(word)), None)


class SandboxError(AgonError, RuntimeError):
    """The sandbox failed, independently of the program."""


@dataclass(frozen=True, slots=True)
class ProgramLimits:
    """Limits of one run: `cpu` in seconds; `memory` (resident) and `output` (of stdout, and of stderr) in bytes.

    Time in which the program was ready but no core was free does not count: a busy machine must not fail a program.
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
    """`ending` is "exited" unless a limit stopped the run; `exit_code` is 128 + n after signal n."""

    ending: Ending
    exit_code: int
    stdout: bytes
    stderr: bytes  # at most the last few kilobytes
    cpu: float
    wall: float  # without the time spent waiting for a core


@dataclass(frozen=True, slots=True)
class Job:
    """A program, its standard input, and files visible to this run only, passed as arguments (for a checker)."""

    program: Program
    stdin: bytes
    limits: ProgramLimits
    files: Mapping[str, bytes] = field(default_factory=dict)


class Sandbox(Protocol):
    async def can_run(self, language: str) -> bool: ...

    async def build(self, source: str, language: str) -> Program | None:
        """`None` if the compiler rejects the source."""

    async def run(self, job: Job) -> RunResult: ...
