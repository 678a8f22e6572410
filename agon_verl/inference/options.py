"""Command-line options shared by all commands that play a pair: the target, and how completions are sampled."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

from agon_verl.game.domains import DOMAINS
from agon_verl.game.withhold import Withhold
from agon_verl.inference.players import InferenceError, Players, find_players


def add_players(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("target", help="a run's folder, a global_step_<n>, an export, or a base model")
    for name in ("--temperature", "--top-p"):
        add(name, type=float, help="(the target's, or the paper's 0.6 and 0.95)")
    add("--top-k", type=int, help="(the target's, or off)")
    add("--max-tokens", type=int, help="per completion (the target's, or the paper's 15,360)")
    add("--max-prompt", type=int, help="tokens per prompt; a longer attempt is cut (the target's, or 4,096)")
    add("--base", help="path of the base model, if it has moved since the run")
    add("--domain", choices=DOMAINS, help="(the target's, or math)")
    hidden = "where a draft's answer is hidden from its reader (the target's, or announced)"
    add("--withhold", choices=get_args(Withhold), help=hidden)
    add("--tags", nargs=2, metavar=("OPEN", "CLOSE"), help="around the reasoning (the target's, or <think> </think>)")
    add("--chat", nargs="+", default=[], metavar="KEY=VALUE", help="for the chat template, as enable_thinking=true")
    add("--engine", nargs="+", default=[], metavar="KEY=VALUE", help="vLLM's engine arguments")


def chosen_players(options: argparse.Namespace) -> Players:
    players = find_players(
        options.target,
        options.base,
        domain=options.domain,
        withhold=options.withhold,
        tags=tuple(options.tags) if options.tags else None,
        chat=key_values(options.chat) or None,
        max_prompt=options.max_prompt,
    )
    fields = {name: getattr(options, name) for name in ("temperature", "top_p", "top_k", "max_tokens")}
    changes = {name: value for name, value in fields.items() if value is not None}
    return replace(players, sampling=replace(players.sampling, **changes))


def key_values(arguments: Sequence[str]) -> dict[str, Any]:
    """Parse KEY=VALUE arguments. A value that is valid JSON is read as JSON, any other is a string."""
    values: dict[str, Any] = {}
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not equals:
            raise InferenceError(f"{argument} is not KEY=VALUE")
        try:
            values[name] = json.loads(value)
        except ValueError:
            values[name] = value
    return values
