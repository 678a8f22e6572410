"""The processes that do algebra; `pool` starts the first, in which `main` runs.

It imports math-verify once, a second of work, and then only forks: a worker that was killed is replaced within
milliseconds, and all of them share the memory of the imports. It ends when the other end of its socket closes, or its
parent is another than at its start (the end may live on in a fork of the parent); workers end with it.

Messages are JSON. A job is `[gold, answer, finished]`, or `[gold, null, null]` to check a reference alone; the reply is
one of `true`, `false`, "memory", "error". A worker that has grown ends after its reply.
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
import sys
from multiprocessing.connection import Connection

from reward_fns.mathematics import algebra
from reward_fns.mathematics.equal import equal, formulas, reference
from reward_fns.mathematics.tokens import tokenize

_POLL_S = 2.0
# What makes math-verify and sympy import and build what they put off, for a worker to inherit.
_WARM_UP = (
    (r"\sum_{k=1}^{n} k", r"\frac{n(n+1)}{2}"),
    (r"\sum_{k=0}^{n} \frac{x^k}{k!}", r"e^{-x} + \sqrt[3]{y} - a_1 \cdot \binom{n}{k}"),
    (r"\int_0^1 2x dx", r"\int_0^1 x dx"),
    (r"\ln x + \sin(\pi x) - |x|", r"\log_2 \left( x \right) + \lfloor x^2 \rfloor"),
)


def main(descriptor: int, megabytes: int) -> None:
    """Fork a worker for each "f", which carries its end of a connection, and kill one for each "k" and its number."""
    control = socket.socket(fileno=descriptor)
    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    for gold, answer in _WARM_UP:
        algebra.same(tokenize(gold), tokenize(answer))
    gc.freeze()  # or the first collection in a worker would copy all it shares
    parent = os.getppid()
    workers: set[int] = set()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C in the terminal is the parent's to handle
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # from here on nobody reads what is printed
    control.send(b"ready")
    while os.getppid() == parent:
        message = b""
        if select.select([control], [], [], _POLL_S)[0]:
            message, descriptors, _, _ = socket.recv_fds(control, 32, 1)
            if not message:
                return
        if message.startswith(b"k") and int(message[1:]) in workers:
            os.kill(int(message[1:]), signal.SIGKILL)  # its number is not given away before it is waited for below
        while workers and (ended := os.waitpid(-1, os.WNOHANG)[0]):
            workers.discard(ended)
        if message == b"f":
            workers.add(_fork(control, descriptors[0], megabytes))


def _fork(control: socket.socket, descriptor: int, megabytes: int) -> int:
    forker = os.getpid()
    if pid := os.fork():
        os.close(descriptor)
        control.send(str(pid).encode())
        return pid
    control.close()
    _end_with(forker)
    _work(Connection(descriptor), megabytes)
    os._exit(0)


def _end_with(forker: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != forker:
        os._exit(0)


def _work(jobs: Connection, megabytes: int) -> None:
    before = _kilobytes("VmSize")
    unlimited = resource.getrlimit(resource.RLIMIT_AS)
    limited = ((before + megabytes * 1024) * 1024, unlimited[1])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            gold, answer, finished = json.loads(jobs.recv_bytes())
            resource.setrlimit(resource.RLIMIT_AS, limited)
            reply = _judge(gold, answer, finished)
            resource.setrlimit(resource.RLIMIT_AS, unlimited)  # there may be nothing left to reply with
            grown = (_kilobytes("VmPeak") - before) / (megabytes * 1024)
            if reply is False and grown > 0.9:
                reply = "memory"  # sympy caught the error and went on without the result
            jobs.send_bytes(json.dumps(reply).encode())
            if isinstance(reply, str) or grown > 0.5:
                return


def _judge(gold: str, answer: str | None, finished: bool) -> bool | str:
    try:
        if answer is None:
            for tokens in formulas(reference(gold)):
                if algebra.readable(tokens):
                    algebra.check(tokens)
            return True
        return bool(equal(gold, answer, finished=finished, ask=algebra.same))
    except MemoryError:
        return "memory"
    except Exception:  # sympy raises anything at all; the parent finds out whether the reference is to blame
        return "error"


def _kilobytes(name: str) -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name))
