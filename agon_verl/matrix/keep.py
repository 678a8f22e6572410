"""What a cell leaves behind: only what a table, a later evaluation or a continued run needs.

    adapters/           of a trained cell, in bfloat16: an export that `agon_verl.evaluate` takes
    checkpoints/        of an unfinished cell, the newest one only
    pairs/<step>.jsonl  the pairs of a few problems per step

vLLM computes in bfloat16 on a GPU and rounds adapters when it loads them, so there an evaluation of the kept adapters
is that of the checkpoint. A checkpoint is larger: both adapters and two moments of each trained one in float32, at
least six times the kept adapters of a pair. Compression takes off no more than an eighth.
"""

import hashlib
import json
import os
import shutil
from pathlib import Path

from agon_verl.export.exporter import write_adapter
from agon_verl.files import write_atomically
from agon_verl.game.roles import directions
from agon_verl.pair.checkpoint import Manifest, find_checkpoint
from agon_verl.pair.trained import TrainedPair

ADAPTERS_FOLDER, CHECKPOINTS, PAIRS = "adapters", "checkpoints", "pairs"


def keep_adapters(folder: Path) -> None:
    """Write `adapters/` from the newest checkpoint, then remove the checkpoints.

    Does nothing where there are none: it is done, or of an evaluated cell no adapters were taken along.
    """
    if not (folder / CHECKPOINTS).exists():
        return
    if not (folder / ADAPTERS_FOLDER).exists():
        checkpoint = find_checkpoint(folder / CHECKPOINTS)
        pair = TrainedPair.from_manifest(Manifest.read(checkpoint))
        scratch = folder / f".{ADAPTERS_FOLDER}.{os.getpid()}"
        try:
            scratch.mkdir()
            for name in sorted({drafter for drafter, _ in directions(pair.players)}):  # with one player, only A
                write_adapter(checkpoint / "actor" / name, scratch / name, pair.base.path, half=True)
            pair.write(scratch)
            scratch.rename(folder / ADAPTERS_FOLDER)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)


def keep_pairs(folder: Path, problems: int) -> None:
    """Of each step the pairs of so many problems, all pairs of each: chosen by a digest, so the same again."""
    for path in sorted((folder / PAIRS).glob("*.jsonl")):
        by_problem: dict[str, list[str]] = {}
        for line in path.read_text().splitlines():
            try:
                by_problem.setdefault(str(json.loads(line)["uid"]), []).append(line)
            except json.JSONDecodeError:  # torn by a kill
                continue
        order = sorted(by_problem, key=lambda uid: hashlib.sha256(uid.encode()).digest())
        if len(order) > problems:
            write_atomically(path, "".join(line + "\n" for uid in order[:problems] for line in by_problem[uid]))
