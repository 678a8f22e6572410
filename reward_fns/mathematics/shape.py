r"""The shape of an answer: what it is a list, a set, a pair or an equation of, before any value is looked at.

Most wrong accepts of symbolic graders are confusions of shape: a set for a pair, the last member of a chain of
equalities for all of it, two answers where one was asked. Here the shape is read first and only its members are ever
compared as values.

    3, 5, 7     1 \pm 2     x=1 or x=2      several values, in any order
    \{3, 5\}                                a set
    (3, 5)   [3, 5)   x > 5                 an ordered group: pair, interval, ray
    [1,2] \cup [3,4]                        a union of such
    \begin{pmatrix} … \end{pmatrix}         a matrix
    x = 5   f(x) = 2x + 1   5 = 2 + 3       a chain of equalities, with the names it starts with
    x + y < 5                               any other relation
    (B)   yes   no solution                 a choice, words
    12 cm                                   a formula with what stands around it
"""

import re
from functools import lru_cache

from reward_fns.mathematics.shapes import (
    Chain,
    Choice,
    Formula,
    Group,
    Matrix,
    Relation,
    Several,
    Shape,
    Union,
    Words,
)
from reward_fns.mathematics.tokens import COMMAND, MARK, NUMBER, RUN, WORD, Token, plain, tokenize
from reward_fns.mathematics.units import quantity

Tokens = tuple[Token, ...]


_OPEN, _CLOSE = ("(", "[", "{", r"\{", r"\langle", r"\begin"), (")", "]", "}", r"\}", r"\rangle", r"\end")
_PARTNER = {"(": ")", "[": "]", r"\{": r"\}", r"\langle": r"\rangle", "{": "}"}
_DEEPEST = 30
_SEPARATORS = frozenset((",", ";", "or", "and"))
_INEQUALITIES = {"<": "<", "<=": "<=", ">": "<", ">=": "<="}
_RELATIONS = frozenset(("=", r"\approx", "!=", *_INEQUALITIES))
_PREFIX = re.compile(
    r"^\W*(?:(?:so|thus|therefore|hence),? )?(?:the )?(?:(?:final |correct )?answer(?: is|:)|final answer)[:\s]*", re.I
)
_SYNONYMS = {
    "true": "yes", "false": "no", "dne": "does not exist", "limit does not exist": "does not exist",
    r"\emptyset": "no solution", r"\{\}": "no solution", "empty set": "no solution",
    "infinitely many solution": "infinitely many", "all real": r"\mathbb R", "all real number": r"\mathbb R",
}  # fmt: skip
_NUMERALS = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
    seventeen eighteen nineteen twenty""".split()
_ARTICLES = re.compile(r"^(?:the|a|an|it is|it's) ")


def shape(answer: str) -> Shape:
    """Read an answer. Never fails: what cannot be read is text."""
    return _remembered(answer) if len(answer) <= _SHORT else _read(answer)


def _read(answer: str) -> Shape:
    tokens = tokenize(_PREFIX.sub("", answer, count=1))
    try:
        return _shape(tokens)
    except RecursionError:  # A. A. A. …
        return Shape(plain(tokens))


_remembered = lru_cache(maxsize=1024)(_read)
_SHORT = 100  # characters: what is remembered must stay small


def _shape(tokens: Tokens) -> Shape:
    tokens = _strip(tokens)
    text = plain(tokens)
    if not _balanced(tokens):
        return _choice(tokens, text) or Shape(text)  # B) 12
    for read in (_several, _union, _relation, _reals, _ratio, _bracketed, _matrix, _plus_minus, _choice, _words):
        if (found := read(tokens, text)) is not None:
            return found
    return Formula(text, quantity(tokens))


def _strip(tokens: Tokens) -> Tokens:
    """Without braces around the whole, and without a comma or full stop behind it."""
    while tokens and tokens[-1].text in (",", ";", "."):
        tokens = tokens[:-1]
    while len(tokens) > 1 and tokens[0].text == "{" and _closing(tokens, 0) == len(tokens) - 1:
        tokens = tokens[1:-1]
    return tokens


def _balanced(tokens: Tokens) -> bool:
    depth = 0
    for token in tokens:
        depth += (token.text in _OPEN) - (token.text in _CLOSE)
        if not 0 <= depth <= _DEEPEST:
            return False
    return depth == 0


def _closing(tokens: Tokens, start: int) -> int:
    depth = 0
    for index in range(start, len(tokens)):
        depth += (tokens[index].text in _OPEN) - (tokens[index].text in _CLOSE)
        if not depth:
            return index
    return -1


def _split(tokens: Tokens, separators: frozenset[str]) -> tuple[list[Tokens], list[str]]:
    """The parts between separators outside all brackets, and the separators."""
    parts, found, depth, start = [], [], 0, 0
    for index, token in enumerate(tokens):
        depth += (token.text in _OPEN) - (token.text in _CLOSE)
        if not depth and token.text in separators and token.kind in (MARK, COMMAND):
            parts.append(tokens[start:index])
            found.append(token.text)
            start = index + 1
    return [*parts, tokens[start:]], found


def _several(tokens: Tokens, text: str) -> Shape | None:
    parts, separators = _split(tokens, _SEPARATORS)
    if not separators:
        return None
    items = tuple(_shape(part) for part in parts if part)  # "2, and 3" has an empty part
    if len(items) == 1:
        return items[0]
    if all(isinstance(item, Group) and item.name for item in items) and set(separators) <= {"or"}:
        return Union(text, items)
    # 1 ± 2, 5 is three values
    return Several(text, tuple(inner for item in items for inner in _values(item)))


def _values(item: Shape) -> tuple[Shape, ...]:
    return item.items if isinstance(item, Several) and not item.braced else (item,)


def _union(tokens: Tokens, text: str) -> Shape | None:
    tokens = tuple(
        token._replace(text=r"\cup", kind=COMMAND) if token.text == "U" and 0 < index < len(tokens) - 1
        and tokens[index - 1].text in _CLOSE and tokens[index + 1].text in _OPEN else token
        for index, token in enumerate(tokens)
    )  # fmt: skip
    parts, found = _split(tokens, frozenset((r"\cup",)))
    return Union(plain(tokens), tuple(map(_shape, parts))) if found else None


def _relation(tokens: Tokens, text: str) -> Shape | None:
    members, found = _split(tokens, frozenset((r"\in",)))
    if len(found) == 1 and _name(members[0]):
        return _shape(members[1])
    parts, ops = _split(tokens, _RELATIONS)
    if not ops:
        return None
    if not all(parts):
        return Shape(text)
    if set(ops) <= {"=", r"\approx"}:
        return _chain(parts, ops, text)
    return _inequality(parts, ops, text) or Shape(text)


def _chain(parts: list[Tokens], ops: list[str], text: str) -> Shape:
    if len(parts) == 2 and _name(parts[1]) and not _name(parts[0]):  # 5 = x
        parts = parts[::-1]
    first = 0
    while first < len(ops) and _name(parts[first]):
        first += 1
    behind = list(zip(parts[first:], ["=", *ops[first:]], strict=True))
    exact = [part for part, op in behind if op == "="]
    near = [part for part, op in behind if op != "="]
    names = tuple(plain(_strip(part)) for part in parts[:first])
    return Chain(text, names, tuple(map(_shape, exact)), tuple(map(_shape, near)))


_INFINITY = (Token(COMMAND, r"\infty", False),)
_MINUS_INFINITY = (Token(MARK, "-", False), *_INFINITY)
_SUBSCRIPT = r"(?:_\{?[\w,+-]+\}?)?"
_NAME = re.compile(
    rf"(?:m?\\angle|\\overline|\\triangle|\\vec)? ?\{{?(?:[A-Za-z]|[A-Z]{{2,3}}|\\[a-z]+)\}}?'*{_SUBSCRIPT}"
    r"(?:\([a-z](?:,[a-z])*\))?"
    rf"|\([a-z]{_SUBSCRIPT}(?:,[a-z]{_SUBSCRIPT})+\)"
)
_NOT_NAMES = frozenset((r"\pi", r"\infty", "e", "i"))


def _name(tokens: Tokens) -> bool:
    r"""A left side that only names what follows: x, x_1, f(x), (x, y), AB, \angle ABC, "area"."""
    if tokens and all(token.kind in (WORD, RUN) for token in tokens):
        return True
    return bool(_NAME.fullmatch(plain(_strip(tokens)))) and not any(token.text in _NOT_NAMES for token in tokens)


def _inequality(parts: list[Tokens], ops: list[str], text: str) -> Shape | None:
    """`a < x <= b` and `x > a` are intervals; with anything but a bare name in them they are relations."""
    if ops == ["!="]:
        if _name(parts[0]):
            return _all_but(parts[1], text)
        return Relation(text, _shape(parts[0]), "!=", _shape(parts[1]))
    if any(op not in _INEQUALITIES for op in ops):
        return None
    if all(op in (">", ">=") for op in ops):  # from small to large
        parts, ops = parts[::-1], ops[::-1]
    elif not all(op in ("<", "<=") for op in ops):
        return None
    ops = [_INEQUALITIES[op] for op in ops]
    if len(parts) == 2 and _name(parts[0]) and not _name(parts[1]):
        parts, ops = [_MINUS_INFINITY, *parts], ["<", *ops]
    elif len(parts) == 2 and _name(parts[1]) and not _name(parts[0]):
        parts, ops = [*parts, _INFINITY], [*ops, "<"]
    if len(parts) == 3 and _name(parts[1]):
        brackets = ("[" if ops[0] == "<=" else "(") + ("]" if ops[1] == "<=" else ")")
        return Group(text, (_shape(parts[0]), _shape(parts[2])), brackets, plain(_strip(parts[1])))
    if len(parts) == 2:
        return Relation(text, _shape(parts[0]), ops[0], _shape(parts[1]))
    return None


def _all_but(value: Tokens, text: str) -> Shape:
    """x ≠ a is (-∞, a) ∪ (a, ∞)."""
    below, above = (_MINUS_INFINITY, value), (value, _INFINITY)
    return Union(text, tuple(Group("", tuple(map(_shape, ends)), "()") for ends in (below, above)))


def _reals(tokens: Tokens, text: str) -> Shape | None:
    """All real numbers, or all but one."""
    if text == r"\mathbb R":
        return Group(text, (_shape(_MINUS_INFINITY), _shape(_INFINITY)), "()")
    if re.fullmatch(r"\\mathbb R(?:\\setminus|-)\\\{[^,;]+\\\}", text):
        start = next(index for index, token in enumerate(tokens) if token.text == r"\{")
        return _all_but(tokens[start + 1 : -1], text)
    return None


def _ratio(tokens: Tokens, text: str) -> Shape | None:
    """3:4 is 3/4, 1:2:3 is ordered; 10:30 is a time."""
    parts, found = _split(tokens, frozenset(":"))
    if not found or any(token.kind != NUMBER for part in parts for token in part):
        return None
    if not all(parts) or re.fullmatch(r"\d{1,2}:\d\d", text):
        return Shape(text)
    if len(parts) > 2:
        return Group(text, tuple(map(_shape, parts)), "::")
    return Formula(text, quantity((*parts[0], Token(MARK, "/", False), *parts[1])))


def _bracketed(tokens: Tokens, text: str) -> Shape | None:
    if len(tokens) < 2 or tokens[0].text not in _PARTNER or _closing(tokens, 0) != len(tokens) - 1:
        return None
    opening, closing = tokens[0].text, tokens[-1].text
    parts, separators = _split(tokens[1:-1], frozenset((",", ";")))
    if opening == r"\{" and closing == r"\}":
        if not tokens[1:-1] or any(token.text in ("|", ":") for token in tokens):  # empty; set-builder notation
            return Words(text, _SYNONYMS.get(text, text))
        return Several(text, _values(_shape(tokens[1:-1])), braced=True)
    if not separators or not all(parts):
        return None
    if opening in "([" and closing in ")]":
        return Group(text, tuple(map(_shape, parts)), opening + closing)
    return Group(text, tuple(map(_shape, parts)), "()") if opening == r"\langle" and closing == r"\rangle" else None


def _matrix(tokens: Tokens, text: str) -> Shape | None:
    match = re.fullmatch(r"\\begin\{([pbvBV]?)(?:small)?matrix\}(.*)\\end\{\1(?:small)?matrix\}", text, re.S)
    if not match:
        return None
    inside = tokens[4:-4]
    rows = [_split(row, frozenset("&"))[0] for row in _split(inside, frozenset((r"\\",)))[0] if row]
    if not rows or not all(all(row) for row in rows) or len({len(row) for row in rows}) != 1:
        return Shape(text)
    return Matrix(text, tuple(tuple(map(_shape, row)) for row in rows), match[1] in ("v", "V"))


def _plus_minus(tokens: Tokens, text: str) -> Shape | None:
    places = [index for index, token in enumerate(tokens) if token.text in (r"\pm", r"\mp")]
    if len(places) != 1:
        return None
    at = places[0]
    signs = (tokens[:at] + (Token(MARK, sign, False),) + tokens[at + 1 :] for sign in "+-")
    return Several(text, tuple(_shape(signed[1:] if signed[0].text == "+" else signed) for signed in signs))


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
    following = _shape(rest) if rest else None
    return None if isinstance(following, Choice) else Choice(text, letter.upper(), following)


def _words(tokens: Tokens, text: str) -> Shape | None:
    if text in _SYNONYMS:
        return Words(text, _SYNONYMS[text])
    if not any(token.kind in (WORD, RUN) for token in tokens):
        return None
    if any(token.kind in (NUMBER, COMMAND) for token in tokens):
        return None
    if any(token.kind == MARK and token.text not in ("-", "'", "(", ")", ".", "and", "or", "&") for token in tokens):
        return None
    if not any(token.kind == WORD for token in tokens) and any(token.text in ("-", "(") for token in tokens):
        return None  # abc - def, abc(d): letters
    words = _ARTICLES.sub("", re.sub(r"[^a-z']+", " ", text.lower()).strip())
    words = re.sub(r"(?<=[a-z]{4})s\b", "", words)  # no solutions
    if words in _NUMERALS:
        return Formula(text, quantity((Token(NUMBER, str(_NUMERALS.index(words)), False),)))
    words = _SYNONYMS.get(words, words)
    return _reals((), words) or Words(text, words)
