"""What `python -m agon_verl.evaluate TARGET` is given."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agon_verl.game.withhold import DOMAINS
from agon_verl.inference.players import InferenceError


def options(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m agon_verl.evaluate",
        description="Evaluate a run, checkpoint, export or base model. See also: compare --help, average --help.",
    )
    add = parser.add_argument
    add("target", help="a run's folder, a global_step_<n>, an export, or a base model")
    add("--data", nargs="+", required=True, metavar="SET", help="parquet files, or names of prepared sets")
    add("--out", type=Path, required=True, help="folder of the generations and results; one that exists is continued")
    add("--modes", nargs="+", help="A_to_B B_to_A A_to_A B_to_B A B base moa; all that the target has")
    add("--samples", type=int, default=1, help="a problem (1)")
    add("--greedy", action="store_true", help="temperature 0")
    add("--seed", type=int, default=0, help="of the samples (0)")
    development = parser.add_mutually_exclusive_group()
    development.add_argument("--dev", nargs="+", metavar="SET", help="where the cascade's direction is chosen")
    development.add_argument("--dev-share", type=float, metavar="X", help="choose it on this share of each set instead")
    for name in ("--temperature", "--top-p"):
        add(name, type=float, help="(the target's, or the paper's 0.6 and 0.95)")
    add("--top-k", type=int, help="(the target's, or none)")
    add("--max-tokens", type=int, help="of a completion (the target's, or the paper's 15,360)")
    add("--max-prompt", type=int, help="tokens of a prompt; a longer attempt is cut (the target's, or 4,096)")
    add("--base", help="where the base lies, if not where the run found it")
    add("--domain", choices=DOMAINS, help="(the target's, or math)")
    add("--tags", nargs=2, metavar=("OPEN", "CLOSE"), help="around the reasoning (the target's, or <think> </think>)")
    add("--chat", nargs="+", default=[], metavar="KEY=VALUE", help="for the chat template, as enable_thinking=true")
    add("--reward", help="the verifier: pkg://module or file.py, :function (the run's, or the domain's)")
    add("--reward-kwargs", nargs="+", default=[], metavar="KEY=VALUE")
    add("--reward-timeout", type=float, help="seconds (the run's, or 90; 600 for code)")
    add("--max-failed", type=float, default=0.1, help="share of generations whose judge may fail (0.1)")
    add("--engine", nargs="+", default=[], metavar="KEY=VALUE", help="vLLM's engine arguments")
    add("--concurrency", type=int, default=512, help="requests that vLLM is given at a time, about (512)")
    found = parser.parse_args(given)
    if found.samples < 1 or (found.greedy and found.samples > 1):
        parser.error("--samples must be 1 or more, and greedy samples are all the same")
    if found.dev_share is not None and not 0 < found.dev_share < 1:
        parser.error("--dev-share must lie between 0 and 1")
    return found


def pairs(given: Sequence[str]) -> dict[str, Any]:
    """KEY=VALUE, the value as JSON where it is that."""
    found: dict[str, Any] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals:
            raise InferenceError(f"{each} is not KEY=VALUE")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found
