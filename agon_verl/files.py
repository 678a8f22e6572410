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
        sync_directory(path.parent)
    finally:
        scratch.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Flush everything in `folder` to the disk, whichever process wrote it."""
    for path in folder.rglob("*"):
        sync_directory(path) if path.is_dir() else _sync_file(path)
    sync_directory(folder)


def _sync_file(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
