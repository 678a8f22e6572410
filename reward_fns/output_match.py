"""Whether a program's output equals the expected output, token by token as in programming contests.

Tokens are separated by white space, so trailing blanks, line breaks and the kind of line end do not matter. All tokens
must match, with none missing and none extra. Tokens are compared as bytes, with one exception: where the expected token
has a decimal point or an exponent, any plain number within an absolute or relative error of 1e-6 matches. An expected
integer has no tolerance.

Up to 1e-6 an absolute error of 1e-6 would accept 0 for every number, so there the error is relative, with two
allowances. 1e-12 is what rounding leaves where the exact value is 0: expected outputs contain 5.6e-17 and 1.1e-13, and
a program that sums in another order prints 0. Half a unit of its last digit is what an expected token without exponent
may be off by, because it was rounded: 0.0000014 matches 0.000001. An expected 0.0 keeps the absolute error.
"""

import math
import re

TOLERANCE = 1e-6
ROUNDING = 1e-12
_NUMBER = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_INTEGER = re.compile(rb"[+-]?[0-9]+")
_LONGEST_NUMBER = 400  # characters; longer ones are compared as text


def same_output(output: bytes, expected: bytes) -> bool:
    if output == expected:
        return True
    ours, theirs = output.split(), expected.split()
    return len(ours) == len(theirs) and all(map(_same_token, ours, theirs))


def _same_token(ours: bytes, theirs: bytes) -> bool:
    if ours == theirs:
        return True
    if _INTEGER.fullmatch(theirs):
        return False
    value, expected = _number(ours), _number(theirs)
    if value is None or expected is None:
        return False
    return abs(value - expected) <= _tolerance(expected, theirs)


def _tolerance(expected: float, token: bytes) -> float:
    size = abs(expected)
    if size > TOLERANCE or size == 0.0:
        return TOLERANCE * max(1.0, size)
    _, _, decimals = token.partition(b".")
    half_unit = 0.5 * 10.0 ** -len(decimals) if decimals.isdigit() else 0.0  # an exponent: all digits are meant
    return max(TOLERANCE * size, ROUNDING, half_unit)


def _number(token: bytes) -> float | None:
    """A finite number in plain notation: no nan, no infinity, no underscores, no digits of other scripts."""
    if len(token) > _LONGEST_NUMBER or not _NUMBER.fullmatch(token):
        return None
    value = float(token)
    return value if math.isfinite(value) else None
