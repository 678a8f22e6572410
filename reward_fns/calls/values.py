"""Reading a value that came out of the sandbox, and comparing it with an expected one.

The text is the program's, so nothing in it is trusted: it is JSON, decoded with a limit on its depth (its length is
limited by the sandbox), and every tag is checked. Members of sets and keys of dicts are looked up by a text
(`member_key`), because Python randomises the hash of text only: a program could return numbers that all have the same
hash, for which a set takes quadratic time.

Equality is Python's for data: `1 == 1.0 == True`, a list is no tuple, a set has no order, NaN equals nothing. There is
one exception: where a float is expected, a relative error of 1e-6 or an absolute one of 1e-12 is accepted. With `loose`
(expected values that are JSON, which has no tuples and only text as keys) a tuple equals a list, and the key 1 the
key "1".
"""

import hashlib
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

DEPTH = 100
_RELATIVE, _ABSOLUTE = 1e-6, 1e-12


class Malformed(ValueError):
    """Text from the sandbox that is no value."""


@dataclass(frozen=True, slots=True)
class SetValue:
    members: dict[str, Any]


@dataclass(frozen=True, slots=True)
class DictValue:
    pairs: dict[str, tuple[Any, Any]]


@dataclass(frozen=True, slots=True)
class IterableValue:
    """A generator, a range, the keys of a dict …: equal to nothing by itself, but `list(...)` of it may be."""

    items: list[Any]


@dataclass(frozen=True, slots=True)
class ObjectValue:
    """Of any other class: only `assert f(x)` and `assert not f(x)` can be decided."""

    truth: bool


def read_answers(output: bytes, most: int) -> list[tuple[Any, float]]:
    """The values and times of the first calls, up to the first line that is not one, and at most `most`."""
    answers = []
    for line in output.split(b"\n")[:most]:
        try:
            value, seconds = json.loads(line)
            answers.append((decode_answer(value), float(seconds)))
        except (ValueError, TypeError, RecursionError, OverflowError):
            break
    return answers


def decode_answer(node: Any, depth: int = DEPTH) -> Any:
    """The value of parsed JSON in the notation of driver.py."""
    if node is None or isinstance(node, bool | int | float | str):
        return node
    if depth == 0:
        raise Malformed("nested too deeply")
    if isinstance(node, list):
        return [decode_answer(item, depth - 1) for item in node]
    if len(node) != 1:
        raise Malformed("no tag, or several")
    [(tag, content)] = node.items()
    if isinstance(content, list):
        if tag == "d":
            pairs = [(decode_answer(key, depth - 1), decode_answer(item, depth - 1)) for key, item in content]
            return DictValue({member_key(key): (key, item) for key, item in pairs})
        if tag == "c":
            real, imaginary = content
            return complex(float(real), float(imaginary))
        items = [decode_answer(item, depth - 1) for item in content]
        if tag == "t":
            return tuple(items)
        if tag == "s":
            return set_value(items)
        if tag == "g":
            return IterableValue(items)
    elif isinstance(content, str):
        if tag == "i":
            return int(content, 16)
        if tag == "b":
            return bytes.fromhex(content)
    elif tag == "o" and isinstance(content, bool):
        return ObjectValue(content)
    raise Malformed("unknown tag, or content of another type")


def set_value(items: Iterable[Any]) -> SetValue:
    return SetValue({member_key(item): item for item in items})


def member_key(value: Any) -> str:
    """A text that is the same for equal values; `TypeError` if the value could not be in a set."""
    if isinstance(value, complex) and value.imag == 0:
        value = value.real
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int):
        return f"i{value:x}"
    if value is None or isinstance(value, float | complex | bytes):
        return f"v{value!r}"
    if isinstance(value, str):
        return f"s{value}"
    if isinstance(value, tuple):
        return "t" + _digest(map(member_key, value))
    if isinstance(value, SetValue):  # a frozen set
        return "f" + _digest(sorted(value.members))
    raise TypeError(f"{type(value).__name__} has no hash")


def _digest(keys: Iterable[str]) -> str:
    """Of constant length, or the keys of nested values would grow with every level."""
    text = "".join(f"{len(key)}:{key}" for key in keys)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def equal(actual: Any, expected: Any, loose: bool = False) -> bool:
    if isinstance(expected, list | tuple):
        same_kind = isinstance(actual, list | tuple) if loose else type(actual) is type(expected)
        return (
            same_kind
            and len(actual) == len(expected)
            and all(equal(a, e, loose) for a, e in zip(actual, expected, strict=True))
        )
    if isinstance(expected, SetValue):
        return isinstance(actual, SetValue) and actual.members.keys() == expected.members.keys()
    if isinstance(expected, DictValue):
        return isinstance(actual, DictValue) and _same_pairs(actual, expected, loose)
    if isinstance(expected, float) and isinstance(actual, int | float):
        return close(actual, expected, _RELATIVE, _ABSOLUTE)
    if isinstance(expected, int | float | complex):
        return isinstance(actual, int | float | complex) and actual == expected
    return type(actual) is type(expected) and actual == expected


def _same_pairs(actual: DictValue, expected: DictValue, loose: bool) -> bool:
    pairs = actual.pairs
    if loose and pairs.keys() != expected.pairs.keys():
        pairs = {member_key(_json_key(key)): (key, item) for key, item in pairs.values()}
    return pairs.keys() == expected.pairs.keys() and all(
        equal(pairs[name][1], item, loose) for name, (_, item) in expected.pairs.items()
    )


def _json_key(key: Any) -> Any:
    return format(key, "d") if type(key) is int and key.bit_length() < 1024 else key


def close(actual: float, expected: float, relative: float, absolute: float) -> bool:
    """Within either tolerance; infinity is close to itself only, NaN to nothing."""
    if actual == expected:
        return True
    try:
        error = abs(float(actual) - float(expected))
    except OverflowError:  # an integer beyond every float
        return False
    return math.isfinite(error) and error <= max(relative * abs(expected), absolute)
