"""The processes that do algebra. `pool` starts the first one, which runs `main` and forks the workers.

It imports math-verify once, which takes a second, and then only forks: a killed worker is replaced within milliseconds,
and all workers share the memory of the imports. It ends when the other end of its socket closes, or when its parent
changes (a fork of the parent may still have the socket open); the workers end with it.

Messages are JSON. A request is `[gold, answer, finished]`, or `[gold, null, null]` to check a reference alone; the
reply is `true`, `false`, "memory" or "error". A worker that has grown too large ends after its reply.
"""

import contextlib
import ctypes
import gc
import json
import logging
import os
import resource
import select
import signal
import socket
from multiprocessing.connection import Connection

from reward_fns.mathematics import algebra
from reward_fns.mathematics.equal import equal, reference

_POLL_S = 2.0
# Formulas that make math-verify and sympy do their lazy imports, for the workers to inherit.
_WARM_UP = (
    (r"\sum_{k=1}^{n} k", r"\frac{n(n+1)}{2}"),
    (r"\sum_{k=0}^{n} \frac{x^k}{k!}", r"e^{-x} + \sqrt[3]{y} - a_1 \cdot \binom{n}{k}"),
    (r"\int_0^1 2x dx", r"\int_0^1 x dx"),
    (r"\ln x + \sin(\pi x) - |x|", r"\log_2 \left( x \right) + \lfloor x^2 \rfloor"),
)


def main(descriptor: int, megabytes: int) -> None:
    """Fork a worker for every connection received, and reply with its process number."""
    control = socket.socket(fileno=descriptor)
    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    for gold, answer in _WARM_UP:
        equal(gold, answer, finished=False, decide=algebra.same)
    gc.freeze()  # or the first collection in a worker would copy the shared memory
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # workers are not waited for
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # nobody reads it after the start
    forker, parent = os.getpid(), os.getppid()
    control.send(b"ready")
    while os.getppid() == parent:
        if not select.select([control], [], [], _POLL_S)[0]:
            continue
        message, descriptors, _, _ = socket.recv_fds(control, 32, 1)
        if not message:
            return
        pid = os.fork()
        if not pid:
            control.close()
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: end with the parent
            if os.getppid() == forker:
                work(Connection(descriptors[0]), megabytes)
            os._exit(0)
        os.close(descriptors[0])
        control.send(str(pid).encode())


def work(jobs: Connection, megabytes: int) -> None:
    before, most = _kilobytes("VmSize"), megabytes * 1024
    resource.setrlimit(resource.RLIMIT_AS, ((before + most) * 1024, resource.getrlimit(resource.RLIMIT_AS)[1]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    grown = 0
    with contextlib.suppress(EOFError, ConnectionError):
        while grown < most / 2:
            reply = _judge(*json.loads(jobs.recv_bytes()))
            grown = _kilobytes("VmPeak") - before
            if reply is False and grown > 0.9 * most:
                reply = "memory"  # sympy caught the error and continued without the result
            jobs.send_bytes(json.dumps(reply).encode())


def _judge(gold: str, answer: str | None, finished: bool) -> bool | str:
    try:
        if answer is None:
            for formula in reference(gold).formulas():
                algebra.check(formula)
            return True
        return bool(equal(gold, answer, finished=finished, decide=algebra.same))
    except MemoryError:
        return "memory"
    except Exception:  # sympy raises anything; the parent checks whether the reference is the cause
        return "error"


def _kilobytes(name: str) -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name))
