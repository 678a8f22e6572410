"""Writing files so that no reader sees an incomplete one, even if the writer is killed.

Some storage (Lustre without `flock`, some FUSE mounts) has no locks, or cannot flush a folder. A run goes on there with
a warning: without locks two runs may use one folder, without the flush a crash of the machine may lose the last save.
"""

import errno
import fcntl
import logging
import os
from functools import cache
from pathlib import Path
from typing import IO, Any

logger = logging.getLogger(__name__)
_UNSUPPORTED = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOLCK}


def write_atomically(path: Path, text: str) -> None:
    """Replace `path` by `text` in one rename, after the data has reached the disk."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with scratch.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            _flush(file.fileno())
        scratch.rename(path)
        sync(path.parent)
    finally:
        scratch.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Flush everything in `folder` to the disk, whichever process wrote it."""
    for path in (*folder.rglob("*"), folder):
        sync(path)


def sync(path: Path) -> None:
    """Flush the entries of a directory, or the data of a file."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        _flush(descriptor)
    finally:
        os.close(descriptor)


def lock(file: IO[Any]) -> None:
    """Lock an open file until it is closed; the system does that even after a kill.

    Raises BlockingIOError if another process has locked it.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        _tolerate(error, "no locks: make sure that no other run uses the same folder")


def _flush(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    except OSError as error:
        _tolerate(error, "no flush to the disk: a crash of the machine may lose the last save")


def _tolerate(error: OSError, lack: str) -> None:
    if error.errno not in _UNSUPPORTED:
        raise error
    _warn(f"agon-verl: this storage has {lack} ({error.strerror})")


@cache
def _warn(message: str) -> None:
    """Once per process."""
    logger.warning(message)
