"""Dataclasses of settings, checked against their own annotations; errors name the field, the value and the fix.

An annotation is a plain type, a `Literal`, `X | None`, a `Mapping`, `Sequence` or `tuple` of these, another such
dataclass, or `Annotated` with `Rule`s. pydantic can do this too, but would double the import time of the config.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from math import isfinite
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from agon_verl.errors import ConfigError

T = TypeVar("T")
_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


@dataclass(frozen=True)
class Rule:
    """`message` completes the sentence that starts with the field and its value."""

    accepts: Callable[[Any], bool]
    message: str


def one_of(values: Iterable[str]) -> Rule:
    allowed = tuple(values)
    return Rule(lambda value: value in allowed, f"is unknown: use one of {', '.join(allowed)}")


def load(cls: type[T], section: str, values: Any) -> T:
    """The dataclass `cls` with the values of a config section. `cls` calls `check_fields` when it is created."""
    hints = get_type_hints(cls)
    if not isinstance(values, Mapping):
        raise ConfigError(f"{section}={values} must be a section with {', '.join(hints)}")
    arguments = {}
    for name, value in values.items():
        _check(section, name, Annotated[str, one_of(hints)])
        if is_dataclass(hints[name]):
            value = load(hints[name], f"{section}.{name}", value)
        arguments[name] = tuple(value) if isinstance(value, list) else value
    return cls(**arguments)


def check_fields(settings: Any, section: str) -> None:
    for name, hint in get_type_hints(type(settings), include_extras=True).items():
        _check(f"{section}.{name}", getattr(settings, name), hint)


def _check(field: str, value: Any, hint: Any) -> None:
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        _check(field, value, parts[0])
        for rule in parts[1:]:
            if not rule.accepts(value):
                raise ConfigError(f"{field}={value} {rule.message}")
    elif origin is Literal:
        _check(field, value, Annotated[Any, one_of(parts)])
    elif origin is UnionType:
        if value is not None:
            _check(field, value, next(part for part in parts if part is not NoneType))
    elif origin is Mapping:
        if not isinstance(value, Mapping):
            raise ConfigError(f"{field}={value} must be a mapping, as in {{name: value}}")
        for key, item in value.items():
            _check(field, key, parts[0])
            _check(f"{field}.{key}", item, parts[1])
    elif origin in (Sequence, tuple):
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise ConfigError(f"{field}={value} must be a list, as in [{value}]")
        if origin is tuple and len(value) != len(parts):
            raise ConfigError(f"{field}={list(value)} must have {len(parts)} entries")
        for item in value:
            _check(field, item, parts[0])
    elif hint is float:
        if type(value) not in (int, float) or not isfinite(value):
            raise ConfigError(f"{field}={value} must be a number")
    elif hint in _KINDS and type(value) is not hint:
        raise ConfigError(f"{field}={value} must be {_KINDS[hint]}")
