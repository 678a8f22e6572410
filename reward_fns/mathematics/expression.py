r"""One formula as a tree, if its meaning is unambiguous; otherwise there is no tree.

Parses arithmetic, fractions, roots, powers, factorials, binomials, elementary functions, variables with subscripts.
Left to algebra: sums, integrals, limits, absolute values, functions named by a letter, `a/bc` (is it (a/b)c?), and all
other notation.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from reward_fns.mathematics.tokens import (
    COMMAND,
    FUNCTION_COMMANDS,
    LETTER,
    MARK,
    NUMBER,
    RUN,
    VARIABLE_COMMANDS,
    Token,
    Tokens,
    plain,
)  # fmt: skip

_DEEPEST = 40
_LONGEST_NUMBER = 1000  # digits; Python itself reads no more than 4,300
APPLIED = frozenset("fghFGHPQ")  # f(x) is more often a function than a product
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_CONSTANTS = frozenset((r"\pi", r"\infty", "e", "i"))
_INVERSE = {"sin": "arcsin", "cos": "arccos", "tan": "arctan"}
_STARTS = {*_CLOSING, *VARIABLE_COMMANDS, *_CONSTANTS, r"\frac", r"\sqrt", r"\binom", *FUNCTION_COMMANDS}


class Node(NamedTuple):
    """`value` is a number's Fraction or a name, `places` the decimal places; the kinds are those of `value.py`."""

    kind: str
    children: tuple["Node", ...] = ()
    value: Any = None
    places: int = 0


class UnreadableExpression(ValueError):
    """No tree: the notation is unknown or ambiguous."""


def read(tokens: Tokens) -> Node | None:
    """The tree, or `None`."""
    try:
        reader = _Reader(tokens)
        tree = reader.sum()
        reader.expect("")
    except UnreadableExpression:
        return None
    return tree


class _Reader:
    def __init__(self, tokens: Tokens) -> None:
        self.tokens = [*tokens, Token(MARK, "")]
        self.at = 0
        self.depth = 0

    @property
    def next(self) -> Token:
        return self.tokens[self.at]

    def take(self, *texts: str) -> str:
        text = self.next.text
        if text not in texts:
            return ""
        self.at += 1
        return text

    def expect(self, text: str) -> None:
        _require(self.next.text == text)
        self.at += 1

    def sum(self) -> Node:
        terms = [_signed(self.take("+", "-"), self.product())]
        while sign := self.take("+", "-"):
            terms.append(_signed(sign, self.product()))
        return _joined("add", terms)

    def product(self) -> Node:
        factors = [self.power()]
        divided = False
        while True:
            if self.take("*"):
                factors.append(_signed(self.take("-"), self.power()))
            elif self.take("/"):
                below = _signed(self.take("-"), self.power())
                factors, divided = [Node("div", (_joined("mul", factors), below))], True
            elif self._factor_follows():
                _require(not divided)  # a/bc
                factors.append(self.power())
            else:
                return _joined("mul", factors)

    def _factor_follows(self) -> bool:
        _require(self.next.kind != NUMBER)  # 2 3, x 2
        return self.next.kind in (LETTER, RUN) or self.next.text in _STARTS

    def power(self) -> Node:
        base = self._factorial(self.atom())
        if not self.take("^"):
            return base
        power = self._factorial(Node("pow", (base, self.exponent())))
        _require(self.next.text != "^")
        return power

    def _factorial(self, node: Node) -> Node:
        if not self.take("!"):
            return node
        _require(self.next.text != "!")
        return Node("factorial", (node,))

    def exponent(self) -> Node:
        """A group in braces, or a number or symbol with its sign."""
        return self.atom() if self.next.text == "{" else _signed(self.take("-"), self.atom())

    def argument(self) -> Node:
        """The argument of a command: a group in braces, or else one symbol."""
        _require(self.next.kind != NUMBER or len(self.next.text) == 1)
        return self.atom()

    def atom(self) -> Node:
        """All recursion goes through here, where the depth is limited: no answer overflows the stack."""
        self.depth += 1
        _require(self.depth <= _DEEPEST)
        node = self._atom()
        self.depth -= 1
        return node

    def _atom(self) -> Node:
        token = self.next
        self.at += 1
        if token.kind == NUMBER and self.next.text != "_":  # a numeral in some base
            return _number(token.text)
        if token.kind == LETTER or token.text in VARIABLE_COMMANDS:
            return self.variable(token.text)
        if token.kind == RUN:
            return Node("mul", tuple(map(_named, token.text)))
        if token.text in _CLOSING:
            inner = self.sum()
            self.expect(_CLOSING[token.text])
            return inner
        if token.kind == COMMAND:
            return self.command(token.text)
        raise UnreadableExpression

    def variable(self, name: str) -> Node:
        applied = name in APPLIED
        if self.take("_"):
            start, applied = self.at, True
            self.exponent()
            name = f"{name}_{plain(tuple(self.tokens[start : self.at])).strip('{}')}"
        _require(not applied or self.next.text != "(")
        return _named(name)

    def command(self, text: str) -> Node:
        if text in _CONSTANTS:
            return _named(text)
        if text in (r"\frac", r"\binom"):
            return Node("div" if text == r"\frac" else "binomial", (self.argument(), self.argument()))
        if text == r"\sqrt":
            degree = _number("2")
            if self.take("["):
                degree = self.sum()
                self.expect("]")
            return Node("root", (self.argument(), degree))
        if text in FUNCTION_COMMANDS:
            return self.function(text[1:])
        raise UnreadableExpression

    def function(self, name: str) -> Node:
        base = (self.exponent(),) if name == "log" and self.take("_") else ()
        exponent = self.exponent() if self.take("^") else None
        if exponent == _signed("-", _number("1")):
            _require(name in _INVERSE)
            name, exponent = _INVERSE[name], None
        node = Node(name, (self.applied(), *base))
        return Node("pow", (node, exponent)) if exponent else node

    def applied(self) -> Node:
        r"""A bracket, or the product that follows: \sin 2x is sin(2x), \sin x \cos x is sin(x) cos(x)."""
        if self.next.text in _CLOSING:
            return self.power()
        sign, factors = self.take("-"), [self.power()]
        while self._factor_follows() and self.next.text not in _CLOSING and self.next.text not in FUNCTION_COMMANDS:
            factors.append(self.power())
        _require(self.next.text != "/")  # \sin x/2
        return _signed(sign, _joined("mul", factors))


def _require(condition: bool) -> None:
    if not condition:
        raise UnreadableExpression


def _joined(kind: str, nodes: Sequence[Node]) -> Node:
    return nodes[0] if len(nodes) == 1 else Node(kind, tuple(nodes))


def _signed(sign: str, node: Node) -> Node:
    return Node("neg", (node,)) if sign == "-" else node


def _named(name: str) -> Node:
    return Node("constant" if name in _CONSTANTS else "variable", value=name)


def _number(text: str) -> Node:
    _require(len(text) <= _LONGEST_NUMBER)
    return Node("decimal" if "." in text else "number", value=Fraction(text), places=len(text.partition(".")[2]))
