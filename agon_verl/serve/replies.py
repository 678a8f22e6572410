"""Replies in the shapes of OpenAI's chat completions: complete, or in chunks as server-sent events."""

import json
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from agon_verl.inference.cascade import Solved
from agon_verl.serve.splitter import Part, StreamSplitter

DONE = "data: [DONE]\n\n"
STILL_HERE = ": still here\n\n"  # a comment, which clients skip


def event(content: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(content, ensure_ascii=False)}\n\n"


class Reply:
    """The reply to one request. `extra` are the fields of `draft_fields`, in the complete reply or the last chunk."""

    def __init__(self, model: str) -> None:
        self.common = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": model}

    def complete(
        self, parts: Mapping[str, str], finish: str, usage: Mapping[str, Any], extra: Mapping[str, Any]
    ) -> dict[str, Any]:
        message = {"role": "assistant", "content": "", **parts}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        return {**self.common, "object": "chat.completion", "choices": [choice], "usage": usage, **extra}

    def chunk(self, delta: Mapping[str, str], finish: str | None = None, extra: Mapping[str, Any] | None = None) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return event({**self.common, "object": "chat.completion.chunk", "choices": [choice], **(extra or {})})

    def usage_chunk(self, usage: Mapping[str, Any]) -> str:
        return event({**self.common, "object": "chat.completion.chunk", "choices": [], "usage": usage})


def usage_of(solved: Solved) -> dict[str, Any]:
    """Tokens of all stages together, and of each stage."""
    stages = {"draft_tokens": solved.draft, "final_tokens": solved.final}
    prompts = {name: stage.prompt_tokens if stage else 0 for name, stage in stages.items()}
    completions = {name: len(stage.ids) if stage else 0 for name, stage in stages.items()}
    return {
        "prompt_tokens": sum(prompts.values()),
        "completion_tokens": sum(completions.values()),
        "total_tokens": sum(prompts.values()) + sum(completions.values()),
        "prompt_tokens_details": prompts,
        "completion_tokens_details": completions,
    }


def draft_fields(solved: Solved, drafter: str | None, tags: tuple[str, str]) -> dict[str, Any]:
    """The `agon` object of a reply, for clients that ask for the draft."""
    if solved.draft is None or solved.attempt is None:
        return {"agon": {"draft": None, "shown": None}}
    draft, attempt = solved.draft, solved.attempt
    fields = {
        "player": drafter,
        "content": "",
        **join_parts(StreamSplitter(tags, draft.opened).feed(draft.text, last=True)),
        "finish_reason": draft.finish,
        "prompt_tokens": draft.prompt_tokens,
        "completion_tokens": len(draft.ids),
    }
    return {"agon": {"draft": fields, "shown": attempt.shown, "shown_tokens": attempt.tokens, "cut": attempt.cut}}


def join_parts(pieces: Iterable[tuple[Part, str]]) -> dict[str, str]:
    parts: dict[str, list[str]] = {}
    for part, text in pieces:
        parts.setdefault(part, []).append(text)
    return {part: "".join(texts) for part, texts in parts.items()}
