"""Packed rows against padded ones on this machine's device: prints the differences as JSON.

python -m tests.gpu.packed_rows MODEL RECIPE [OVERRIDE …]
"""

import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import torch

from tests.packed_against_padded import compare, one_rank

LENGTHS = [300, 33, 210, 129, 64, 480]

if __name__ == "__main__":
    model, recipe, *overrides = sys.argv[1:]
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    with tempfile.TemporaryDirectory() as folder, one_rank(Path(folder), backend):
        difference = compare(Path(model), LENGTHS, *overrides, recipe=recipe, cap=1024)
    print(json.dumps(asdict(difference)))
