"""Slots limit how many programs run at once on this machine, across all processes that judge programs.

verl starts several reward workers per node. With a limit in each worker alone, a node would run several times too many
programs, and correct ones would exceed their time limit because no core is free. A slot is the name of an abstract Unix
socket: it leaves no file, and the kernel frees it when its owner dies.
"""

import errno
import os
import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

NAME = f"agon-verl-sandbox-{os.geteuid()}"
_POLL = 0.002  # seconds
_TRIED = 8  # names tried per attempt: enough to find a free one soon, few enough to be cheap
_seeking = threading.Lock()  # one thread per process searches at a time


def _after_fork() -> None:
    """A thread that does not exist in the child may own the lock."""
    global _seeking
    _seeking = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


@contextmanager
def slot(count: int) -> Iterator[int]:
    """Wait for one of `count` slots and occupy it; yields its number."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as owner:
        with _seeking:
            while (number := _bind(owner, count)) is None:
                time.sleep(_POLL)
        yield number


def _bind(owner: socket.socket, count: int) -> int | None:
    for number in random.sample(range(count), min(count, _TRIED)):
        try:
            owner.bind(f"\0{NAME}-{number}")
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            return number
    return None
