"""The processes that do algebra; `pool` starts the first, in which `main` runs.

It imports math-verify once, a second of work, and then only forks: a worker that was killed is replaced within
milliseconds, and all of them share the memory of the imports. It ends when the other end of its socket closes, or its
parent is another than at its start (the end may live on in a fork of the parent); workers end with it.

Messages are JSON. A question is `[gold, answer, finished]`, or `[gold, null, null]` to check a reference alone; the
reply is one of `true`, `false`, "memory", "error". A worker that has grown ends after its reply.
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
# What makes math-verify and sympy import and build what they put off, for a worker to inherit.
_WARM_UP = (
    (r"\sum_{k=1}^{n} k", r"\frac{n(n+1)}{2}"),
    (r"\sum_{k=0}^{n} \frac{x^k}{k!}", r"e^{-x} + \sqrt[3]{y} - a_1 \cdot \binom{n}{k}"),
    (r"\int_0^1 2x dx", r"\int_0^1 x dx"),
    (r"\ln x + \sin(\pi x) - |x|", r"\log_2 \left( x \right) + \lfloor x^2 \rfloor"),
)


def main(descriptor: int, megabytes: int) -> None:
    """Fork a worker for every connection that comes, and answer with its number."""
    control = socket.socket(fileno=descriptor)
    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    for gold, answer in _WARM_UP:
        equal(gold, answer, finished=False, ask=algebra.same)
    gc.freeze()  # or the first collection in a worker would copy all it shares
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C in the terminal is the parent's to handle
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a worker
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # from here on nobody reads what is printed
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
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: end with the one who forked
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
                reply = "memory"  # sympy caught the error and went on without the result
            jobs.send_bytes(json.dumps(reply).encode())


def _judge(gold: str, answer: str | None, finished: bool) -> bool | str:
    try:
        if answer is None:
            for formula in reference(gold).formulas():
                algebra.check(formula)
            return True
        return bool(equal(gold, answer, finished=finished, ask=algebra.same))
    except MemoryError:
        return "memory"
    except Exception:  # sympy raises anything at all; the parent finds out whether the reference is to blame
        return "error"


def _kilobytes(name: str) -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name))
