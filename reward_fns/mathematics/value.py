r"""What a formula evaluates to, exactly where it is rational and to 50 digits where it is not.

Variables get values that look random but depend only on their names; two formulas in them are the same if they agree
there, at a point of positive and at one of negative values. That two honest answers agree to 40 digits by chance does
not happen; that an answer was built to (pi + 10^-60) is caught, for adding numbers of very different size, and losing
digits to cancellation, make the value unsure, and then algebra decides.

Nothing here can take long: sizes are bounded before they are computed.
"""

import math
import zlib
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath

from reward_fns.mathematics.expression import Node

_DIGITS = 50
_AGREE = 40
_SURE = 25  # digits that have to be left after a sum
_LARGEST = 40_000  # bits of an exact number
_HUGEST = 10**6  # bits of the size of an inexact one

_mp = mpmath.MPContext()
_mp.dps = _DIGITS
_CONSTANTS: dict[str, Any] = {"pi": +_mp.pi, "e": +_mp.e, "i": _mp.mpc(0, 1), "infinity": _mp.inf}


class Unsure(ArithmeticError):
    """The value cannot be had here: too large, not known to enough digits, or a matter of convention."""


class Undefined(ArithmeticError):
    """There is no value, as of 1/0."""


def evaluate(node: Node, point: int = 0) -> Any:
    """A `Fraction`, or a real or complex number of 50 digits. `point` chooses the values of the variables."""
    try:
        return _evaluate(node, point)
    except ZeroDivisionError as error:
        raise Undefined from error
    except (ValueError, OverflowError) as error:  # mpmath at a pole, or past its range
        raise Unsure from error


def _evaluate(node: Node, point: int) -> Any:
    kind = node.kind
    if kind in ("number", "decimal"):
        return node.value
    if kind == "constant":
        return _CONSTANTS[node.value]
    if kind == "variable":
        return variable(node.value, point)
    values = [_evaluate(child, point) for child in node.children]
    return _OPERATIONS[kind](*values) if kind in _OPERATIONS else _function(kind, *values)


def variable(name: str, point: int) -> Fraction:
    """Between 1/2 and 3/2, negative at odd points."""
    seed = zlib.crc32(f"{name}/{point}".encode()) % 1_000_003
    return Fraction(seed + 500_000, 999_983) * (-1 if point % 2 else 1)


def agree(a: Any, b: Any) -> bool:
    """Whether two values are the same number: exactly, or to 40 digits of the larger where one is inexact."""
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a == b
    a, b = _inexact(a), _inexact(b)
    if _mp.isinf(a) or _mp.isinf(b):
        return bool(a == b)
    return bool(abs(a - b) <= max(abs(a), abs(b)) * _mp.mpf(10) ** -_AGREE)


def rounds_to(value: Any, decimal: Fraction, places: int) -> bool:
    """Whether `decimal`, written with so many places, is `value` rounded or cut off there."""
    value = _inexact(value)
    if isinstance(value, _mp.mpc) or _mp.isinf(value):
        return False
    written, unit = _inexact(decimal), _mp.mpf(10) ** -places
    return bool(abs(value - written) <= unit / 2 or abs(value - written) < unit and abs(written) < abs(value))


def as_inexact(real: str, imaginary: str) -> Any:
    """A number of another library's, by way of its digits."""
    parts = _mp.mpf(real), _mp.mpf(imaginary)
    return _mp.mpc(*parts) if parts[1] else parts[0]


def _inexact(value: Any) -> Any:
    if isinstance(value, Fraction):
        if max(value.numerator.bit_length(), value.denominator.bit_length()) > _LARGEST * 4:
            raise Unsure
        return _mp.mpf(value.numerator) / value.denominator
    return value


def _finite(value: Any) -> Any:
    if _mp.isinf(value) or _mp.isnan(value):
        raise Unsure
    return value


def _bounded(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > _LARGEST:
        raise Unsure
    return value


def _add(*values: Any) -> Any:
    total = values[0]
    for value in values[1:]:
        if isinstance(total, Fraction) and isinstance(value, Fraction):
            total = _bounded(total + value)
        elif not value or not total:
            total = value or total
        else:
            a, b = _finite(_inexact(total)), _finite(_inexact(value))
            total = a + b
            least, most = sorted((abs(a), abs(b)))
            if min(least, abs(total)) < most * _mp.mpf(10) ** -_SURE:
                raise Unsure
    return total


def _mul(*values: Any) -> Any:
    product = values[0]
    for value in values[1:]:
        if isinstance(product, Fraction) and isinstance(value, Fraction):
            product = _bounded(product * value)
        elif (isinstance(product, Fraction) and not product) or (isinstance(value, Fraction) and not value):
            product = Fraction(0)
        else:
            product = _finite(_inexact(product)) * _finite(_inexact(value))
    return product


def divide(a: Any, b: Any) -> Any:
    if not b:
        raise Undefined
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return _bounded(a / b)
    return _finite(_inexact(a)) / _finite(_inexact(b))


def _neg(a: Any) -> Any:
    return -a


def _pow(a: Any, b: Any) -> Any:
    if isinstance(b, Fraction) and b.denominator == 1:
        if not a and b <= 0:
            raise Undefined
        if isinstance(a, Fraction):
            bits = max(a.numerator.bit_length(), a.denominator.bit_length()) * abs(b.numerator)
            if bits <= _LARGEST or a in (0, 1, -1):
                return a ** (b.numerator if a not in (1, -1) else b.numerator % 2)
    a, b = _finite(_inexact(a)), _finite(_inexact(b))
    if not a:
        return Fraction(0)
    if abs(b) > _HUGEST or abs(b * _mp.log(abs(a), 2)) > _HUGEST:
        raise Unsure
    if not isinstance(a, _mp.mpc) and a < 0 and not _mp.isint(b):
        raise Unsure  # (-8)^(1/3): the real root or the principal one
    return a**b


def _root(a: Any, degree: Any) -> Any:
    if not isinstance(degree, Fraction) or degree.denominator != 1 or not 2 <= degree <= 1000:
        raise Unsure
    n = int(degree)
    if isinstance(a, Fraction):
        if a < 0 and n % 2:
            return -_root(-a, degree)
        if a >= 0 and a.numerator.bit_length() < 1000 and a.denominator.bit_length() < 1000:
            top, below = _exact_root(a.numerator, n), _exact_root(a.denominator, n)
            if top is not None and below is not None:
                return Fraction(top, below)
    a = _finite(_inexact(a))
    if not isinstance(a, _mp.mpc) and a < 0 and n > 2:
        raise Unsure
    return _mp.root(a, n)


def _exact_root(value: int, n: int) -> int | None:
    near = math.isqrt(value) if n == 2 else round(value ** (1 / n)) if value < 10**12 else 0
    return near if near**n == value else None


def _factorial(a: Any) -> Any:
    if not isinstance(a, Fraction) or a.denominator != 1 or a > 100_000:
        raise Unsure
    if a < 0:
        raise Undefined
    return Fraction(math.factorial(int(a))) if a <= 3000 else _mp.gamma(_inexact(a) + 1)


def _binomial(n: Any, k: Any) -> Any:
    if (
        not all(isinstance(value, Fraction) and value.denominator == 1 for value in (n, k))
        or not 0 <= k <= n <= 100_000
    ):
        raise Unsure
    return Fraction(math.comb(int(n), int(k))) if n <= 3000 else _mp.binomial(_inexact(n), _inexact(k))


def _abs(a: Any) -> Any:
    return abs(a)


def _degrees(a: Any) -> Any:
    return _mul(a, _CONSTANTS["pi"] / 180)


def _log(a: Any, base: Any = None) -> Any:
    """The base of a bare log is a matter of convention, so it is a variable: log 8 / log 2 is 3 in any base."""
    below = _mp.log(_positive(base)) if base is not None else _mp.log(3 + _inexact(variable("base of log", 0)))
    return divide(_ln(a), below if below else Fraction(0))


def _positive(value: Any) -> Any:
    value = _finite(_inexact(value))
    if isinstance(value, _mp.mpc) or value <= 0:
        raise Unsure
    return value


def _ln(a: Any) -> Any:
    if not a:
        raise Undefined
    if a == 1:
        return Fraction(0)
    return _mp.log(_finite(_inexact(a)))


def _exp(a: Any) -> Any:
    return _pow(_CONSTANTS["e"], a)


def _function(name: str, a: Any) -> Any:
    a = _finite(_inexact(a))
    if abs(a) > 10**9:
        raise Unsure
    value = _TRIGONOMETRY[name](a)
    if abs(value) > _mp.mpf(10) ** _AGREE:
        raise Undefined  # tan(pi/2), to within the digits we have
    return Fraction(0) if abs(value) < _mp.mpf(10) ** -_AGREE else value


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": _add, "mul": _mul, "div": divide, "neg": _neg, "pow": _pow, "root": _root, "factorial": _factorial,
    "binomial": _binomial, "abs": _abs, "degrees": _degrees, "log": _log, "ln": _ln, "exp": _exp,
}  # fmt: skip
_TRIGONOMETRY: dict[str, Callable[[Any], Any]] = {
    "sin": _mp.sin, "cos": _mp.cos, "tan": _mp.tan, "cot": _mp.cot, "sec": _mp.sec, "csc": _mp.csc, "arcsin": _mp.asin,
    "arccos": _mp.acos, "arctan": _mp.atan, "sinh": _mp.sinh, "cosh": _mp.cosh, "tanh": _mp.tanh,
}  # fmt: skip
