"""The e2b sandbox: programs run in a pool of the service's virtual machines, each used for many runs.

Creating a machine takes a second, and the service limits their rate and number, so at most `slots` exist and they are
created one after the other. A run uploads a job and starts guest.py on it; only the program, its input and its limits
leave this process. A machine that is lost is replaced and the run repeated on another one; a busy service is retried
with growing pauses. What still fails after that is an outage and raises `SandboxError`.

Python only. Needs the extra `e2b` of setup.py and E2B_API_KEY. One pool per event loop. Machines alive at exit are
ended; those of a killed process end when their lifetime is over.
"""

import asyncio
import atexit
import base64
import functools
import json
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from reward_fns.sandbox import MB, Job, Program, ProgramLimits, RunResult, SandboxError

SLOTS = 16  # the smallest plan allows 20
LIFETIME = 600  # seconds until an unused machine ends by itself
PATIENCE = 60.0  # seconds to wait for a busy service
PAUSE = 0.5  # seconds before the second try
ATTEMPTS = 3  # machines per run
_GRACE = 15.0  # seconds beyond a run's own limit until its machine counts as lost
_GUEST = "/opt/agon_guest.py"
# Prints "isolated" if a program runs as an ordinary user, sees no other process, reaches no network, and can leave no
# file.
_CHECK = b"""
import os, socket
private = ("/tmp", "/var/tmp", "/dev/shm")
mounts = {line.split()[1] for line in open("/proc/self/mounts")}
writable = {m for m in mounts if os.path.ismount(m) and not os.statvfs(m).f_flag & os.ST_RDONLY} - set(private)
try:
    socket.create_connection(("1.1.1.1", 53), 2)
except OSError:
    seen = sum(name.isdigit() for name in os.listdir("/proc"))
    rights = "NoNewPrivs:\\t1" in open("/proc/self/status").read()
    isolated = os.getuid() and seen <= 2 and rights and not writable
    print("isolated" if isolated else f"{os.getuid()=} {seen=} {rights=} {writable=}")
"""
_log = logging.getLogger(__name__)
_alive: set[str] = set()
_Result = TypeVar("_Result")


class E2BSandbox:
    """At most `slots` machines of e2b's code interpreter, or of `template` (needs Python 3 and util-linux)."""

    def __init__(self, slots: int | None = None, template: str | None = None) -> None:
        self._slots, self._template = slots or SLOTS, template
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, _Pool] = WeakKeyDictionary()

    async def can_run(self, language: str) -> bool:
        return language == "python"

    async def build(self, source: str, language: str) -> Program:
        return Program(language, source.encode("utf-8", "replace"))

    async def run(self, job: Job) -> RunResult:
        loop = asyncio.get_running_loop()
        if loop not in self._pools:
            self._pools[loop] = _Pool(self._slots, self._template)
        return await self._pools[loop].run(job)


class _Pool:
    """The machines of one event loop."""

    def __init__(self, slots: int, template: str | None) -> None:
        self._template = template
        self._slots = asyncio.Semaphore(slots)
        self._creating = asyncio.Lock()
        self._idle: list[_Machine] = []

    async def run(self, job: Job) -> RunResult:
        lost: Exception | None = None
        async with self._slots:
            for _ in range(ATTEMPTS):
                machine = await self._take()
                try:
                    result = await machine.run(job)
                except _errors().lost as error:
                    _log.warning("replacing an e2b machine that was lost: %s", error)
                    await machine.kill()
                    lost = error
                except BaseException:  # also if cancelled: a machine that is still busy must not be used again
                    await machine.kill()
                    raise
                else:
                    self._idle.append(machine)
                    return result
        raise SandboxError(f"{ATTEMPTS} e2b machines were lost on one run: {lost}") from lost

    async def _take(self) -> "_Machine":
        if self._idle:
            return self._idle.pop()
        async with self._creating:
            if self._idle:
                return self._idle.pop()
            try:
                return await _Machine.create(self._template)
            except _errors().all as error:
                raise SandboxError(f"e2b provided no working machine: {error}") from error


class _Machine:
    def __init__(self, sandbox: Any) -> None:
        self._sandbox = sandbox
        self._ends = time.monotonic() + LIFETIME

    @classmethod
    async def create(cls, template: str | None) -> "_Machine":
        from e2b_code_interpreter import AsyncSandbox

        sandbox = await _retry(
            lambda: AsyncSandbox.create(template=template, timeout=LIFETIME, allow_internet_access=False, retries=0),
            through_outages=True,
        )
        _alive.add(sandbox.sandbox_id)
        machine = cls(sandbox)
        try:
            guest = Path(__file__).with_name("guest.py").read_text(encoding="utf-8")
            await _retry(lambda: sandbox.files.write(_GUEST, guest, user="root"))
            result = await machine.run(Job(Program("python", _CHECK), b"", ProgramLimits(5.0, 128 * MB, MB)))
            if result.stdout != b"isolated\n":
                raise SandboxError(f"the e2b machine does not isolate programs: {result}")
        except BaseException:
            await machine.kill()
            raise
        return machine

    async def run(self, job: Job) -> RunResult:
        if self._ends - time.monotonic() < LIFETIME / 2:
            await _retry(lambda: self._sandbox.set_timeout(LIFETIME))
            self._ends = time.monotonic() + LIFETIME
        files = {"main": job.program.code, **job.files}
        message = {
            "files": {name: base64.b64encode(content).decode() for name, content in files.items()},
            "stdin": base64.b64encode(job.stdin).decode(),
            **asdict(job.limits),
            "wall": job.limits.wall,
        }
        path = f"/opt/job-{random.getrandbits(64):x}.json"
        await _retry(lambda: self._sandbox.files.write(path, json.dumps(message), user="root"))
        command = f"python3 {_GUEST} {path}; status=$?; rm -f {path}; exit $status"
        limit = job.limits.wall + _GRACE
        done = await _retry(lambda: self._sandbox.commands.run(command, user="root", timeout=limit))
        answer = json.loads(done.stdout)
        for name in ("stdout", "stderr"):
            answer[name] = base64.b64decode(answer[name])
        return RunResult(**answer)

    async def kill(self) -> None:
        """End the machine; one that cannot be reached ends by itself."""
        _alive.discard(self._sandbox.sandbox_id)
        try:
            await self._sandbox.kill(request_timeout=_GRACE, retries=0)
        except _errors().all as error:
            _log.warning("an e2b machine could not be ended: %s", error)


class _Errors(NamedTuple):
    """The client's exceptions by meaning; they have no common base class."""

    busy: tuple[type[Exception], ...]
    unreachable: tuple[type[Exception], ...]
    lost: tuple[type[Exception], ...]  # a machine is gone, unreachable, hangs, or fails
    all: tuple[type[Exception], ...]


@functools.cache
def _errors() -> _Errors:
    import e2b
    import httpx
    from connectrpc.errors import ConnectError  # raised if a command's connection breaks
    from e2b.exceptions import ServiceBusyException

    busy = (e2b.RateLimitException, ServiceBusyException)
    unreachable = (httpx.TransportError, ConnectError)
    lost = (e2b.SandboxException, *unreachable)
    return _Errors(busy, unreachable, lost, (*busy, *lost, e2b.AuthenticationException))


async def _retry(call: Callable[[], Awaitable[_Result]], through_outages: bool = False) -> _Result:
    """Call again while the service is busy, with pauses that double each time and vary by chance.

    With `through_outages` also while it cannot be reached or responds with a server error (5xx).
    """
    deadline, pause = time.monotonic() + PATIENCE, PAUSE
    while True:
        try:
            return await call()
        except _errors().all as error:
            outage = isinstance(error, _errors().unreachable) or (getattr(error, "status_code", None) or 0) >= 500
            if not isinstance(error, _errors().busy) and not (through_outages and outage):
                raise
            wait = pause * random.uniform(0.5, 1.5)
            if time.monotonic() + wait > deadline:
                raise SandboxError(f"e2b was busy or out of reach for {PATIENCE:.0f} s: {error}") from error
            await asyncio.sleep(wait)
            pause = min(2 * pause, 30 * PAUSE)


@atexit.register
def _end_all() -> None:
    if _alive:
        from e2b import Sandbox

        while _alive:
            try:
                Sandbox.kill(_alive.pop(), request_timeout=10, retries=0)
            except _errors().all as error:
                _log.warning("an e2b machine could not be ended: %s", error)
