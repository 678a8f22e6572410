"""From asserts, or from inputs and outputs, to calls with what their value must satisfy. Nothing here is executed.

An assert is read as a syntax tree. It must call the function once and compare the value, or what `sorted`, `set`,
`frozenset`, `tuple`, `list`, `len`, `abs` and `round` make of it, with something that does not call the function:

    assert f(x) == y      != < <= > >=, `in`, `not in`, and `is` with True, False or None; y may stand on the left
    assert f(x)           assert not f(x)
    assert abs(f(x) - y) < 1e-6                                  also math.fabs and <=
    assert math.isclose(f(x), y, rel_tol=1e-9, abs_tol=0.0)

`and` joins several. The judge accepts literals only (`ast.literal_eval`) as arguments and as the other side;
agon_verl/data/asserts.py turns expressions into literals before.
"""

import ast
import json
import marshal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from reward_fns.calls.driver import encode
from reward_fns.calls.values import (
    DictValue,
    IterableValue,
    ObjectValue,
    SetValue,
    close,
    decode_answer,
    equal,
    set_value,
)

_COMPARISONS: dict[type[ast.cmpop], str] = {
    **{ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="},
    **{ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in"},
}
_MIRRORED = {"==": "==", "!=": "!=", "is": "is", "is not": "is not", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_VIEWS = {"sorted", "set", "frozenset", "tuple", "list", "len", "abs", "round"}
_UNREADABLE = (SyntaxError, ValueError, TypeError, MemoryError, RecursionError)


class NotConvertible(ValueError):
    """An assert that cannot be judged outside the program; the text is the reason."""


@dataclass(frozen=True, slots=True)
class AssertForm:
    """A recognised assert, as syntax. `views` apply from the first to the last; `other` is None for `assert f(x)`.

    `close` compares with `tolerances`, a relative and an absolute one; `strict` if an error of exactly that is wrong.
    """

    call: ast.Call
    views: tuple[tuple[str, int | None], ...]
    relation: str
    other: ast.expr | None = None
    tolerances: tuple[float, float] = (0.0, 0.0)
    strict: bool = False


@dataclass(frozen=True, slots=True)
class Expectation:
    views: tuple[tuple[str, int | None], ...]
    relation: str
    expected: Any = None
    tolerances: tuple[float, float] = (0.0, 0.0)
    strict: bool = False
    loose: bool = False

    def holds(self, answer: Any) -> bool:
        try:
            for name, digits in self.views:
                answer = _view(name, answer, digits)
            return self._compare(answer)
        except (TypeError, ValueError, OverflowError):  # where the assert itself would have raised
            return False

    def _compare(self, answer: Any) -> bool:
        relation, expected = self.relation, self.expected
        if relation == "true":
            return _truth(answer)
        if relation == "false":
            return not _truth(answer)
        if relation in ("is", "is not"):
            return (type(answer) is type(expected) and answer == expected) == (relation == "is")
        if relation in ("==", "!="):
            return equal(answer, expected, self.loose) == (relation == "==")
        if relation in ("in", "not in"):
            return any(equal(answer, member, self.loose) for member in _items(expected)) == (relation == "in")
        if relation == "close":
            relative, absolute = self.tolerances
            return close(_number(answer), expected, relative, absolute) and not (
                self.strict and abs(answer - expected) >= absolute
            )
        number = _number(answer)
        if relation in ("<", "<="):
            return number < expected or (relation == "<=" and number == expected)
        return number > expected or (relation == ">=" and number == expected)


@dataclass(frozen=True, slots=True)
class Call:
    """`sent` is what the driver gets; `size` the length of the expected answer, which limits the output."""

    sent: bytes
    expectation: Expectation
    size: int


def from_json(sent: str, expected: str) -> Call:
    """One JSON value per line and argument, and the expected one: the notation of LiveCodeBench."""
    try:
        arguments = [json.loads(line) for line in sent.split("\n") if line.strip()]
        answer = encode(json.loads(expected))
        return Call(_sent(arguments, {}), Expectation((), "==", _read(answer), loose=True), len(answer))
    except (ValueError, RecursionError) as error:
        raise NotConvertible(f"an input or output is not JSON ({error})") from None


@lru_cache(maxsize=1024)  # a group of completions has the same tests
def from_assert(text: str, name: str) -> tuple[Call, ...]:
    try:
        statements = ast.parse(text.strip()).body
    except _UNREADABLE as error:
        raise NotConvertible(f"it is not Python ({error})") from None
    if len(statements) != 1 or not isinstance(statements[0], ast.Assert):
        raise NotConvertible("it is not one assert statement")
    return tuple(_call(recognise(test, name)) for test in conjuncts(statements[0].test))


def conjuncts(test: ast.expr) -> Iterator[ast.expr]:
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        for part in test.values:
            yield from conjuncts(part)
    else:
        yield test


def recognise(test: ast.expr, name: str) -> AssertForm:
    """The form of an assert on the function `name`."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return AssertForm(*_viewed(test.operand, name), "false")
    if _called(test) == "isclose":
        return _is_close(test, name)
    if not isinstance(test, ast.Compare):
        return AssertForm(*_viewed(test, name), "true")
    if len(test.ops) != 1:
        raise NotConvertible("a chain of comparisons")
    left, relation, right = test.left, _COMPARISONS[type(test.ops[0])], test.comparators[0]
    if mentions(right, name):
        if relation not in _MIRRORED:
            raise NotConvertible("the function is called on the right of `in`")
        left, relation, right = right, _MIRRORED[relation], left
    if mentions(right, name):
        raise NotConvertible("both sides call the function")
    if relation in ("<", "<=") and _called(left) in ("abs", "fabs") and (close := _difference(left, name)):
        tolerance = _constant(right)
        return AssertForm(*_viewed(close[0], name), "close", close[1], (0.0, tolerance), relation == "<")
    if relation in ("is", "is not") and not (
        isinstance(right, ast.Constant) and (right.value is None or isinstance(right.value, bool))
    ):
        raise NotConvertible("`is` with something other than True, False or None")
    return AssertForm(*_viewed(left, name), relation, right)


def mentions(node: ast.AST, name: str) -> bool:
    return any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(node))


def _viewed(node: ast.expr, name: str) -> tuple[ast.Call, tuple[tuple[str, int | None], ...]]:
    views: list[tuple[str, int | None]] = []
    while True:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            raise NotConvertible("the value is used in another way than the supported ones")
        if node.func.id == name:
            if any(mentions(part, name) for part in (*node.args, *(keyword.value for keyword in node.keywords))):
                raise NotConvertible("an argument calls the function")
            return node, tuple(reversed(views))
        digits = None
        if node.func.id == "round" and len(node.args) == 2 and not node.keywords:
            digits = int(_constant(node.args[1]))
        elif node.func.id not in _VIEWS or len(node.args) != 1 or node.keywords:
            raise NotConvertible(f"the value is passed to {node.func.id}")
        views.append((node.func.id, digits))
        node = node.args[0]


def _called(node: ast.expr) -> str:
    """The name of a function that is called, without its module."""
    if not isinstance(node, ast.Call):
        return ""
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def _difference(node: ast.expr, name: str) -> tuple[ast.expr, ast.expr] | None:
    """For abs(a - b): the side with the function, and the other one."""
    assert isinstance(node, ast.Call)
    if len(node.args) != 1 or not isinstance(node.args[0], ast.BinOp) or not isinstance(node.args[0].op, ast.Sub):
        return None
    sides = (node.args[0].left, node.args[0].right)
    if mentions(sides[0], name) == mentions(sides[1], name):
        raise NotConvertible("both sides of the difference call the function, or none")
    return sides if mentions(sides[0], name) else (sides[1], sides[0])


def _is_close(node: ast.expr, name: str) -> AssertForm:
    assert isinstance(node, ast.Call)
    options = {keyword.arg: _constant(keyword.value) for keyword in node.keywords}
    if len(node.args) != 2 or options.keys() - {"rel_tol", "abs_tol"}:
        raise NotConvertible("isclose with other arguments than two values, rel_tol and abs_tol")
    first, second = node.args if mentions(node.args[0], name) else reversed(node.args)
    if mentions(second, name):
        raise NotConvertible("both sides call the function")
    tolerances = (options.get("rel_tol", 1e-9), options.get("abs_tol", 0.0))
    return AssertForm(*_viewed(first, name), "close", second, tolerances)


def _constant(node: ast.expr) -> float:
    try:
        value = ast.literal_eval(node)
    except _UNREADABLE:
        value = None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise NotConvertible("a tolerance or a number of digits that is no literal")
    return value


def _call(form: AssertForm) -> Call:
    try:
        arguments = [ast.literal_eval(node) for node in form.call.args]
        keywords = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in form.call.keywords if keyword.arg}
        expected = None if form.other is None else ast.literal_eval(form.other)
    except _UNREADABLE:
        raise NotConvertible("an argument or the expected value is no literal") from None
    if len(keywords) < len(form.call.keywords):
        raise NotConvertible("** in a call")
    numeric = form.relation in ("<", "<=", ">", ">=", "close")
    if numeric and (isinstance(expected, bool) or not isinstance(expected, int | float)):
        raise NotConvertible("only numbers can be compared by size")
    if form.relation in ("in", "not in") and not isinstance(expected, list | tuple | set | dict):
        raise NotConvertible("`in` something other than a list, a tuple, a set or a dict")
    try:
        answer, sent = encode(expected), _sent(arguments, keywords)
    except ValueError:
        raise NotConvertible("a value is nested too deeply") from None
    expectation = Expectation(form.views, form.relation, _read(answer), form.tolerances, form.strict)
    return Call(sent, expectation, len(answer))


def _sent(arguments: list[Any], keywords: dict[str, Any]) -> bytes:
    """In marshal's version 2, which every interpreter reads; only the sandbox reads it, never the judge."""
    return marshal.dumps((arguments, keywords), 2)


def _read(answer: str) -> Any:
    """An expected value, read like those that come out of the sandbox."""
    return decode_answer(json.loads(answer))


def _view(name: str, value: Any, digits: int | None) -> Any:
    if name == "abs":
        return abs(_number(value))
    if name == "round":
        return round(_number(value), digits)
    items = _items(value)
    if name == "len":
        if isinstance(value, IterableValue):
            raise TypeError("an iterator has no length")
        return len(items)
    if name in ("set", "frozenset"):
        return set_value(items)
    return sorted(items) if name == "sorted" else tuple(items) if name == "tuple" else list(items)


def _items(value: Any) -> Sequence[Any]:
    if isinstance(value, list | tuple | str | bytes):
        return value
    if isinstance(value, IterableValue):
        return value.items
    if isinstance(value, SetValue):
        return list(value.members.values())
    if isinstance(value, DictValue):
        return [key for key, _ in value.pairs.values()]
    raise TypeError(f"{type(value).__name__} cannot be iterated over")


def _number(value: Any) -> float:
    if not isinstance(value, int | float):
        raise TypeError("not a number")
    return value


def _truth(value: Any) -> bool:
    if isinstance(value, ObjectValue):
        return value.truth
    if isinstance(value, SetValue | DictValue):
        return bool(_items(value))
    return True if isinstance(value, IterableValue) else bool(value)
