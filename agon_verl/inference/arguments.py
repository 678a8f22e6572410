"""What every command that plays a pair is given: whom to play, and how they write."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agon_verl.game.withhold import DOMAINS
from agon_verl.inference.players import InferenceError, Players, find_players


def add_players(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("target", help="a run's folder, a global_step_<n>, an export, or a base model")
    for name in ("--temperature", "--top-p"):
        add(name, type=float, help="(the target's, or the paper's 0.6 and 0.95)")
    add("--top-k", type=int, help="(the target's, or none)")
    add("--max-tokens", type=int, help="of a completion (the target's, or the paper's 15,360)")
    add("--max-prompt", type=int, help="tokens of a prompt; a longer attempt is cut (the target's, or 4,096)")
    add("--base", help="where the base lies, if not where the run found it")
    add("--domain", choices=DOMAINS, help="(the target's, or math)")
    add("--tags", nargs=2, metavar=("OPEN", "CLOSE"), help="around the reasoning (the target's, or <think> </think>)")
    add("--chat", nargs="+", default=[], metavar="KEY=VALUE", help="for the chat template, as enable_thinking=true")
    add("--engine", nargs="+", default=[], metavar="KEY=VALUE", help="vLLM's engine arguments")


def chosen_players(asked: argparse.Namespace) -> Players:
    tags = tuple(asked.tags) if asked.tags else None
    chat = pairs(asked.chat) or None
    found = find_players(
        asked.target, asked.base, domain=asked.domain, tags=tags, chat=chat, max_prompt=asked.max_prompt
    )
    changes = {name: getattr(asked, name) for name in ("temperature", "top_p", "top_k", "max_tokens")}
    given = {name: value for name, value in changes.items() if value is not None}
    return replace(found, sampling=replace(found.sampling, **given))


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
