"""Whether processes that were killed are gone: each takes a moment to."""

import time
from collections.abc import Iterable
from pathlib import Path


def alive(pid: int) -> bool:
    """A zombie has ended; nobody has asked for its status yet."""
    return state(pid) not in ("Z", "")


def state(pid: int) -> str:
    """Its letter in `/proc`, none if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def gone(pids: Iterable[int], within: float) -> bool:
    pids, end = list(pids), time.monotonic() + within
    while any(map(alive, pids)) and time.monotonic() < end:
        time.sleep(0.02)
    return not any(map(alive, pids))
