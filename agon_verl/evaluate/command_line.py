"""The command-line options of `evaluate`, `evaluate compare` and `evaluate average`."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from agon_verl.inference.options import add_players
from agon_verl.program import program_name


def evaluate_options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=program_name("evaluate"),
        description="Evaluate a run, checkpoint, export or base model. See also: compare --help, average --help.",
    )
    add_players(parser)
    add = parser.add_argument
    add("--data", nargs="+", required=True, metavar="SET", help="parquet files, or names of prepared sets")
    add("--out", type=Path, required=True, help="folder for generations and results; an existing one is continued")
    add("--modes", nargs="+", help="A_to_B B_to_A A_to_A B_to_B A B base moa (default: all that the target has)")
    add("--samples", type=int, default=1, help="samples per problem (default: 1)")
    add("--greedy", action="store_true", help="temperature 0")
    add("--seed", type=int, default=0, help="seed of the samples (default: 0)")
    development = parser.add_mutually_exclusive_group()
    development.add_argument("--dev", nargs="+", metavar="SET", help="sets to choose the cascade's direction on")
    development.add_argument("--dev-share", type=float, metavar="X", help="choose it on this share of each set instead")
    add("--reward", help="verifier: pkg://module or file.py, then :function (default: the run's, or the domain's)")
    add("--reward-kwargs", nargs="+", default=[], metavar="KEY=VALUE", help="arguments of the verifier")
    add("--reward-timeout", type=float, help="seconds per verdict (default: the run's, or 90; 600 for code)")
    add("--max-failed", type=float, default=0.1, help="stop above this share of failed verdicts (default: 0.1)")
    add("--concurrency", type=int, default=512, help="requests in vLLM at a time, approximately (default: 512)")
    options = parser.parse_args(arguments)
    if options.samples < 1 or (options.greedy and options.samples > 1):
        parser.error("--samples must be 1 or more, and 1 with --greedy: greedy samples are all the same")
    if options.dev_share is not None and not 0 < options.dev_share < 1:
        parser.error("--dev-share must lie between 0 and 1")
    return options


def compare_options(command: str, arguments: Sequence[str]) -> argparse.Namespace:
    """Of `compare`, which takes two results, or of `average`, which takes any number."""
    parser = argparse.ArgumentParser(prog=program_name(f"evaluate {command}"))
    parser.add_argument("results", nargs=2 if command == "compare" else "+", help="results.json, or its folder")
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    if command == "compare":
        parser.add_argument("--modes", nargs="+", help="one mode of each (default: every mode that both have)")
    return parser.parse_args(arguments)
