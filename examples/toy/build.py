"""Builds the toy model and its data: `python -m examples.toy.build FOLDER` in the root of the repository."""

import random
import sys
from pathlib import Path

import pandas as pd

from examples.toy.model import ToySettings, pretrain
from examples.toy.problems import WordProblem, distinct, row


def split(settings: ToySettings) -> tuple[list[WordProblem], list[WordProblem]]:
    """Training and held-out problems. No held-out sum is in the training set or in the pre-training corpus."""
    held_out = distinct(random.Random(f"held-out {settings.seed}"), settings.held_out, digits=settings.digits)
    keys = {problem.key for problem in held_out}
    rng = random.Random(f"train {settings.seed}")
    return distinct(rng, settings.train_problems, keys, settings.digits), held_out


def build(folder: Path, settings: ToySettings) -> None:
    """Writes `model/`, `train.parquet` and `test.parquet` into `folder`."""
    train, held_out = split(settings)
    folder.mkdir(parents=True, exist_ok=True)
    for name, problems in (("train", train), ("test", held_out)):
        pd.DataFrame([row(p, i, name) for i, p in enumerate(problems)]).to_parquet(folder / f"{name}.parquet")
    pretrain(folder / "model", {problem.key for problem in held_out}, settings)


if __name__ == "__main__":
    build(Path(sys.argv[1]), ToySettings())
