"""Whether a program's output equals the expected output, token by token as in programming contests.

Tokens are separated by white space, so trailing blanks, line breaks and the kind of line end do not matter. All tokens
must match, with none missing and none extra. Tokens are compared as bytes, with one exception: where the expected token
has a decimal point or an exponent, any plain number within an absolute or relative error of 1e-6 matches. An expected
integer has no tolerance.
"""

import math
import re

TOLERANCE = 1e-6
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
    return abs(value - expected) <= TOLERANCE * max(1.0, abs(expected))


def _number(token: bytes) -> float | None:
    """A finite number in plain notation: no nan, no infinity, no underscores, no digits of other scripts."""
    if len(token) > _LONGEST_NUMBER or not _NUMBER.fullmatch(token):
        return None
    value = float(token)
    return value if math.isfinite(value) else None
