r"""Two answers compared: shape by shape, and their formulas by form and value.

Three-valued. `True` and `False` are final and cost microseconds. `None` is "not without algebra": the parent process
stops there, and a worker compares again with `ask`, which decides pairs of formulas by math-verify.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction

from reward_fns.mathematics.algebra import readable
from reward_fns.mathematics.expression import read
from reward_fns.mathematics.form import done
from reward_fns.mathematics.formula import Tokens, is_rounded, near, proportional, same_percent, same_value
from reward_fns.mathematics.shape import shape
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
from reward_fns.mathematics.tokens import plain

Ask = Callable[[Tokens, Tokens], bool]

_DECIMAL = re.compile(r"-?\d{1,300}(?:\.\d{1,300})?", re.ASCII)
_MOST_ITEMS = 30  # that may need to be compared crosswise


class Unreadable(ValueError):
    """A reference that cannot be judged against: blank, or with braces that do not match."""


def equal(gold: str, answer: str, *, finished: bool = True, ask: Ask | None = None) -> bool | None:
    """Whether `answer` is the answer `gold`; `None` where only algebra can tell and there is none to `ask`.

    With `finished`, an answer has to be worked out as far as the reference is (see `form`).
    """
    theirs, ours = gold.strip(), answer.strip()
    if _DECIMAL.fullmatch(theirs) and _DECIMAL.fullmatch(ours):  # most pairs
        return Fraction(theirs) == Fraction(ours)
    return _Comparison(ask).same(reference(gold), shape(answer), finished)


def reference(gold: str) -> Shape:
    found = shape(gold)
    if not found.text or type(found) is Shape and gold.count("{") != gold.count("}"):
        raise Unreadable(f"ground truth {gold!r} cannot be read: give every row a reference answer in valid LaTeX")
    return found


def formulas(found: Shape) -> Iterable[Tokens]:
    """Every formula in a shape."""
    if isinstance(found, Formula):
        yield found.quantity.body
    for name in ("items", "parts", "values"):
        for part in getattr(found, name, ()):
            yield from formulas(part)
    for row in getattr(found, "rows", ()):
        for part in row:
            yield from formulas(part)
    for name in ("left", "right"):
        if isinstance(part := getattr(found, name, None), Shape):
            yield from formulas(part)


class _Comparison:
    def __init__(self, ask: Ask | None) -> None:
        self.ask = ask

    def same(self, gold: Shape, answer: Shape, finished: bool) -> bool | None:
        if gold.text == answer.text:
            return True
        if isinstance(gold, Chain) or isinstance(answer, Chain):
            return self.chains(gold, answer, finished)
        if isinstance(gold, Choice) or isinstance(answer, Choice):
            return self.choices(gold, answer, finished)
        if isinstance(gold, Several) or isinstance(answer, Several):
            return self.several(gold, answer, finished)
        if isinstance(gold, Words) and isinstance(answer, Words):
            return gold.words == answer.words
        if isinstance(gold, Union) and isinstance(answer, Union):
            return self.unordered(gold.parts, answer.parts, finished)
        if isinstance(gold, Group | Matrix) and isinstance(answer, Group | Matrix):
            return self.ordered(gold, answer, finished)
        if isinstance(gold, Relation) and isinstance(answer, Relation) and gold.op == answer.op:
            return proportional((gold.left, gold.right), (answer.left, answer.right), directed=gold.op != "!=")
        if isinstance(gold, Formula) and isinstance(answer, Formula):
            return self.formulas(gold, answer, finished)
        return False

    # -- shapes

    def chains(self, gold: Shape, answer: Shape, finished: bool) -> bool | None:
        """`x = 5` is 5, and y = 5 is another answer; an equation is answered by an equation.

        A reference that is solved for its name is answered only by what is solved: x = 5 not by 2x = 10, which may be
        the problem itself.
        """
        if isinstance(gold, Chain) and gold.names:
            if isinstance(answer, Chain):
                shared = bool(set(gold.names) & set(answer.names))
                return self.members(gold.values[-1], answer, finished) if shared else False
            return self.same(gold.values[-1], _unnamed(answer, set(gold.names)), finished)
        if isinstance(gold, Chain):
            if not isinstance(answer, Chain) or answer.names or answer.approximate or len(answer.values) != 2:
                return False
            return len(gold.values) == 2 and proportional(gold.values, answer.values, directed=False)
        assert isinstance(answer, Chain)
        return self.members(gold, answer, finished)

    def members(self, gold: Shape, chain: Chain, finished: bool) -> bool | None:
        """A chain is right if all of it is: `1 = 2 = 3` is not 3. Its last member has to be worked out."""
        *before, last = chain.values
        steps = [self.same(gold, value, False) for value in before]
        if not all(near(last, value) for value in chain.approximate):
            return False
        rounded = chain.approximate if is_rounded(gold, last) else ()
        ends = [self.same(gold, value, finished) for value in (last, *rounded)]
        return _all([*steps, True if True in ends else None if None in ends else False])

    def choices(self, gold: Shape, answer: Shape, finished: bool) -> bool | None:
        if isinstance(gold, Choice) and isinstance(answer, Choice):
            if gold.letter != answer.letter:
                return False
            return self.same(gold.rest, answer.rest, finished) if gold.rest and answer.rest else True
        if isinstance(gold, Choice):
            if gold.rest:
                return self.same(gold.rest, answer, finished)
            return gold.text.strip("()") == answer.text.strip("()")
        rest = answer.rest if isinstance(answer, Choice) else None
        return self.same(gold, rest, finished) if rest else False

    def several(self, gold: Shape, answer: Shape, finished: bool) -> bool | None:
        """In any order, unless they are named differently: a=3, b=5 and b=5, a=3 are 3, 5 and (3, 5), but not 5, 3.

        One value given twice, "3/8 or 37.5 %", is that value.
        """
        theirs, ours = _items(gold), _items(answer)
        if isinstance(answer, Several) and not answer.braced and not isinstance(gold, Several | Group):
            return _all(self.same(gold, item, finished) for item in answer.items)
        if theirs is None or ours is None or len(theirs) != len(ours):
            return False
        named, also_named = _names(theirs), _names(ours)
        if len(named) > 1 and len(also_named) > 1:
            return self.unordered(theirs, ours, finished)
        if len(named) > 1 or len(also_named) > 1:
            return _all(self.same(g, a, finished) for g, a in zip(_by_name(theirs), _by_name(ours), strict=True))
        if not all(isinstance(side, Several) or len(items) == 1 for side, items in ((gold, theirs), (answer, ours))):
            return False  # a pair is not a set
        if named and also_named and named != also_named:
            return False
        return self.unordered([_value(item) for item in theirs], [_value(item) for item in ours], finished)

    def unordered(self, theirs: Sequence[Shape], ours: Sequence[Shape], finished: bool) -> bool | None:
        """Whether the items can be paired off: surely, possibly (`None`) or not."""
        left = list(ours)
        rest = []
        for gold in theirs:  # most are written alike
            match = next((index for index, answer in enumerate(left) if answer.text == gold.text), None)
            if match is None:
                rest.append(gold)
            else:
                del left[match]
        if len(rest) != len(left) or len(rest) > _MOST_ITEMS:
            return False
        verdicts = [[self.same(gold, answer, finished) for answer in left] for gold in rest]
        if _pairs_off([[verdict is True for verdict in row] for row in verdicts]):
            return True
        return None if _pairs_off([[verdict is not False for verdict in row] for row in verdicts]) else False

    def ordered(self, gold: Shape, answer: Shape, finished: bool) -> bool | None:
        if isinstance(gold, Matrix) and isinstance(answer, Matrix):
            if gold.bars != answer.bars or [len(row) for row in gold.rows] != [len(row) for row in answer.rows]:
                return False
        elif isinstance(gold, Group) and isinstance(answer, Group):
            if gold.brackets != answer.brackets and (len(gold.items) == 2 or "::" in (gold.brackets, answer.brackets)):
                return False
            if gold.name and answer.name and gold.name != answer.name:
                return False
        elif not (_is_vector(gold) and _is_vector(answer)):
            return False
        theirs, ours = _entries(gold), _entries(answer)
        return len(theirs) == len(ours) and _all(self.same(g, a, finished) for g, a in zip(theirs, ours, strict=True))

    # -- formulas

    def formulas(self, gold: Formula, answer: Formula, finished: bool) -> bool | None:
        theirs, ours = gold.quantity, answer.quantity
        if theirs.base or ours.base:
            return theirs.base == ours.base and plain(theirs.body) == plain(ours.body)
        if theirs.unit and ours.unit and theirs.unit != ours.unit:
            return False
        if theirs.percent != ours.percent:
            return same_percent(theirs.body, ours.body) if theirs.percent else same_percent(ours.body, theirs.body)
        return self.values(theirs.body, ours.body, finished)

    def values(self, gold: Tokens, answer: Tokens, finished: bool) -> bool | None:
        if plain(gold) == plain(answer):
            return True
        theirs, ours = read(gold), read(answer)
        if finished and not done(theirs, ours, gold, answer):
            return False
        if theirs is not None and ours is not None:
            verdict = same_value(theirs, ours, gold, answer)
            if verdict is not None:
                return verdict
        if not (readable(gold) and readable(answer)):
            return False
        return self.ask(gold, answer) if self.ask else None


def _all(verdicts: Iterable[bool | None]) -> bool | None:
    unsure = False
    for verdict in verdicts:
        if verdict is False:
            return False
        unsure = unsure or verdict is None
    return None if unsure else True


def _items(found: Shape) -> tuple[Shape, ...] | None:
    if isinstance(found, Several) or isinstance(found, Group) and _is_vector(found):
        return found.items
    return (found,) if isinstance(found, Formula | Words) else None


def _names(items: Iterable[Shape]) -> set[str]:
    """The names of a list of solutions; x_1 and x_2 are both x."""
    return {name.partition("_")[0] for item in items if isinstance(item, Chain) for name in item.names}


def _by_name(items: Iterable[Shape]) -> list[Shape]:
    """The values, in the alphabetical order of their names: that of (x, y), (a, b, c) and (r, theta)."""

    def name(item: Shape) -> str:
        return item.names[0].lstrip("\\") if isinstance(item, Chain) and item.names else ""

    return [_value(item) for item in sorted(items, key=name)]


def _value(item: Shape) -> Shape:
    return item.values[0] if isinstance(item, Chain) and item.names and len(item.values) == 1 else item


def _unnamed(found: Shape, names: set[str]) -> Shape:
    if isinstance(found, Several) and _names(found.items) <= names:
        return Several(found.text, tuple(map(_value, found.items)), found.braced)
    return found


def _is_vector(found: Shape) -> bool:
    if isinstance(found, Matrix):
        return not found.bars and 1 in (len(found.rows), len(found.rows[0]))
    return isinstance(found, Group) and found.brackets == "()" and not found.name


def _entries(found: Shape) -> tuple[Shape, ...]:
    if isinstance(found, Matrix):
        return tuple(entry for row in found.rows for entry in row)
    return found.items if isinstance(found, Group) else ()


def _pairs_off(possible: list[list[bool]]) -> bool:
    """A perfect matching, by augmenting paths."""
    partner: dict[int, int] = {}

    def place(row: int, tried: set[int]) -> bool:
        for column, allowed in enumerate(possible[row]):
            if allowed and column not in tried:
                tried.add(column)
                if column not in partner or place(partner[column], tried):
                    partner[column] = row
                    return True
        return False

    return all(place(row, set()) for row in range(len(possible)))
