"""The command line: `python -m agon_verl.export CHECKPOINT OUT`."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from agon_verl.export.exporter import export
from agon_verl.pair.direction import DIRECTIONS
from agon_verl.program import command, program_name


@command
def main(arguments: Sequence[str] | None) -> None:
    parser = argparse.ArgumentParser(prog=program_name("export"), description="Export a trained pair for use.")
    parser.add_argument("checkpoint", type=Path, help="a global_step_<n>, or a run's folder for its newest checkpoint")
    parser.add_argument("out", type=Path, help="the folder to write; must not exist, or be empty")
    parser.add_argument("--merged", action="store_true", help="also write a full model for each adapter")
    parser.add_argument("--direction", choices=DIRECTIONS, help="of the cascade (the higher validation accuracy)")
    parser.add_argument("--base", help="path of the base model, if it has moved since the run")
    print(export(**vars(parser.parse_args(arguments))))


if __name__ == "__main__":
    raise SystemExit(main())
