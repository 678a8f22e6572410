"""Writing files so that no reader sees an incomplete one, even if the writer is killed."""

import os
from pathlib import Path


def write_atomically(path: Path, text: str) -> None:
    """Replace `path` by `text` in one rename, after the data has reached the disk."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with scratch.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
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
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
