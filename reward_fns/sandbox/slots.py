"""Slots: how many programs run at once on this machine, however many processes judge.

verl runs several reward workers on a node, and each knows nothing of the others; with a bound in each alone, a node
would run that many times too many programs, and correct ones would miss their time limit for want of a core. A slot is
the name of an abstract Unix socket: it leaves no file, and the kernel frees it when its owner dies.
"""

import errno
import os
import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_POLL = 0.002  # seconds
_TRIED = 8  # names tried at a time: enough to find a free one soon, few enough to cost nothing
_seeking = threading.Lock()  # one thread of a process looks at a time


@contextmanager
def slot(count: int) -> Iterator[int]:
    """Wait for one of `count` slots and hold it; yields its number."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as held:
        with _seeking:
            while (number := _bind(held, count)) is None:
                time.sleep(_POLL)
        yield number


def _bind(held: socket.socket, count: int) -> int | None:
    for number in random.sample(range(count), min(count, _TRIED)):
        try:
            held.bind(f"\0agon-verl-sandbox-{os.geteuid()}-{number}")
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            return number
    return None
