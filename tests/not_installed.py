"""Our packages as plain folders, and a Python in which agon-verl is not installed."""

import shutil
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("agon_verl", "recipes", "reward_fns")


def copied(folder: Path, *packages: str) -> Path:
    for package in packages:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def python_without_agon(folder: Path) -> Path:
    """It has what this one has otherwise, by links."""
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/*/site-packages")
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if "agon" not in entry.name:
            (packages / entry.name).symlink_to(entry)
    return folder / "bin" / "python"
