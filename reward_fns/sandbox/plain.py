"""A program as an ordinary process of this machine, for trusted code: with limits, but without isolation."""

import math
import resource
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from reward_fns.sandbox import ProgramLimits
from reward_fns.sandbox.process import Launch, ProcessHandle, Started, sealed, set_limits


class PlainLaunch(Launch):
    def __init__(
        self, prefix: Sequence[str], files: Mapping[str, bytes], limits: ProgramLimits, stack: ExitStack
    ) -> None:
        self._limits, self._stack = limits, stack
        self.fds = [stack.enter_context(sealed(content)) for content in files.values()]
        self.command = [*prefix, *(f"/proc/self/fd/{descriptor}" for descriptor in self.fds)]
        self.cwd = stack.enter_context(tempfile.TemporaryDirectory(prefix="agon-trusted-"))

    def begin(self, process: subprocess.Popen[bytes]) -> Started:
        seconds = math.ceil(self._limits.cpu) + 1
        set_limits(process.pid, {resource.RLIMIT_CPU: (seconds, seconds), resource.RLIMIT_CORE: (1, 1)})
        program = ProcessHandle.open(process.pid, self._stack)
        return Started(program, program)
