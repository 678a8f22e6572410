"""Two formulas compared by value, without algebra. `None` is "not sure"."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from reward_fns.mathematics.expression import Node, read
from reward_fns.mathematics.form import is_decimal, is_number
from reward_fns.mathematics.shapes import Formula, Shape
from reward_fns.mathematics.tokens import NUMBER, Token
from reward_fns.mathematics.value import Undefined, Unsure, agree, divide, evaluate, rounds_to

Tokens = tuple[Token, ...]
_ROUNDED = 6  # significant digits a rounded decimal must have to stand for 1/3 or pi


def same_value(gold: Node, answer: Node, gold_tokens: Tokens, tokens: Tokens) -> bool | None:
    """Equal at a point of positive and at one of negative values of the variables; a constant, once."""
    if _has(gold, "log", 1) != _has(answer, "log", 1):
        return None  # a base that only one of them leaves to convention
    constant = not (_has(gold, "variable") or _has(answer, "variable"))
    try:
        theirs, ours = evaluate(gold), evaluate(answer)
        if not agree(theirs, ours):
            return constant and _rounded(gold, answer, theirs, ours, gold_tokens, tokens)
        return True if constant or agree(evaluate(gold, 1), evaluate(answer, 1)) else None
    except Undefined:
        return False
    except Unsure:
        return None


def same_percent(percent: Tokens, number: Tokens) -> bool:
    """50 % is 0.5; it is also 50, for a reference or an answer to "what percent" often leaves the sign out.

    Up to 1 the second reading would make 0.5 % of 0.5, so there only the first holds.
    """
    trees = read(percent), read(number)
    if not all(tree is not None and is_number(tree) for tree in trees):
        return False
    try:
        part, whole = (evaluate(tree) for tree in trees if tree is not None)
    except (Undefined, Unsure):
        return False
    return bool(part == 100 * whole or part == whole and abs(part) > 1)


def near(exact: Shape, approximate: Shape) -> bool:
    """Whether the right side of an ≈ is the left side, rounded."""
    if not isinstance(exact, Formula) or not isinstance(approximate, Formula):
        return False
    tokens = approximate.quantity.body
    value, decimal = read(exact.quantity.body), read(tokens)
    if value is None or decimal is None or not is_number(decimal):
        return False
    try:
        return rounds_to(evaluate(value), evaluate(decimal), _places(tokens))
    except (Undefined, Unsure):
        return False


def is_rounded(gold: Shape, exact: Shape) -> bool:
    """Whether a reference is a rounded decimal, and the answer's exact value none: 1/3 ≈ 0.33, but not 5.6 ≈ 6."""
    if not isinstance(gold, Formula) or not isinstance(exact, Formula):
        return False
    reference, value = read(gold.quantity.body), read(exact.quantity.body)
    return reference is not None and value is not None and is_decimal(reference) and not is_decimal(value)


def proportional(gold: Sequence[Shape], answer: Sequence[Shape], *, directed: bool) -> bool:
    """Whether two relations differ by a constant factor: x + y = 1 and 2 = 2x + 2y. If `directed`, a positive one."""
    ratio: Any = None
    try:
        for point in range(4):
            theirs, ours = _difference(gold, point), _difference(answer, point)
            if theirs is None or ours is None or not theirs or not ours:
                return False
            found = divide(theirs, ours)
            if ratio is not None and not agree(ratio, found):
                return False
            ratio = found
    except (Undefined, Unsure):
        return False
    return not directed or bool(ratio.imag == 0 and ratio.real > 0)


def _difference(sides: Sequence[Shape], point: int) -> Any:
    trees = []
    for side in sides:
        tree = read(side.quantity.body) if isinstance(side, Formula) and not side.quantity.unit else None
        if tree is None:
            return None
        trees.append(tree)
    return evaluate(Node("add", (trees[0], Node("neg", (trees[1],)))), point)


def _has(node: Node, kind: str, arity: int | None = None) -> bool:
    found = node.kind == kind and arity in (None, len(node.children))
    return found or any(_has(child, kind, arity) for child in node.children)


def _rounded(gold: Node, answer: Node, theirs: Any, ours: Any, gold_tokens: Tokens, tokens: Tokens) -> bool:
    """A decimal may stand for what no decimal can express, if it has enough digits. Two decimals are exact."""
    if is_decimal(gold) == is_decimal(answer):
        return False
    decimal, value, written = (theirs, ours, gold_tokens) if is_decimal(gold) else (ours, theirs, tokens)
    if isinstance(value, Fraction) and _terminates(value):
        return False
    mantissa = next(token.text for token in written if token.kind == NUMBER)
    if len(mantissa.replace(".", "").lstrip("0")) < _ROUNDED:
        return False
    return rounds_to(value, decimal, _places(written))


def _places(tokens: Tokens) -> int:
    """Decimal places of a written number, scientific notation included."""
    numbers = [token.text for token in tokens if token.kind == NUMBER]
    places = len(numbers[0].partition(".")[2])
    if len(numbers) == 3:  # m * 10 ^ n
        places -= int(numbers[2]) * (-1 if any(token.text == "-" for token in tokens[2:]) else 1)
    return places


def _terminates(value: Fraction) -> bool:
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    return rest == 1
