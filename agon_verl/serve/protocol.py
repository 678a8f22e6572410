"""Requests in the shape of OpenAI's chat completions, and the errors that clients get.

A field that would change the answer and is not supported is refused, so that no client believes it took effect. A
field with its neutral value is accepted: many clients send them all.

Nothing here takes more memory than a small multiple of the body: of a thousand wrong values only the first is reported,
and an error repeats only the beginning of what the client sent.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from reprlib import repr as short
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, FailFast, Field, ValidationError, field_validator

from agon_verl.errors import AgonError
from agon_verl.inference.players import Sampling

# Labels for OpenAI's own bookkeeping, which do not change an answer.
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
# Fields of an earlier answer that a client sends back. Earlier reasoning does not enter the prompt.
ECHOED = ("reasoning_content", "reasoning", "refusal", "annotations", "audio", "tool_calls", "function_call")
ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
ERROR_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
UNSUPPORTED = "unsupported_parameter"
MAX_FIELDS = 256  # of one JSON object
MAX_STOP = 256  # characters of a stop string
MAX_ERROR = 400  # characters


class ApiError(AgonError):
    """Sent to the client as OpenAI's error object. Texts of the client in it become one short line, also in the log."""

    def __init__(
        self, status: int, message: str, param: str | None = None, code: str | None = None, retry_after: int = 0
    ) -> None:
        message, param = _one_line(message), param and _one_line(param)
        super().__init__(message)
        self.status, self.retry_after = status, retry_after
        error_type = ERROR_TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
        self.body = {"error": {"message": message, "type": error_type, "param": param, "code": code}}


def _one_line(text: str) -> str:
    text = text if len(text) <= MAX_ERROR else f"{text[:MAX_ERROR]}…"
    return "".join(letter if letter.isprintable() else " " for letter in text)


class StreamOptions(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    include_usage: bool = False


class AgonOptions(BaseModel):
    """`draft`: include the first stage's draft, and what the challenger read of it."""

    model_config = ConfigDict(extra="forbid", strict=True)
    draft: bool = False


class ChatRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    messages: Annotated[list[dict[str, Any]], FailFast()]
    model: str | None = None
    temperature: float | None = Field(None, ge=0, le=2, allow_inf_nan=False)
    top_p: float | None = Field(None, gt=0, le=1, allow_inf_nan=False)
    top_k: int | None = Field(None, ge=-1, lt=2**31)
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    seed: int | None = Field(None, ge=0, lt=2**63)
    stop: Annotated[list[Annotated[str, Field(min_length=1, max_length=MAX_STOP)]], FailFast()] = Field(
        [], max_length=4
    )
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    agon: AgonOptions = AgonOptions()

    @field_validator("stop", mode="before")
    @classmethod
    def _as_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    def sampling(self, default: Sampling) -> Sampling:
        """The request's sampling; `default` is the target's, which also limits the tokens."""
        max_tokens = self.max_completion_tokens or self.max_tokens or default.max_tokens
        if max_tokens > default.max_tokens:
            name = "max_completion_tokens" if self.max_completion_tokens else "max_tokens"
            raise ApiError(400, f"{name} is {max_tokens}, more than the limit {default.max_tokens} per stage", name)
        names = ("temperature", "top_p", "top_k", "seed")
        changes = {name: value for name in names if (value := getattr(self, name)) is not None}
        return replace(default, max_tokens=max_tokens, **changes)


def parse_request(body: bytes) -> ChatRequest:
    try:
        values = json.loads(body, object_pairs_hook=_object)
    except (ValueError, RecursionError):
        raise ApiError(400, "the body is not JSON") from None
    if not isinstance(values, dict):
        raise ApiError(400, "the body is not a JSON object")
    fields = {name: value for name, value in values.items() if value is not None and name not in IGNORED}
    for name in [name for name in fields if name in NEUTRAL]:
        if fields.pop(name) not in NEUTRAL[name]:
            raise ApiError(400, f"{name} is not supported: remove it", name, UNSUPPORTED)
    try:
        request = ChatRequest.model_validate(fields)
    except ValidationError as error:
        raise _field_error(error) from None
    return request.model_copy(update={"messages": [_message(each, i) for i, each in enumerate(request.messages)]})


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > MAX_FIELDS:
        raise ApiError(400, f"an object of the body has {len(pairs)} fields, more than the limit {MAX_FIELDS}")
    return dict(pairs)


def _field_error(error: ValidationError) -> ApiError:
    first = error.errors(include_url=False, include_context=False)[0]
    field = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return ApiError(400, f"{field} is unknown: remove it", field, UNSUPPORTED)
    if first["type"] == "missing":
        return ApiError(400, f"{field} is missing", field)
    return ApiError(400, f"{field}: {first['msg']}", field)


def _message(message: Mapping[str, Any], number: int) -> dict[str, str]:
    at = f"messages.{number}"
    role = message.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise ApiError(400, f"{at}.role is {short(role)}: use system, developer, user or assistant", at)
    accepted = ("role", "content", *(ECHOED if role == "assistant" else ()))
    if unknown := [name for name, value in message.items() if name not in accepted and value is not None]:
        raise ApiError(400, f"{at}.{unknown[0]} is not supported: remove it", at, UNSUPPORTED)
    if role == "assistant" and (message.get("tool_calls") or message.get("function_call")):
        raise ApiError(400, f"{at} calls a tool: tools are not supported", at, UNSUPPORTED)
    content = message.get("content")
    if isinstance(content, list):
        content = "\n".join(_text(part, at) for part in content)
    if content is None and role == "assistant":
        content = ""
    if not isinstance(content, str):
        raise ApiError(400, f"{at}.content must be text", at)
    try:
        content.encode()
    except UnicodeEncodeError:
        raise ApiError(400, f"{at}.content is not valid Unicode: it has half of a surrogate pair", at) from None
    return {"role": ROLES[role], "content": content}


def _text(part: Any, at: str) -> str:
    part_type = part.get("type") if isinstance(part, dict) else None
    if part_type != "text" or not isinstance(part.get("text"), str):
        message = f'{at}.content has a part of type {short(part_type)}: use only {{"type": "text", "text": "…"}}'
        raise ApiError(400, message, at, UNSUPPORTED)
    return str(part["text"])
