"""The hash by which a checkpoint recognises its base."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from agon_verl.errors import CheckpointError
from agon_verl.pair.base import hash_of_base


def test_the_hash_depends_on_every_tensor_and_not_on_the_path(tmp_path: Path) -> None:
    tensors = {f"layer.{i}": np.full((300, 300), float(i), dtype=np.float32) for i in range(4)}
    hashes = []
    for name, change in (("a", None), ("b", None), ("c", "layer.3")):
        folder = tmp_path / name
        folder.mkdir()
        changed = {k: v + 1e-3 if k == change else v for k, v in tensors.items()}
        save_file(changed, folder / "model.safetensors")
        hashes.append(hash_of_base(folder))
    assert hashes[0] == hashes[1] != hashes[2]
    with pytest.raises(CheckpointError, match="contains no weights"):
        hash_of_base(tmp_path)
