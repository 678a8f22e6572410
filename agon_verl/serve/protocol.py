"""What a client asks, in the shape of OpenAI's chat completions, and what it is told when it cannot have it.

A field that would change the answer and is not supported is refused, for a client should not believe that it took
effect. One at its neutral value is let through: many clients send them all.
"""

import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from agon_verl.inference.players import Sampling

# Labels for OpenAI's own bookkeeping, which change no answer.
IGNORED = ("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "parallel_tool_calls")
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
    "tools": ([],),
    "functions": ([],),
    "tool_choice": ("none", "auto"),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "response_format": ({"type": "text"},),
}
# What an earlier answer carries when a client sends it back; earlier reasoning is not read again.
ECHOED = ("reasoning_content", "reasoning", "refusal", "annotations", "audio", "tool_calls", "function_call")
ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
KINDS = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


class ApiError(Exception):
    """Told to the client as OpenAI's error object."""

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.retry_after = status, retry_after
        kind = KINDS.get(status, "invalid_request_error" if status < 500 else "server_error")
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": code}}


class StreamOptions(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    include_usage: bool = False


class Extras(BaseModel):
    """`draft`: say what the first stage wrote, and what was shown of it."""

    model_config = ConfigDict(extra="forbid", strict=True)
    draft: bool = False


class Ask(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    messages: list[dict[str, Any]]
    model: str | None = None
    temperature: float | None = Field(None, ge=0, le=2, allow_inf_nan=False)
    top_p: float | None = Field(None, gt=0, le=1, allow_inf_nan=False)
    top_k: int | None = Field(None, ge=-1, lt=2**31)
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    seed: int | None = Field(None, ge=0, lt=2**63)
    stop: list[str] = Field([], max_length=4)
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    agon: Extras = Extras()

    @field_validator("stop", mode="before")
    @classmethod
    def _listed(cls, given: Any) -> Any:
        return [given] if isinstance(given, str) else given

    @field_validator("stop")
    @classmethod
    def _not_blank(cls, given: list[str]) -> list[str]:
        if not all(given):
            raise ValueError("a stop string is empty")
        return given

    def sampling(self, default: Sampling) -> Sampling:
        """The target's own, where nothing else is asked for."""
        most = self.max_completion_tokens or self.max_tokens or default.max_tokens
        if most > default.max_tokens:
            name = "max_completion_tokens" if self.max_completion_tokens else "max_tokens"
            raise ApiError(400, f"{name} is {most}, and {default.max_tokens} a stage is the most here", name)
        return Sampling(
            temperature=default.temperature if self.temperature is None else self.temperature,
            top_p=default.top_p if self.top_p is None else self.top_p,
            top_k=default.top_k if self.top_k is None else self.top_k or -1,
            max_tokens=most,
            seed=self.seed,
        )


def read_ask(body: bytes) -> Ask:
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        raise ApiError(400, "the body is not JSON") from None
    if not isinstance(given, dict):
        raise ApiError(400, "the body is not a JSON object")
    fields = {name: value for name, value in given.items() if value is not None and name not in IGNORED}
    for name in [name for name in fields if name in NEUTRAL]:
        if fields.pop(name) not in NEUTRAL[name]:
            raise ApiError(400, f"{name} is not supported here: leave it out", name, "unsupported_parameter")
    try:
        ask = Ask.model_validate(fields)
    except ValidationError as error:
        raise _refusal(error) from None
    return ask.model_copy(update={"messages": [_message(message, i) for i, message in enumerate(ask.messages)]})


def _refusal(error: ValidationError) -> ApiError:
    first = error.errors(include_url=False, include_context=False)[0]
    field = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return ApiError(400, f"{field} is unknown here: leave it out", field, "unsupported_parameter")
    if first["type"] == "missing":
        return ApiError(400, f"{field} is missing", field)
    return ApiError(400, f"{field}: {first['msg']}", field)


def _message(given: Mapping[str, Any], number: int) -> dict[str, str]:
    at = f"messages.{number}"
    role = given.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise ApiError(400, f"{at}.role is {role!r}: system, developer, user and assistant are known here", at)
    echoed = ECHOED if role == "assistant" else ()
    known = ("role", "content", *echoed)
    if unknown := [name for name, value in given.items() if name not in known and value is not None]:
        raise ApiError(400, f"{at}.{unknown[0]} is not supported here: leave it out", at, "unsupported_parameter")
    if role == "assistant" and (given.get("tool_calls") or given.get("function_call")):
        raise ApiError(400, f"{at} calls a tool, and tools are not supported here", at, "unsupported_parameter")
    content = given.get("content")
    if isinstance(content, list):
        content = "\n".join(_text(part, at) for part in content)
    if content is None and role == "assistant":
        content = ""
    if not isinstance(content, str):
        raise ApiError(400, f"{at}.content must be text", at)
    try:
        content.encode()
    except UnicodeEncodeError:
        raise ApiError(400, f"{at}.content holds half a character, which is no Unicode text", at) from None
    return {"role": ROLES[role], "content": content}


def _text(part: Any, at: str) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind != "text" or not isinstance(part.get("text"), str):
        told = f"a part of type {kind!r}" if isinstance(kind, str) and kind != "text" else "a part that is no text"
        raise ApiError(400, f"{at}.content has {told}: only text is supported here", at, "unsupported_parameter")
    return str(part["text"])
