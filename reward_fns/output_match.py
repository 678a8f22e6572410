"""Whether a program's output is the expected one, as competitive judges compare: token by token.

Tokens are what white space separates, so trailing blanks and the kind of line end do not matter, and neither does where
lines break. Every token must be there and none more: a correct beginning is wrong. Tokens are equal as bytes, with one
exception: where the expected one is a number with a decimal point or an exponent, any plain number within 1e-6 of it
will do, absolutely or relative to it. An expected integer has no tolerance.
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
    wanted, found = _inexact(theirs), _number(ours)
    if wanted is None or found is None:
        return False
    return abs(found - wanted) <= TOLERANCE * max(1.0, abs(wanted))


def _inexact(token: bytes) -> float | None:
    return None if _INTEGER.fullmatch(token) else _number(token)


def _number(token: bytes) -> float | None:
    """A finite number in plain notation: no nan, no infinity, no underscores, no digits of other scripts."""
    if len(token) > _LONGEST_NUMBER or not _NUMBER.fullmatch(token):
        return None
    value = float(token)
    return value if math.isfinite(value) else None
