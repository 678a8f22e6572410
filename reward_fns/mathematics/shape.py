r"""The shape of an answer: a list, a set, a pair, an equation and so on, parsed before any value is compared.

Most wrong accepts of symbolic graders confuse shapes: a set with a pair, the last member of a chain of equalities with
the chain, two answers with one. Here only the members of equal shapes are compared as values.

    3, 5, 7     1 \pm 2     x=1 or x=2      several values, in any order
    \{3, 5\}    [1,2] \cup [3,4]            a set, a union
    (3, 5)   [3, 5)   x > 5   1:2:3         an ordered group: pair, interval, ray, ratio
    |x| < 5   x != 5                        an interval, a union of two
    \begin{pmatrix} … \end{pmatrix}         the same: a matrix
    x = 5   f(x) = 2x + 1   5 = 2 + 3       a chain of equalities, with the names it starts with
    x + y < 5                               any other relation
    (B)   yes   no solution                 a choice, words
    12 cm                                   a formula with what surrounds it
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise

from reward_fns.mathematics.expression import APPLIED, Node, read
from reward_fns.mathematics.tokens import COMMAND, LETTER, MARK, NUMBER, RUN, WORD, Token, Tokens, plain, tokenize
from reward_fns.mathematics.units import Quantity, quantity
from reward_fns.mathematics.value import Unsure, real_number

_BRACKETS = dict.fromkeys(("(", "[", "{", r"\{", r"\langle", r"\begin"), 1)
_BRACKETS |= dict.fromkeys((")", "]", "}", r"\}", r"\rangle", r"\end"), -1)
_DEEPEST = 30
_PREFIX = re.compile(
    r"^\W*(?:(?:so|thus|therefore|hence),? )?(?:the )?(?:(?:final |correct )?answer(?: is|:)|final answer)[:\s]*", re.I
)
_NUMERALS = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
    seventeen eighteen nineteen twenty""".split()
_ARTICLES = re.compile(r"^(?:the|a|an|it is|it's) ")
_REALS = "all real number"
# Equivalent answers: words without articles and plurals, or complete texts.
_SYNONYMS = {
    "true": "yes", "false": "no", "dne": "does not exist", "limit does not exist": "does not exist",
    r"\emptyset": "no solution", r"\{\}": "no solution", "empty set": "no solution",
    "infinitely many solution": "infinitely many", r"\mathbb R": _REALS, "all real": _REALS,
    r"(-\infty,\infty)": _REALS,
}  # fmt: skip
_INFINITY = (Token(COMMAND, r"\infty"),)
_MINUS_INFINITY = (Token(MARK, "-"), *_INFINITY)
_SUBSCRIPT = r"(?:_\{?[\w,+-]+\}?)?"
_NAME = re.compile(
    rf"(?:m?\\angle|\\overline|\\triangle|\\vec)? ?\{{?(?:[A-Za-z]|[A-Z] [A-Z]|[A-Z]{{3}}|\\[a-z]+)\}}?'*{_SUBSCRIPT}"
    r"(?:\([a-z](?:,[a-z])*\))?"
    rf"|\([a-z]{_SUBSCRIPT}(?:,[a-z]{_SUBSCRIPT})+\)"
)
_ANOTHER_CHOICE = re.compile(r"(?<![A-Za-z])[A-J] ?[).:]|^[A-J]$")
_NOT_NAMES = frozenset((r"\pi", r"\infty", "e", "i"))
_FUNCTION = re.compile(rf"[{''.join(sorted(APPLIED))}]'*(?:\^\{{-1\}})?\(")
_UNKNOWNS = frozenset("xyz")
_COMPLEX = frozenset("wz")  # |z| < 2 is a disc


@dataclass(frozen=True)
class Shape:
    """`text` is the answer in one spelling: equal texts are equal answers. A plain `Shape` is only text."""

    text: str
    items: tuple["Shape", ...] = ()

    def formulas(self) -> Iterator[Tokens]:
        """All formulas in it."""
        for item in self.items:
            yield from item.formulas()


@dataclass(frozen=True)
class Formula(Shape):
    quantity: Quantity = field(kw_only=True)

    def formulas(self) -> Iterator[Tokens]:
        yield self.quantity.body

    @cached_property
    def tree(self) -> Node | None:
        return read(self.quantity.body)


@dataclass(frozen=True)
class Words(Shape):
    words: str = field(kw_only=True)


@dataclass(frozen=True)
class Choice(Shape):
    """A letter of a multiple-choice question; the only item is what follows it, as in "(B) 12"."""

    letter: str = field(kw_only=True)


@dataclass(frozen=True)
class Several(Shape):
    """Values or intervals in any order; `braced` for a set in braces or a union."""

    braced: bool = False


@dataclass(frozen=True)
class Group(Shape):
    """Ordered items. `kind` is the brackets of a pair or interval, "()" for other vectors, or a description.

    `name` is the variable of an interval written as an inequality.
    """

    kind: str = field(kw_only=True)
    name: str = ""


@dataclass(frozen=True)
class Chain(Shape):
    """`names = items[0] = items[1] …`; without a name an equation or, with another `op`, an inequality."""

    names: tuple[str, ...] = ()
    op: str = "="


def read_shape(answer: str) -> Shape:
    """Parse an answer. Never fails: what cannot be parsed is plain text."""
    return _cached(answer) if len(answer) <= 100 else _read(answer)  # the cache must stay small


def _read(answer: str) -> Shape:
    tokens = tokenize(_PREFIX.sub("", answer, count=1))
    try:
        return _shape(tokens)
    except RecursionError:  # (a) option (a) option …
        return Shape(plain(tokens))


_cached = lru_cache(maxsize=1024)(_read)


def _shape(tokens: Tokens) -> Shape:
    tokens = _strip(tokens)
    text = plain(tokens)
    if not _balanced(tokens):
        return _choice(tokens, text) or Shape(text)  # B) 12
    if text in _SYNONYMS:
        return Words(text, words=_SYNONYMS[text])
    for parse in (_several, _difference, _relation, _ratio, _bracketed, _matrix, _plus_minus, _choice, _words):
        if (shape := parse(tokens, text)) is not None:
            return shape
    return Formula(text, quantity=quantity(tokens))


def _shapes(parts: list[Tokens]) -> tuple[Shape, ...]:
    return tuple(map(_shape, parts))


def _strip(tokens: Tokens) -> Tokens:
    """Without enclosing braces, and without a comma or full stop at the end."""
    while tokens and tokens[-1].text in (",", ";", "."):
        tokens = tokens[:-1]
    while len(tokens) > 1 and tokens[0].text == "{" and _closing(tokens) == len(tokens) - 1:
        tokens = tokens[1:-1]
    return tokens


def _depths(tokens: Tokens) -> list[int]:
    """How many brackets are open after each token."""
    return list(accumulate([_BRACKETS.get(token.text, 0) for token in tokens]))


def _balanced(tokens: Tokens) -> bool:
    depths = _depths(tokens)
    return not depths or depths[-1] == 0 and 0 <= min(depths) and max(depths) <= _DEEPEST


def _closing(tokens: Tokens) -> int:
    """The index at which the first bracket closes."""
    depths = _depths(tokens)
    return depths.index(0) if 0 in depths else -1


def _split(tokens: Tokens, *separators: str) -> tuple[list[Tokens], list[str]]:
    """The parts between separators outside all brackets, and the separators."""
    parts, matched, start = [], [], 0
    for index, (token, depth) in enumerate(zip(tokens, _depths(tokens), strict=True)):
        if not depth and token.text in separators and token.kind in (MARK, COMMAND):
            parts.append(tokens[start:index])
            matched.append(token.text)
            start = index + 1
    return [*parts, tokens[start:]], matched


def _several(tokens: Tokens, text: str) -> Shape | None:
    parts, separators = _split(tokens, ",", ";", "or", "and")
    if not separators:
        parts, separators = _split(tokens, r"\cup")
        return Several(text, _shapes(parts), braced=True) if separators else None
    items = _shapes([part for part in parts if part])  # "2, and 3" has an empty part
    if len(items) <= 1:
        return items[0] if items else Shape(text)  # "or" alone is no answer
    return Several(text, tuple(inner for item in items for inner in _values(item)))  # 1 ± 2, 5 is three values


def _difference(tokens: Tokens, text: str) -> Shape | None:
    r"""\mathbb{R} \setminus \{0\} is a union of intervals."""
    parts, separators = _split(tokens, r"\setminus", "-")
    if len(separators) != 1 or _SYNONYMS.get(plain(parts[0])) != _REALS or not parts[1]:
        return None
    removed = _shape(parts[1])
    return _punctured(removed.items, text) if isinstance(removed, Several) and removed.braced else None


def _punctured(points: tuple[Shape, ...], text: str, name: str = "") -> Shape | None:
    """The real line without some points."""
    try:
        values = [real_number(point.tree) for point in points if isinstance(point, Formula) and point.tree]
    except Unsure:
        return None
    if len(values) != len(points):
        return None
    ordered = [point for _, point in sorted(zip(values, points, strict=True), key=lambda pair: pair[0])]
    ends = [_shape(_MINUS_INFINITY), *ordered, _shape(_INFINITY)]
    return Several(text, tuple(Group(text, pair, kind="()", name=name) for pair in pairwise(ends)), braced=True)


def _values(item: Shape) -> tuple[Shape, ...]:
    return item.items if isinstance(item, Several) and not item.braced else (item,)


def _relation(tokens: Tokens, text: str) -> Shape | None:
    members, separators = _split(tokens, r"\in")
    if len(separators) == 1 and _name(members[0]):
        return _shape(members[1])
    parts, ops = _split(tokens, "=", "!=", "<", "<=", ">", ">=")
    if not ops:
        return None
    if not all(parts):
        return Shape(text)
    if set(ops) == {"="}:
        return _chain(parts, text)
    return _inequality(parts, ops, text) or Shape(text)


def _chain(parts: list[Tokens], text: str) -> Shape:
    if len(parts) == 2 and _name(parts[1]) and not _name(parts[0]):  # 5 = x
        parts = parts[::-1]
    first = next((index for index, part in enumerate(parts[:-1]) if not _name(part)), len(parts) - 1)
    return Chain(text, _shapes(parts[first:]), names=tuple(plain(_strip(part)) for part in parts[:first]))


def _name(tokens: Tokens) -> bool:
    r"""A left side that only names what follows: x, x_1, f(x), (x, y), AB, \angle ABC, "area"."""
    if tokens and all(token.kind in (WORD, RUN) for token in tokens):
        return True
    return bool(_NAME.fullmatch(plain(_strip(tokens)))) and not any(token.text in _NOT_NAMES for token in tokens)


def without_label(answer: Shape) -> Shape:
    """`m+n = 113` and `f(2) = 5 + 5 = 10` without the left side, which only says what the value is of.

    With the letters of unknowns it may be the problem's own equation: x+y = 5 is not 5.
    """
    if not isinstance(answer, Chain) or answer.op != "=" or len(answer.items) < 2:
        return answer
    first = answer.items[0]
    if not isinstance(first, Formula) or first.quantity.unit or not is_label(first.quantity.body):
        return answer
    unknown = any(token.text in _UNKNOWNS for token in first.quantity.body)
    return answer if unknown else replace(answer, items=answer.items[1:])


def is_label(tokens: Tokens) -> bool:
    r"""What a value may be stated of: names, m+n, xy, f(\sqrt{29}). No number of its own, or 2x = 10 would be 10."""
    parts, _ = _split(tokens, "+", "-", "*")
    return all(part and (_name(part) or _is_product(part) or _is_applied(part)) for part in parts)


def _is_product(tokens: Tokens) -> bool:
    letters = {token.text for token in tokens if token.kind == LETTER}
    return len(tokens) > 1 and len(letters) == len(tokens) and not letters & _NOT_NAMES


def _is_applied(tokens: Tokens) -> bool:
    r"""f(\sqrt{29}), f'(1), f^{-1}(3)"""
    opening = next((index for index, token in enumerate(tokens) if token.text == "("), 0)
    closes = opening + _closing(tokens[opening:]) == len(tokens) - 1
    return closes and _FUNCTION.match(plain(tokens)) is not None


def _inequality(parts: list[Tokens], ops: list[str], text: str) -> Shape | None:
    """`a < x <= b`, `x > a`, `|x| < a` and `x != a` are intervals; with anything but a bare name they are relations."""
    if set(ops) <= {">", ">="}:  # from small to large
        parts, ops = parts[::-1], [op.replace(">", "<") for op in reversed(ops)]
    if len(parts) == 2 and (shape := _excluded(parts, text) if ops == ["!="] else _absolute(parts, ops[0], text)):
        return shape
    if len(parts) == 2 and ops != ["!="] and _name(parts[0]) != _name(parts[1]):
        parts, ops = ([_MINUS_INFINITY, *parts], ["<", *ops]) if _name(parts[0]) else ([*parts, _INFINITY], [*ops, "<"])
    if len(parts) == 2:
        return Chain(text, _shapes(parts), op=ops[0])
    if len(parts) == 3 and _name(parts[1]) and set(ops) <= {"<", "<="}:
        kind = ("[" if ops[0] == "<=" else "(") + ("]" if ops[1] == "<=" else ")")
        return Group(text, _shapes(parts[::2]), kind=kind, name=plain(_strip(parts[1])))
    return None


def _excluded(parts: list[Tokens], text: str) -> Shape | None:
    """x != 0: two rays."""
    if _name(parts[0]) == _name(parts[1]):
        return None
    name, point = parts if _name(parts[0]) else reversed(parts)
    return _punctured((_shape(point),), text, plain(_strip(name)))


def _absolute(parts: list[Tokens], op: str, text: str) -> Shape | None:
    """|x| < 2: an interval; 2 < |x|: two rays."""
    inside = _between_bars(parts[0])
    name, bound = inside or _between_bars(parts[1]), parts[1] if inside else parts[0]
    if not name or any(token.text in "+-|" for token in bound):
        return None
    minus, kind = (Token(MARK, "-"), *bound), "[]" if op == "<=" else "()"
    if inside:
        return Group(text, _shapes([minus, bound]), kind=kind, name=name)
    left = Group(text, _shapes([_MINUS_INFINITY, minus]), kind="(" + kind[1], name=name)
    right = Group(text, _shapes([bound, _INFINITY]), kind=kind[0] + ")", name=name)
    return Several(text, (left, right), braced=True)


def _between_bars(tokens: Tokens) -> str:
    """The x of |x|."""
    bars = len(tokens) == 3 and tokens[0].text == tokens[2].text == "|" and tokens[1].kind == LETTER
    return tokens[1].text if bars and tokens[1].text not in _COMPLEX | _NOT_NAMES else ""


def _ratio(tokens: Tokens, text: str) -> Shape | None:
    """3:4 is 3/4; 10:30 is a time."""
    if not re.fullmatch(r"\d+:\d+", text) or re.fullmatch(r"\d{1,2}:\d\d", text):
        return None
    return Formula(text, quantity=quantity((tokens[0], Token(MARK, "/"), tokens[2])))


def _bracketed(tokens: Tokens, text: str) -> Shape | None:
    if len(tokens) < 2 or _closing(tokens) != len(tokens) - 1:
        return None
    brackets, inside = tokens[0].text + tokens[-1].text, tokens[1:-1]
    if brackets == r"\{\}" and inside and not any(token.text in ("|", ":", r"\emptyset") for token in inside):
        return Several(text, _values(_shape(inside)), braced=True)
    parts, separators = _split(inside, ",", ";")
    if not separators or not all(parts) or brackets not in ("()", "[]", "(]", "[)", r"\langle\rangle"):
        return None
    return Group(text, _shapes(parts), kind=brackets if len(parts) == 2 and brackets[0] != "\\" else "()")


def _matrix(tokens: Tokens, text: str) -> Shape | None:
    match = re.fullmatch(r"\\begin\{([pbvBV]?)(?:small)?matrix\}(.*)\\end\{\1(?:small)?matrix\}", text, re.S)
    if not match:
        return None
    rows = [_split(row, "&")[0] for row in _split(tokens[4:-4], r"\\")[0] if row]
    if not rows or not all(all(row) for row in rows) or len({len(row) for row in rows}) != 1:
        return Shape(text)
    bars, vector = match[1] in ("v", "V"), 1 in (len(rows), len(rows[0]))
    kind = "()" if vector and not bars else f"{'determinant' if bars else 'matrix'} of {len(rows)} rows"
    return Group(text, _shapes([entry for row in rows for entry in row]), kind=kind)


def _plus_minus(tokens: Tokens, text: str) -> Shape | None:
    places = [index for index, token in enumerate(tokens) if token.text in (r"\pm", r"\mp")]
    if len(places) != 1:
        return None
    before, after = tokens[: places[0]], tokens[places[0] + 1 :]
    plus = (*before, Token(MARK, "+"), *after) if before else after
    return Several(text, _shapes([plus, (*before, Token(MARK, "-"), *after)]))


def _choice(tokens: Tokens, text: str) -> Shape | None:
    if tokens and tokens[0].text.lower() in ("option", "choice", "answer") and len(tokens) > 1:
        tokens = tokens[1:]
    texts = [token.text for token in tokens]
    if len(texts) >= 3 and texts[0] == "(" and texts[2] == ")" and re.fullmatch("[A-Ja-j]", texts[1]):
        letter, rest = texts[1], tokens[3:]
    elif texts and re.fullmatch("[A-J]", texts[0]) and (len(texts) == 1 or texts[1] in (")", ".", ":")):
        letter, rest = texts[0], tokens[2:]
    else:
        return None
    if rest and rest[0].text in ("^", "_", "+", "-", "*", "/", "(", "!", "'"):  # (a)^2: a formula
        return None
    if _ANOTHER_CHOICE.search(plain(rest)):  # (A) 3 (B) 4
        return None
    return Choice(text, _shapes([rest] if rest else []), letter=letter.upper())


def _words(tokens: Tokens, text: str) -> Shape | None:
    kinds = {token.kind for token in tokens}
    if not kinds & {WORD, RUN} or kinds & {NUMBER, COMMAND}:
        return None
    marks = {token.text for token in tokens if token.kind == MARK}
    if not marks <= {"-", "'", "(", ")", ".", "and", "or", "&"} or WORD not in kinds and marks & {"-", "("}:
        return None  # abc - def, abc(d): letters
    spoken = "".join(" " * token.spaced + token.text for token in tokens)
    words = _ARTICLES.sub("", re.sub(r"[^a-z']+", " ", spoken.lower()).strip())
    words = re.sub(r"(?<=[a-z]{4})s\b", "", words)  # no solutions
    if words in _NUMERALS:
        return Formula(text, quantity=quantity((Token(NUMBER, str(_NUMERALS.index(words))),)))
    return Words(text, words=_SYNONYMS.get(words, words))
