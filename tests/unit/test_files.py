"""Files on storage that lacks locks or a flush, and on storage that is really broken."""

import errno
import fcntl
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from agon_verl import files
from agon_verl.pair.checkpoint import committing, complete


@pytest.fixture(autouse=True)
def forgotten() -> None:
    files._warn.cache_clear()


def test_a_folder_that_cannot_be_flushed_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    folder = Path("/proc/self")  # its file system has no fsync: EINVAL
    with pytest.raises(OSError, match="Invalid argument"):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    with caplog.at_level(logging.WARNING):
        files.sync(folder)
        files.sync(folder)
    (record,) = caplog.records
    assert "this storage has no flush to the disk" in record.message and "Invalid argument" in record.message


def refuse(code: int) -> Any:
    def call(*_: Any) -> None:
        raise OSError(code, os.strerror(code))

    return call


UNSUPPORTED = [errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOLCK]


@pytest.mark.parametrize("code", UNSUPPORTED, ids=errno.errorcode.get)
def test_a_checkpoint_is_saved_without_flush_and_locks(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(os, "fsync", refuse(code))
    monkeypatch.setattr(fcntl, "flock", refuse(code))
    with caplog.at_level(logging.WARNING), (tmp_path / "lock").open("w") as file:
        files.lock(file)
        with committing(tmp_path, 1) as folder:
            files.write_atomically(folder / "pair.json", "{}")
    assert complete(tmp_path) == [1]
    assert ["no locks" in record.message for record in caplog.records] == [True, False]


def test_a_lock_in_use_and_a_broken_disk_are_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "lock").open("w") as first, (tmp_path / "lock").open("w") as second:
        files.lock(first)
        with pytest.raises(BlockingIOError):
            files.lock(second)
    monkeypatch.setattr(os, "fsync", refuse(errno.EIO))
    with pytest.raises(OSError, match="Input/output error"):
        files.write_atomically(tmp_path / "x", "text")
