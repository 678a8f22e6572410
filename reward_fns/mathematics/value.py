r"""The value of a formula: exact if it is rational, otherwise with 50 digits.

Variables get pseudo-random values that depend only on their names; two formulas are equal if they agree at one point of
positive and one of negative values. Two honest answers do not agree to 40 digits by chance. An answer built to do so
(3^{100000} + 1) adds numbers of very different size or loses digits to cancellation; then the value is unsure, and
algebra decides.

Nothing here takes long: sizes are bounded before they are computed.
"""

import math
import operator
import zlib
from collections.abc import Callable
from fractions import Fraction
from functools import reduce
from typing import Any

import mpmath

from reward_fns.mathematics.expression import Node
from reward_fns.mathematics.tokens import FUNCTIONS

_DIGITS = 50
_AGREE = 40
_SURE = 25  # digits that must remain after a sum
_LARGEST = 40_000  # bits of an exact number
_HUGEST = 10**6  # bits of the size of an inexact one

_mp = mpmath.MPContext()
_mp.dps = _DIGITS
_CONSTANTS: dict[str, Any] = {r"\pi": +_mp.pi, "e": +_mp.e, "i": _mp.mpc(0, 1), r"\infty": _mp.inf}


class Unsure(ArithmeticError):
    """The value is undefined, too large, not precise enough, or depends on a convention."""


def evaluate(node: Node, point: int = 0) -> Any:
    """A `Fraction`, or a real or complex number of 50 digits. `point` chooses the values of the variables."""
    try:
        return _evaluate(node, point)
    except (ZeroDivisionError, ValueError, OverflowError) as error:  # mpmath at a pole, or past its range
        raise Unsure from error


def _evaluate(node: Node, point: int) -> Any:
    if node.kind in ("number", "decimal"):
        return node.value
    if node.kind == "constant":
        return _CONSTANTS[node.value]
    if node.kind == "variable":
        return variable(node.value, point)
    values = [_evaluate(child, point) for child in node.children]
    if node.kind == "neg":
        return -values[0]
    if node.kind in ("add", "mul"):
        return reduce(lambda a, b: _apply(node.kind, a, b), values)
    return _apply(node.kind, *values)


def _apply(kind: str, *values: Any) -> Any:
    """One operation, exact if it can be."""
    if kind in _EXACT and all(isinstance(value, Fraction) for value in values):
        exact = _EXACT[kind](*values)
        if exact is not None:
            if max(exact.numerator.bit_length(), exact.denominator.bit_length()) > _LARGEST:
                raise Unsure
            return exact
    inexact = [_inexact(value) for value in values]
    if any(_mp.isinf(value) or _mp.isnan(value) for value in inexact):
        raise Unsure
    if kind in _FUNCTIONS and abs(inexact[0]) < 10**9:
        return _FUNCTIONS[kind](*inexact)
    if kind not in _INEXACT:
        raise Unsure
    return _INEXACT[kind](*inexact)


def real_number(node: Node) -> Any:
    """The value of a formula without variables, for sorting; `Unsure` if it is not a finite real number."""
    if varies(node):
        raise Unsure
    value = _inexact(evaluate(node))
    if isinstance(value, _mp.mpc) or _mp.isinf(value):
        raise Unsure
    return value


def varies(node: Node) -> bool:
    return node.kind == "variable" or any(map(varies, node.children))


def variable(name: str, point: int) -> Fraction:
    """The value of a variable: between 1/2 and 3/2, negative at odd points."""
    seed = zlib.crc32(f"{name}/{point}".encode()) % 1_000_003
    return Fraction(seed + 500_000, 999_983) * (-1 if point % 2 else 1)


def agree(a: Any, b: Any) -> bool:
    """Whether two values are equal: exactly, or to 40 digits of the larger if one is inexact."""
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a == b
    a, b = _inexact(a), _inexact(b)
    if _mp.isinf(a) or _mp.isinf(b):
        return bool(a == b)
    return bool(abs(a - b) <= max(abs(a), abs(b)) * _mp.mpf(10) ** -_AGREE)


def rounds_to(value: Any, decimal: Fraction, places: int) -> bool:
    """Whether `decimal` is `value` rounded or truncated to that many decimal places."""
    value = _inexact(value)
    if isinstance(value, _mp.mpc) or _mp.isinf(value):
        return False
    written, unit = _inexact(decimal), _mp.mpf(10) ** -places
    return bool(abs(value - written) <= unit / 2 or abs(value - written) < unit and abs(written) < abs(value))


def as_inexact(real: str, imaginary: str) -> Any:
    """A number of another library, from its digits."""
    return _mp.mpc(real, imaginary)


def _inexact(value: Any) -> Any:
    return _mp.mpf(value.numerator) / value.denominator if isinstance(value, Fraction) else value


def _add(a: Any, b: Any) -> Any:
    total = a + b
    if a and b and min(abs(a), abs(b), abs(total)) < max(abs(a), abs(b)) * _mp.mpf(10) ** -_SURE:
        raise Unsure
    return total


def _exact_power(a: Fraction, b: Fraction) -> Fraction | None:
    if not a and b <= 0:
        raise Unsure
    bits = max(a.numerator.bit_length(), a.denominator.bit_length()) * abs(b)
    return Fraction(a**b.numerator) if b.denominator == 1 and bits <= _LARGEST else None


def _power(a: Any, b: Any) -> Any:
    if not a or abs(b) > _HUGEST or abs(b * _mp.log(abs(a), 2)) > _HUGEST:
        raise Unsure
    if not isinstance(a, _mp.mpc) and a < 0 and not _mp.isint(b):
        raise Unsure  # (-8)^(1/3): the real root or the principal one
    return a**b


def _root(a: Any, degree: Any) -> Any:
    if not _mp.isint(degree) or not 2 <= degree <= 100 or degree > 2 and (isinstance(a, _mp.mpc) or a < 0):
        raise Unsure  # such as the cube root of -2: the real one or the principal one
    return _mp.root(a, int(degree))


def _natural(value: Fraction) -> int:
    if value.denominator != 1 or not 0 <= value <= 3000:
        raise Unsure
    return int(value)


def _log(a: Any, base: Any = None) -> Any:
    """The base of log without a base is a convention, so it is a variable: log 8 / log 2 is 3 in any base."""
    return _mp.log(a) / _mp.log(base if base is not None else 3 + _inexact(variable("base of log", 0)))


_EXACT: dict[str, Callable[..., Fraction | None]] = {
    "add": operator.add, "mul": operator.mul, "div": operator.truediv, "pow": _exact_power,
    "factorial": lambda n: Fraction(math.factorial(_natural(n))),
    "binomial": lambda n, k: Fraction(math.comb(_natural(n), _natural(k))),
}  # fmt: skip
_INEXACT: dict[str, Callable[..., Any]] = {
    "add": _add, "mul": operator.mul, "div": operator.truediv, "pow": _power, "root": _root, "ln": _mp.log, "log": _log,
    "exp": lambda a: _power(_CONSTANTS["e"], a),
}  # fmt: skip
_FUNCTIONS = {name: getattr(_mp, name.replace("arc", "a")) for name in FUNCTIONS - _INEXACT.keys()}
