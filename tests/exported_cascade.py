"""The cascade as another program would write it from an export's `pair.json`, following its `how`."""

import re
from typing import Any

from agon_verl.game.withhold import withhold_answer

Messages = list[dict[str, str]]


def shown(pair: dict[str, Any], draft: str, opened: bool) -> str:
    opening, closing = pair["reasoning_tags"]
    if closing not in draft and (opened or opening in draft):
        return ""
    summary = draft.strip().rpartition(closing)[2].partition(opening)[0]
    return re.sub(r"<\s*(/?)\s*(attempt)\s*>", r"<\1 \2>", withhold_answer(summary, pair["domain"]), flags=re.I)


def challenge(pair: dict[str, Any], messages: Messages, draft: str, opened: bool = False) -> Messages:
    """`opened`: the chat template ends the prompt with the opening tag."""
    head, tail = pair["prompts"]["challenge"].split("{attempt}")
    attempt = shown(pair, draft, opened).strip() or pair["prompts"]["no_summary"]
    content = head.replace("{problem}", messages[-1]["content"]) + attempt + tail
    return [*messages[:-1], {"role": "user", "content": content}]
