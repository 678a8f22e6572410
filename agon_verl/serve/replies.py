"""What a client is sent, in the shapes of OpenAI's chat completions: one whole, or in chunks as server-sent events."""

import json
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from agon_verl.inference.cascade import Solved
from agon_verl.inference.vllm_engine import Completion
from agon_verl.serve.reading import Part, Reading

DONE = "data: [DONE]\n\n"
STILL_HERE = ": still here\n\n"  # a comment, which clients skip


def event(content: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(content, ensure_ascii=False)}\n\n"


class Reply:
    """One request's. `more`, of a whole one and of the last chunk, is what `draft_of` says where it was asked for."""

    def __init__(self, model: str) -> None:
        self.common = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": model}

    def whole(self, parts: Mapping[str, str], finish: str, usage: Mapping[str, Any], more: Mapping) -> dict[str, Any]:
        message = {"role": "assistant", "content": "", **parts}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        return {**self.common, "object": "chat.completion", "choices": [choice], "usage": usage, **more}

    def chunk(self, delta: Mapping[str, str], finish: str | None = None, more: Mapping | None = None) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return event({**self.common, "object": "chat.completion.chunk", "choices": [choice], **(more or {})})

    def usage_chunk(self, usage: Mapping[str, Any]) -> str:
        return event({**self.common, "object": "chat.completion.chunk", "choices": [], "usage": usage})


def usage_of(solved: Solved) -> dict[str, Any]:
    """Tokens of all stages, and of each: what was generated, and what was read."""
    stages = {"draft": solved.draft, "final": solved.final}
    read = {f"{name}_tokens": said.prompt_tokens if said else 0 for name, said in stages.items()}
    written = {f"{name}_tokens": len(said.ids) if said else 0 for name, said in stages.items()}
    return {
        "prompt_tokens": sum(read.values()),
        "completion_tokens": sum(written.values()),
        "total_tokens": sum(read.values()) + sum(written.values()),
        "prompt_tokens_details": read,
        "completion_tokens_details": written,
    }


def draft_of(solved: Solved, drafter: str | None, tags: tuple[str, str]) -> dict[str, Any]:
    if solved.draft is None or solved.attempt is None:
        return {"agon": {"draft": None, "shown": None}}
    draft, attempt = solved.draft, solved.attempt
    said = {
        "player": drafter,
        "content": "",
        **parts_of(draft, tags),
        "finish_reason": draft.finish,
        "prompt_tokens": draft.prompt_tokens,
        "completion_tokens": len(draft.ids),
    }
    return {"agon": {"draft": said, "shown": attempt.shown, "shown_tokens": attempt.tokens, "cut": attempt.cut}}


def parts_of(said: Completion, tags: tuple[str, str]) -> dict[str, str]:
    return gather(Reading(tags, said.opened).feed(said.text, last=True))


def gather(pieces: Iterable[tuple[Part, str]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for part, text in pieces:
        found[part] = found.get(part, "") + text
    return found
