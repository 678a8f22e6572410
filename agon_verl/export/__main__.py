"""The command line: `python -m agon_verl.export CHECKPOINT OUT`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from agon_verl.errors import AgonError
from agon_verl.export.write import export
from agon_verl.pair.direction import DIRECTIONS
from agon_verl.program import program_name


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog=program_name("export"), description="Export a trained pair for use.")
    parser.add_argument("checkpoint", type=Path, help="a global_step_<n>, or a run's folder for its newest checkpoint")
    parser.add_argument("out", type=Path, help="the folder to write; must not exist, or be empty")
    parser.add_argument("--merged", action="store_true", help="also write a full model for each adapter")
    parser.add_argument("--direction", choices=DIRECTIONS, help="of the cascade (the higher validation accuracy)")
    parser.add_argument("--base", help="path of the base model, if it has moved since the run")
    try:
        print(export(**vars(parser.parse_args(arguments))))
    except (AgonError, OSError) as error:
        print(f"agon-verl: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
