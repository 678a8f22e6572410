"""Builds a toy model and its data, in the root of the repository:

python -m examples.toy.build FOLDER                                        the quickstart's
python -m examples.toy.build FOLDER --digits 3 4 --solutions 25600 --train 2048 --held-out 400 --slips 0.5 0.2 0.5
                                                                           the second study's (docs/evidence.md)
"""

import argparse
import random
from pathlib import Path

import pandas as pd

from examples.toy.model import ToySettings, pretrain
from examples.toy.problems import WordProblem, distinct, row
from examples.toy.traces import SlipRates


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


def main() -> None:
    default = ToySettings()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--digits", type=int, nargs="+", default=default.digits, help="of the numbers")
    parser.add_argument("--solutions", type=int, default=default.solutions, help="in the pre-training corpus")
    parser.add_argument("--train", type=int, default=default.train_problems, help="training problems")
    parser.add_argument("--held-out", type=int, default=default.held_out, help="held-out problems")
    slips = (default.slips.alone, default.slips.after_right, default.slips.after_wrong)
    names = ("ALONE", "AFTER_RIGHT", "AFTER_WRONG")
    parser.add_argument("--slips", type=float, nargs=3, metavar=names, default=slips, help="rates of forgotten carries")
    args = parser.parse_args()
    settings = ToySettings(
        digits=tuple(args.digits),
        solutions=args.solutions,
        train_problems=args.train,
        held_out=args.held_out,
        slips=SlipRates(*args.slips),
    )
    build(args.folder, settings)


if __name__ == "__main__":
    main()
