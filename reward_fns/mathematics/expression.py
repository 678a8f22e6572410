r"""One formula as a tree, where its reading is beyond doubt; where it is not, there is no tree.

Reads arithmetic, fractions, mixed numbers, roots, powers, factorials, binomials, the elementary functions, repeating
decimals, variables with subscripts. Left to algebra: sums, integrals, limits, functions named by a letter, `a/bc` (is
it (a/b)c?), and all notation that is not listed here.
"""

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

from reward_fns.mathematics.tokens import COMMAND, FUNCTIONS, LETTER, NUMBER, RUN, Token, plain

_DEEPEST = 40
_LONGEST_NUMBER = 1000  # digits; Python itself reads no more than 4,300
_INVERSE = {"sin": "arcsin", "cos": "arccos", "tan": "arctan"}
_VARIABLES = frozenset(
    r"""\alpha \beta \gamma \delta \epsilon \varepsilon \zeta \eta \theta \iota \kappa \lambda \mu \nu \xi \rho
    \sigma \tau \phi \chi \psi \omega \Gamma \Delta \Theta \Lambda \Sigma \Phi \Psi \Omega""".split()
)
_APPLIED = frozenset("fghFGHPQ")  # f(x) is more often a function than a product
_CLOSING = {"(": ")", "[": "]", "{": "}"}


class Node(NamedTuple):
    """`value` is a number's Fraction or a name; the kinds are those of `value.evaluate`."""

    kind: str
    children: tuple["Node", ...] = ()
    value: Any = None


class Unreadable(ValueError):
    """No tree: the notation is unknown here, or has two readings."""


def read(tokens: tuple[Token, ...]) -> Node | None:
    """The tree, or `None`."""
    return _remembered(tokens) if len(tokens) <= _SHORT else _read(tokens)


def _read(tokens: tuple[Token, ...]) -> Node | None:
    try:
        reader = _Reader(tokens)
        tree = reader.sum()
        if reader.at < len(tokens):
            raise Unreadable
    except Unreadable:
        return None
    return tree


_remembered = lru_cache(maxsize=1024)(_read)
_SHORT = 100  # symbols: what is remembered must stay small


class _Reader:
    def __init__(self, tokens: tuple[Token, ...]) -> None:
        self.tokens = tokens
        self.at = 0
        self.depth = 0
        self.bars = 0

    def peek(self, ahead: int = 0) -> str:
        index = self.at + ahead
        return self.tokens[index].text if index < len(self.tokens) else ""

    def kind(self, ahead: int = 0) -> str:
        index = self.at + ahead
        return self.tokens[index].kind if index < len(self.tokens) else ""

    def take(self, text: str) -> bool:
        if self.peek() != text:
            return False
        self.at += 1
        return True

    def expect(self, text: str) -> None:
        if not self.take(text):
            raise Unreadable

    def sum(self) -> Node:
        terms = [self.product()]
        while self.peek() in ("+", "-"):
            sign = self.peek()
            self.at += 1
            term = self.product()
            terms.append(Node("neg", (term,)) if sign == "-" else term)
        return terms[0] if len(terms) == 1 else Node("add", tuple(terms))

    def product(self) -> Node:
        if self.take("-"):
            return Node("neg", (self.deeper(self.product),))
        if self.take("+"):
            return self.deeper(self.product)
        factors = [self.power()]
        divided = False
        while True:
            if self.take("*"):
                factors.append(self.signed())
            elif self.take("/"):
                top = factors[0] if len(factors) == 1 else Node("mul", tuple(factors))
                factors, divided = [Node("div", (top, self.signed()))], True
            elif self._starts_factor():
                if divided or self.kind() == NUMBER:  # a/bc; 2 3
                    raise Unreadable
                factors.append(self.power())
            else:
                break
        return factors[0] if len(factors) == 1 else Node("mul", tuple(factors))

    def signed(self) -> Node:
        return Node("neg", (self.deeper(self.signed),)) if self.take("-") else self.power()

    def deeper(self, read: Callable[[], Node]) -> Node:
        """All recursion goes through here, so that no answer is nested deeper than the stack is."""
        self.depth += 1
        if self.depth > _DEEPEST:
            raise Unreadable
        node = read()
        self.depth -= 1
        return node

    def _starts_factor(self) -> bool:
        text, kind = self.peek(), self.kind()
        if kind in (NUMBER, LETTER, RUN) or text in ("(", "[", "{"):
            return True
        return kind == COMMAND and (
            text in _VARIABLES or text[1:] in FUNCTIONS or text in (r"\frac", r"\sqrt", r"\pi", r"\binom", r"\infty")
        )

    def power(self) -> Node:
        base = self.postfix(self.atom())
        if self.take("^"):
            if self.take(r"\circ") or [self.peek(i) for i in range(3)] == ["{", r"\circ", "}"] and self._skip(3):
                return Node("degrees", (base,))
            exponents = [self.argument(signed=True)]
            while self.take("^"):
                exponents.append(self.argument(signed=True))
            if len(exponents) > _DEEPEST:
                raise Unreadable
            while len(exponents) > 1:  # a^b^c is a^(b^c)
                exponents[-2:] = [Node("pow", (exponents[-2], exponents[-1]))]
            return self.postfix(Node("pow", (base, exponents[0])))
        return base

    def _skip(self, count: int) -> bool:
        self.at += count
        return True

    def postfix(self, node: Node) -> Node:
        if self.take("!"):
            if self.peek() == "!":
                raise Unreadable
            return Node("factorial", (node,))
        if self.take("%"):
            return Node("div", (node, Node("number", value=Fraction(100))))
        return node

    def argument(self, *, signed: bool = False) -> Node:
        r"""What a command or `^` applies to: a group in braces, or else one symbol; of `\frac12`, one digit."""
        if self.take("{"):
            inner = self.deeper(self.sum)
            self.expect("}")
            return inner
        if signed and self.take("-"):
            return Node("neg", (self.argument(),))
        if self.kind() == NUMBER and not signed and len(self.peek()) > 1:
            if not self.peek().isdigit():
                raise Unreadable
            token = self.tokens[self.at]
            self.tokens = (*self.tokens[: self.at], token._replace(text=token.text[1:]), *self.tokens[self.at + 1 :])
            return Node("number", value=Fraction(token.text[0]))
        return self.atom()

    def atom(self) -> Node:
        return self.deeper(self._atom)

    def _atom(self) -> Node:
        text, kind = self.peek(), self.kind()
        if kind == NUMBER:
            return self.number()
        if kind == LETTER or text in _VARIABLES:
            return self.variable()
        if kind == RUN:
            self.at += 1
            return Node("mul", tuple(_letter(letter) for letter in text))
        if text in _CLOSING:
            self.at += 1
            bars, self.bars = self.bars, 0
            inner = self.sum()
            self.bars = bars
            self.expect(_CLOSING[text])
            return inner
        if text == "|" and not self.bars:
            self.at += 1
            self.bars = 1
            inner = self.sum()
            self.expect("|")
            self.bars = 0
            return Node("abs", (inner,))
        if kind == COMMAND:
            return self.command(text)
        raise Unreadable

    def number(self) -> Node:
        text = self.peek()
        if len(text) > _LONGEST_NUMBER:
            raise Unreadable
        self.at += 1
        value = Fraction(text)
        if "." in text and self.peek() == r"\overline":
            return self.repeating(text)
        if "." not in text:
            if self.peek() == "_":  # a numeral in some base
                raise Unreadable
            if self.peek() == r"\frac" and (mixed := self.mixed(value)):
                return mixed
            if self.kind() == self.kind(2) == NUMBER and self.peek(1) == "/":  # 1 4/5
                return self.proper(value, Fraction(self.peek()), Fraction(self.peek(2)), skip=3)
        return Node("decimal" if "." in text else "number", value=value)

    def repeating(self, text: str) -> Node:
        self.at += 1
        self.expect("{")
        digits = self.peek()
        if not digits.isdigit():
            raise Unreadable
        self.at += 1
        self.expect("}")
        places = len(text.partition(".")[2])
        return Node("number", value=Fraction(text) + Fraction(int(digits), 10**places * (10 ** len(digits) - 1)))

    def mixed(self, whole: Fraction) -> Node | None:
        start, tokens = self.at, self.tokens
        self.at += 1
        top, below = self.argument(), self.argument()
        if top.kind == below.kind == "number":
            return self.proper(whole, top.value, below.value)
        self.at, self.tokens = start, tokens
        return None

    def proper(self, whole: Fraction, top: Fraction, below: Fraction, skip: int = 0) -> Node:
        r"""1\frac{4}{5} is 9/5. An improper fraction there, as in 2\frac{3}{2}, has no agreed reading."""
        if not 0 < top < below:
            raise Unreadable
        self.at += skip
        return Node("number", value=whole + top / below)

    def variable(self) -> Node:
        name, letter = self.peek(), self.kind() == LETTER
        self.at += 1
        decorated = False
        if self.take("_"):
            start = self.at
            self.argument(signed=True)
            name, decorated = f"{name}_{plain(self.tokens[start : self.at]).strip('{}')}", True
        while self.take("'"):
            name, decorated = name + "'", True
        if self.peek() == "(" and (decorated or name in _APPLIED):
            raise Unreadable
        return _letter(name) if letter else Node("variable", value=name)

    def command(self, text: str) -> Node:
        self.at += 1
        if text == r"\pi":
            return Node("constant", value="pi")
        if text == r"\infty":
            return Node("constant", value="infinity")
        if text == r"\frac":
            return Node("div", (self.argument(), self.argument()))
        if text == r"\binom":
            return Node("binomial", (self.argument(), self.argument()))
        if text == r"\sqrt":
            degree = Node("number", value=Fraction(2))
            if self.take("["):
                degree = self.sum()
                self.expect("]")
            return Node("root", (self.argument(), degree))
        if text[1:] in FUNCTIONS:
            return self.function(text[1:])
        raise Unreadable

    def function(self, name: str) -> Node:
        base, exponent = None, None
        if name == "log" and self.take("_"):
            base = self.argument()
        if self.take("^"):
            exponent = self.argument(signed=True)
            if exponent == Node("neg", (Node("number", value=Fraction(1)),)):
                if name not in _INVERSE:
                    raise Unreadable
                name, exponent = _INVERSE[name], None
        inner = self.applied()
        node = Node(name, (inner, base) if base else (inner,))
        return Node("pow", (node, exponent)) if exponent else node

    def applied(self) -> Node:
        r"""A bracket, or the product that follows: \sin 2x is sin(2x), \sin x \cos x is sin(x) cos(x)."""
        if self.peek() in _CLOSING:
            return self.power()
        negative = self.take("-")
        factors = [self.power()]
        while self._starts_factor() and self.peek() not in _CLOSING and self.peek()[1:] not in FUNCTIONS:
            if self.kind() == NUMBER:
                raise Unreadable
            factors.append(self.power())
        if self.peek() == "/":  # \sin x/2
            raise Unreadable
        node = factors[0] if len(factors) == 1 else Node("mul", tuple(factors))
        return Node("neg", (node,)) if negative else node


def _letter(name: str) -> Node:
    constants = {"e": "e", "i": "i"}
    return Node("constant", value=constants[name]) if name in constants else Node("variable", value=name)
