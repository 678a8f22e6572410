"""The frozen base model on disk: where its weights are, and the hash by which a checkpoint recognises them."""

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agon_verl.errors import CheckpointError

_BLOCK = 4096  # bytes of each tensor that enter the hash


def hash_of_base(folder: Path) -> str:
    """Identify a model's weights without reading all of them, so that a large base takes no longer than a small one.

    The hash covers the names, shapes and types of all tensors and the first bytes of each, so a base that was trained
    further has a different hash. A change that leaves the first 2,048 numbers of every tensor alone is not detected.
    Weights in other formats than safetensors are hashed by their size, first and last megabyte.
    """
    by_format = (sorted(folder.glob(pattern)) for pattern in ("*.safetensors", "*.bin", "*.pt"))
    files = next((files for files in by_format if files), None)
    if files is None:
        raise CheckpointError(f"{folder} contains no weights: use a Hugging Face model's folder")
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.name.encode())
        with path.open("rb") as file:
            if path.suffix == ".safetensors":
                length = int.from_bytes(file.read(8), "little")
                header = file.read(length)
                digest.update(header)
                entries: dict[str, Any] = json.loads(header)
                starts = [entry["data_offsets"] for name, entry in entries.items() if name != "__metadata__"]
                for start, end in sorted(starts):
                    file.seek(8 + length + start)
                    digest.update(file.read(min(_BLOCK, end - start)))
            else:
                size = path.stat().st_size
                digest.update(str(size).encode() + file.read(2**20))
                file.seek(max(0, size - 2**20))
                digest.update(file.read())
    return digest.hexdigest()


def base_folder(path: str) -> Path:
    """The folder of the base's weights: `path` itself, or the local copy of a model of the Hugging Face hub."""
    local = Path(os.path.expanduser(path))
    if local.is_dir():
        return local
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(path, local_files_only=True))


@dataclass(frozen=True)
class Base:
    """`checked`: the weights are on this machine and have the hash that the checkpoint recorded."""

    path: str
    hash: str
    checked: bool


def find_base(path: str, expected_hash: str, override: str | None, needed: bool) -> tuple[Base, Path | None]:
    """The base and the folder of its weights. The folder is None if the weights are not here and not `needed`.

    An adapter over other weights than those it was trained on loads without an error and gives wrong answers, so a base
    with another hash is refused. `override` is the user's --base.
    """
    name = override or path
    try:
        folder = base_folder(name)
        actual_hash = hash_of_base(folder)
    except (OSError, ValueError, CheckpointError):  # huggingface_hub's own errors are among these
        if override is None and not needed:
            return Base(name, expected_hash, checked=False), None
        raise CheckpointError(f"{name} has no readable weights: give the folder of the base with --base") from None
    if actual_hash != expected_hash:
        raise CheckpointError(
            f"{name} is not the base that the pair was trained on: the hash of its weights is {actual_hash[:12]}, the "
            f"checkpoint's is {expected_hash[:12]}; give the right folder with --base"
        )
    local = Path(name).expanduser()
    return Base(str(local.absolute()) if local.is_dir() else name, actual_hash, checked=True), folder
