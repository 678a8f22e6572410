"""What `python -m agon_verl.evaluate TARGET` is given."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from agon_verl.inference.options import add_players
from agon_verl.program import program_name


def options(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=program_name("evaluate"),
        description="Evaluate a run, checkpoint, export or base model. See also: compare --help, average --help.",
    )
    add_players(parser)
    add = parser.add_argument
    add("--data", nargs="+", required=True, metavar="SET", help="parquet files, or names of prepared sets")
    add("--out", type=Path, required=True, help="folder of the generations and results; one that exists is continued")
    add("--modes", nargs="+", help="A_to_B B_to_A A_to_A B_to_B A B base moa; all that the target has")
    add("--samples", type=int, default=1, help="a problem (1)")
    add("--greedy", action="store_true", help="temperature 0")
    add("--seed", type=int, default=0, help="of the samples (0)")
    development = parser.add_mutually_exclusive_group()
    development.add_argument("--dev", nargs="+", metavar="SET", help="where the cascade's direction is chosen")
    development.add_argument("--dev-share", type=float, metavar="X", help="choose it on this share of each set instead")
    add("--reward", help="the verifier: pkg://module or file.py, :function (the run's, or the domain's)")
    add("--reward-kwargs", nargs="+", default=[], metavar="KEY=VALUE")
    add("--reward-timeout", type=float, help="seconds (the run's, or 90; 600 for code)")
    add("--max-failed", type=float, default=0.1, help="share of generations whose judge may fail (0.1)")
    add("--concurrency", type=int, default=512, help="requests that vLLM is given at a time, about (512)")
    found = parser.parse_args(given)
    if found.samples < 1 or (found.greedy and found.samples > 1):
        parser.error("--samples must be 1 or more, and greedy samples are all the same")
    if found.dev_share is not None and not 0 < found.dev_share < 1:
        parser.error("--dev-share must lie between 0 and 1")
    return found
