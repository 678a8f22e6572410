"""The e2b sandbox: programs run in virtual machines of a service, a pool of them used again and again.

Creating a machine takes a second and is limited per second and in number, so at most `slots` exist, they are created
one after the other, and each serves many runs. A run uploads a job and starts guest.py on it; only the program,
its input and its limits leave this process. A machine that died, or was lost track of, is replaced and the run tried
again elsewhere; a service that asks us to slow down is waited for, longer each time. What still fails after that is an
outage, and raised.

Python only. Needs the extra `e2b` of setup.py and E2B_API_KEY. One pool an event loop. Machines alive at exit are
ended; those of a process that was killed end by themselves when their time is up.
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
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from reward_fns.sandbox import MB, Job, Program, ProgramLimits, RunResult, SandboxError

SLOTS = 16  # of the 20 that the smallest plan allows
LIFETIME = 600  # seconds until a machine that nobody uses ends by itself
PATIENCE = 60.0  # seconds to wait for a service that is busy
PAUSE = 0.5  # of them before the second try
ATTEMPTS = 3  # machines that may be lost on one run
_GRACE = 15.0  # seconds beyond a run's own limit, after which the machine is lost
_GUEST = "/opt/agon_guest.py"
# Says "held" where a program is nobody, sees no other's process and reaches no network.
_CHECK = b"""
import os, socket
try:
    socket.create_connection(("1.1.1.1", 53), 2)
except OSError:
    seen = sum(name.isdigit() for name in os.listdir("/proc"))
    rights = "NoNewPrivs:\\t1" in open("/proc/self/status").read()
    print("held" if os.getuid() and seen <= 2 and rights else f"{os.getuid()=} {seen=} {rights=}")
"""
_log = logging.getLogger(__name__)
_alive: set[str] = set()
_Result = TypeVar("_Result")


class E2BSandbox:
    """`slots` machines at most, of e2b's code interpreter or of `template`, which needs Python 3 and util-linux."""

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
                    _log.warning("an e2b machine was lost and is replaced: %s", error)
                    await machine.kill()
                    lost = error
                except BaseException:  # also when cancelled: a machine that is still busy must not be used again
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
                raise SandboxError(f"e2b gave no machine that works: {error}") from error


class _Machine:
    def __init__(self, sandbox: Any) -> None:
        self._sandbox = sandbox
        self._ends = time.monotonic() + LIFETIME

    @classmethod
    async def create(cls, template: str | None) -> "_Machine":
        from e2b_code_interpreter import AsyncSandbox

        sandbox = await _patiently(
            lambda: AsyncSandbox.create(template=template, timeout=LIFETIME, allow_internet_access=False, retries=0),
            through_outages=True,
        )
        _alive.add(sandbox.sandbox_id)
        machine = cls(sandbox)
        try:
            guest = Path(__file__).with_name("guest.py").read_text(encoding="utf-8")
            await _patiently(lambda: sandbox.files.write(_GUEST, guest, user="root"))
            tried = await machine.run(Job(Program("python", _CHECK), b"", ProgramLimits(5.0, 128 * MB, MB)))
            if tried.stdout != b"held\n":
                raise SandboxError(f"e2b's machine does not hold a program: {tried}")
        except BaseException:
            await machine.kill()
            raise
        return machine

    async def run(self, job: Job) -> RunResult:
        if self._ends - time.monotonic() < LIFETIME / 2:
            await _patiently(lambda: self._sandbox.set_timeout(LIFETIME))
            self._ends = time.monotonic() + LIFETIME
        files = {"main": job.program.code, **job.files}
        told = {
            "files": {name: base64.b64encode(content).decode() for name, content in files.items()},
            "stdin": base64.b64encode(job.stdin).decode(),
            "cpu": job.limits.cpu,
            "wall": job.limits.wall,
            "memory": job.limits.memory,
            "output": job.limits.output,
        }
        path = f"/opt/job-{random.getrandbits(64):x}.json"
        await _patiently(lambda: self._sandbox.files.write(path, json.dumps(told), user="root"))
        command = f"python3 {_GUEST} {path}; status=$?; rm -f {path}; exit $status"
        limit = job.limits.wall + _GRACE
        done = await _patiently(lambda: self._sandbox.commands.run(command, user="root", timeout=limit))
        answer = json.loads(done.stdout)
        for name in ("stdout", "stderr"):
            answer[name] = base64.b64decode(answer[name])
        return RunResult(**answer)

    async def kill(self) -> None:
        """As far as that is possible: what cannot be reached ends by itself."""
        _alive.discard(self._sandbox.sandbox_id)
        try:
            await self._sandbox.kill(request_timeout=_GRACE, retries=0)
        except _errors().all as error:
            _log.warning("an e2b machine could not be ended: %s", error)


class _Errors(NamedTuple):
    """The client's exceptions by what they mean; it has no common base class for them."""

    busy: tuple[type[Exception], ...]
    unreachable: tuple[type[Exception], ...]
    lost: tuple[type[Exception], ...]  # about a machine: that it is gone, unreachable, hung, or fails at what we ask
    all: tuple[type[Exception], ...]


@functools.cache
def _errors() -> _Errors:
    import e2b
    import httpx
    from connectrpc.errors import ConnectError  # what a command's broken connection surfaces as
    from e2b.exceptions import ServiceBusyException

    busy = (e2b.RateLimitException, ServiceBusyException)
    unreachable = (httpx.TransportError, ConnectError)
    lost = (e2b.SandboxException, *unreachable)
    return _Errors(busy, unreachable, lost, (*busy, *lost, e2b.AuthenticationException))


async def _patiently(call: Callable[[], Awaitable[_Result]], through_outages: bool = False) -> _Result:
    """Wait and call again while the service is busy: twice as long each time, by chance somewhat more or less.

    `through_outages` also while it cannot be reached or answers with an error of its own (5xx).
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
