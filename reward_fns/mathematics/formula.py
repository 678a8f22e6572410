r"""Two formulas compared without algebra: is the answer evaluated as far as the reference, and has it the same value?

Equality is not enough. "Compute 17 · 23" has the equal answer `17 \cdot 23`, as has every problem that contains the
formula to evaluate; a policy that is rewarded for copying the sum, the integral, the factorial or its last line of
arithmetic learns to do that, and makes fewer mistakes by it. So an answer may leave an operation unevaluated only if
the reference does. If the reference is a number, the answer must be a number: an integer, a decimal, a mixed number,
scientific notation, or, if the reference is no integer, a fraction (in lowest terms or not).

Rearrangements with the same operations are not detected, and accepted: a root that is not simplified, a product that
was to be factored or expanded.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from reward_fns.mathematics.expression import Node
from reward_fns.mathematics.tokens import FUNCTION_COMMANDS, ROUNDED, Tokens
from reward_fns.mathematics.value import Unsure, agree, evaluate, rounds_to, varies

Tree = Node | None


# Notation for an unevaluated operation, for formulas that `expression` does not parse.
_UNDONE = (FUNCTION_COMMANDS - {r"\exp"}).union(
    r"""\sum \prod \int \iint \oint \lim \max \min \gcd \lcm \det \binom \choose ! \pmod \bmod \mod \lfloor \lceil
    \Re \Im \arg \deg \sup \inf |""".split()
)
_FUNCTIONS = {name: "trigonometry" for name in "sin cos tan cot sec csc".split()}
_FUNCTIONS |= {name: "inverse trigonometry" for name in ("arcsin", "arccos", "arctan")}
_FUNCTIONS |= {name: "hyperbolic" for name in ("sinh", "cosh", "tanh")} | {"ln": "log", "log": "log"}


def done(gold: Tree, answer: Tree, gold_tokens: Tokens, tokens: Tokens) -> bool:
    """Whether `answer` leaves unevaluated only what `gold` does. Without a tree a formula is judged by its symbols."""
    if gold is not None and is_number(gold):
        return answer is not None and is_number(answer) and (_unsigned(answer).kind != "div" or not _is_integer(gold))
    if gold is not None and answer is not None:
        return _undone(answer) <= _undone(gold)
    return {token.text for token in tokens} & _UNDONE <= {token.text for token in gold_tokens}


def is_number(node: Node) -> bool:
    """A literal number: 5, -0.5, 3/4, 6.7 x 10^-5."""
    node = _unsigned(node)
    if node.kind == "div":
        return all(_unsigned(child).kind == "number" for child in node.children)
    return node.kind in ("number", "decimal") or scientific(node) is not None


def is_decimal(node: Node) -> bool:
    """Written with a decimal point, and so perhaps rounded."""
    node = _unsigned(node)
    return node.kind == "decimal" or node.kind == "mul" and scientific(node) is not None


def places(node: Node) -> int:
    """Decimal places of a written number, scientific notation included."""
    node = _unsigned(node)
    exponent = scientific(node)
    return node.places if exponent is None else _unsigned(node.children[0]).places - exponent


def scientific(node: Node) -> int | None:
    """The exponent of m * 10^n, or of 10^n alone."""
    power = node
    if node.kind == "mul" and len(node.children) == 2 and _unsigned(node.children[0]).kind in ("number", "decimal"):
        power = node.children[1]
    if power.kind != "pow" or power.children[0] != Node("number", value=Fraction(10)):
        return None
    exponent = power.children[1]
    if not _is_integer(exponent):
        return None
    return int(_unsigned(exponent).value) * (-1 if exponent.kind == "neg" else 1)


def _unsigned(node: Node) -> Node:
    return node.children[0] if node.kind == "neg" else node


def _is_integer(node: Node) -> bool:
    return _unsigned(node).kind == "number"


def _undone(node: Node) -> set[str]:
    """The operations of a formula that could still be evaluated."""
    kinds = set().union(*(_undone(child) for child in node.children))
    kind, children = node.kind, [_unsigned(child) for child in node.children]
    numbers = [child for child in children if is_number(child)]
    sums = [child for child in children if child.kind == "add" and not varies(child)]
    if kind in _FUNCTIONS:
        kinds.add(_FUNCTIONS[kind])
    if (
        kind in ("factorial", "binomial") and not any(map(varies, children))
        or kind in ("add", "mul") and len(numbers) > 1
        or kind == "pow" and len(numbers) == 2 and _is_integer(children[1])
        or kind == "mul" and len(sums) > 1
        or kind == "pow" and children[0] in sums
        or kind == "div" and children[1] in sums
    ):  # fmt: skip
        kinds.add(kind)
    return kinds


def same_value(gold: Tree, answer: Tree) -> bool | None:
    """Equal at one point of positive and one of negative values of the variables; `None` if undecided."""
    if gold is None or answer is None:
        return None
    constant = not (varies(gold) or varies(answer))
    try:
        theirs, ours = evaluate(gold), evaluate(answer)
        if not agree(theirs, ours):
            return constant and (_rounded(gold, theirs, ours) or _rounded(answer, ours, theirs))
        return True if constant or agree(evaluate(gold, 1), evaluate(answer, 1)) else None
    except Unsure:
        return False if is_number(answer) else None  # 1/0


def same_percent(percent: Tree, number: Tree) -> bool:
    """50 % is 0.5; it is also 50, because answers to "what percent" often leave the sign out.

    For values up to 1 only the first holds, or 0.5 % would equal 0.5.
    """
    if percent is None or number is None or not is_number(percent) or not is_number(number):
        return False
    try:
        percentage, value = evaluate(percent), evaluate(number)
    except Unsure:
        return False
    return bool(percentage == 100 * value or percentage == value and abs(percentage) > 1)


def proportional(gold: Sequence[Tree], answer: Sequence[Tree], *, directed: bool) -> bool:
    """Whether two relations differ by a constant factor: x + y = 1 and 2 = 2x + 2y. If `directed`, a positive one."""
    if None in gold or None in answer or len(gold) != 2 or len(answer) != 2:
        return False
    theirs, ours = (Node("add", (left, Node("neg", (right,)))) for left, right in (gold, answer))  # type: ignore[arg-type]
    try:
        ratios = [evaluate(Node("div", (theirs, ours)), point) for point in range(4)]
    except Unsure:
        return False
    ratio = ratios[0]
    constant = bool(ratio) and varies(theirs) and all(agree(ratio, other) for other in ratios)
    return constant and (not directed or ratio.imag == 0 < ratio.real)


def _rounded(written: Node, decimal: Any, value: Any) -> bool:
    """Whether a decimal with enough digits is the rounded value of what has no finite decimal."""
    if not is_decimal(written) or not isinstance(decimal, Fraction):
        return False
    if isinstance(value, Fraction) and pow(10, value.denominator.bit_length(), value.denominator) == 0:
        return False  # a finite decimal
    digits = abs(decimal) * Fraction(10) ** places(written)
    return digits >= 10 ** (ROUNDED - 1) and rounds_to(value, decimal, places(written))
