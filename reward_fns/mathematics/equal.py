r"""Two answers compared by shape, and their formulas by form and value.

The result has three values. `True` and `False` are final and take microseconds. `None` means that algebra is needed: a
worker process then compares again with `decide`, which compares pairs of formulas by math-verify.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import TypeGuard

from agon_verl.errors import AgonError
from reward_fns.mathematics.algebra import readable
from reward_fns.mathematics.expression import Node
from reward_fns.mathematics.formula import done, proportional, same_percent, same_value
from reward_fns.mathematics.shape import Chain, Choice, Formula, Group, Several, Shape, Words, read_shape, without_label
from reward_fns.mathematics.tokens import Tokens, plain

Decide = Callable[[Tokens, Tokens], bool]

_DECIMAL = re.compile(r"-?\d{1,300}(?:\.\d{1,300})?", re.ASCII)
_MOST_ITEMS = 30  # of a list whose items are compared each with each


class UnreadableReference(AgonError, ValueError):
    """A reference that no answer can be compared with: blank, or with unbalanced braces."""


def equal(gold: str, answer: str, *, finished: bool = True, decide: Decide | None = None) -> bool | None:
    """Whether `answer` equals the reference `gold`; `None` if algebra is needed and there is no `decide`.

    With `finished`, an answer must be evaluated as far as the reference (see `formula`).
    """
    theirs, ours = gold.strip(), answer.strip()
    if _DECIMAL.fullmatch(theirs) and _DECIMAL.fullmatch(ours):  # most pairs
        return Fraction(theirs) == Fraction(ours)
    wanted, stated = reference(gold), read_shape(answer)
    if not isinstance(wanted, Chain):
        stated = without_label(stated)
    return _Comparison(decide).same(wanted, stated, finished)


def reference(gold: str) -> Shape:
    shape = read_shape(gold)
    if not shape.text or type(shape) is Shape and gold.count("{") != gold.count("}"):
        raise UnreadableReference(f"ground truth {gold!r} is not valid LaTeX: correct it or remove the row")
    return shape


class _Comparison:
    def __init__(self, decide: Decide | None) -> None:
        self.decide = decide

    def same(self, gold: Shape, answer: Shape, finished: bool) -> bool | None:
        if gold.text == answer.text:
            return True
        for kind, compare in ((Chain, self.chains), (Choice, self.choices), (Several, self.several)):
            if isinstance(gold, kind) or isinstance(answer, kind):
                return compare(gold, answer, finished)
        if isinstance(gold, Words) and isinstance(answer, Words):
            return gold.words == answer.words
        if isinstance(gold, Group) and isinstance(answer, Group):
            if gold.kind != answer.kind or gold.name and answer.name and gold.name != answer.name:
                return False
            return self.ordered(gold.items, answer.items, finished)
        if isinstance(gold, Formula) and isinstance(answer, Formula):
            return self.formulas(gold, answer, finished)
        return False

    # -- shapes

    def chains(self, gold: Shape, answer: Shape, finished: bool) -> bool | None:
        """`x = 5` equals 5 but not y = 5; an equation is answered by an equation.

        A reference solved for its name needs a solved answer: x = 5 does not equal 2x = 10, which may be the problem.
        """
        if not isinstance(gold, Chain):
            assert isinstance(answer, Chain)
            return answer.op == "=" and self.members(gold, answer, finished)
        if not gold.names:
            if not isinstance(answer, Chain) or answer.names or answer.op != gold.op:
                return False
            sides = [[_tree(item) for item in chain.items] for chain in (gold, answer)]
            return proportional(*sides, directed="<" in gold.op)
        if isinstance(answer, Chain):
            return bool(set(gold.names) & set(answer.names)) and self.members(gold.items[-1], answer, finished)
        if isinstance(answer, Several) and _names(answer.items) <= set(gold.names):
            answer = Several(answer.text, _unnamed(answer.items), answer.braced)
        return self.same(gold.items[-1], answer, finished)

    def members(self, gold: Shape, chain: Chain, finished: bool) -> bool | None:
        """All members of a chain must be correct: `1 = 2 = 3` is not 3. Only the last must be evaluated."""
        *before, last = chain.items
        return _all([*(self.same(gold, value, False) for value in before), self.same(gold, last, finished)])

    def choices(self, gold: Shape, answer: Shape, finished: bool) -> bool | None:
        """A letter is compared alone unless a value follows on both sides. A value is correct with any letter."""
        if isinstance(gold, Choice) and isinstance(answer, Choice):
            follows = self.ordered(gold.items, answer.items, finished) if gold.items and answer.items else True
            return gold.letter == answer.letter and follows
        if isinstance(gold, Choice) and not gold.items:
            return gold.text.strip("()") == answer.text.strip("()")
        theirs, ours = (side.items if isinstance(side, Choice) else (side,) for side in (gold, answer))
        return self.ordered(theirs, ours, finished)

    def several(self, gold: Shape, answer: Shape, finished: bool) -> bool | None:
        """In any order, unless the names differ: a=3, b=5 and b=5, a=3 equal 3, 5 and (3, 5), but not 5, 3.

        One value in two forms, "3/8 or 37.5 %", is that value.
        """
        theirs, ours = _items(gold), _items(answer)
        if isinstance(answer, Several) and not answer.braced and not isinstance(gold, Several | Group):
            return len(_names(ours)) < 2 and _all(self.same(gold, item, finished) for item in ours)
        if len(theirs) != len(ours):
            return False
        named, also_named = _names(theirs), _names(ours)
        if len(named) > 1 and len(also_named) > 1:
            return self.unordered(theirs, ours, finished)
        if len(named) > 1 or len(also_named) > 1:
            return self.ordered(_by_name(theirs), _by_name(ours), finished)
        if len(theirs) > 1 and not (isinstance(gold, Several) and isinstance(answer, Several)):
            return False  # a pair is not a set
        if named and also_named and named != also_named:
            return False
        return self.unordered(_unnamed(theirs), _unnamed(ours), finished)

    def unordered(self, theirs: Sequence[Shape], ours: Sequence[Shape], finished: bool) -> bool | None:
        """Whether the items can be matched one to one."""
        theirs, ours = _beyond(theirs, ours), _beyond(ours, theirs)  # most have the same spelling
        if len(theirs) != len(ours) or len(theirs) > _MOST_ITEMS:
            return False
        for gold in theirs:
            verdicts = [self.same(gold, answer, finished) for answer in ours]
            if True not in verdicts:
                return None if None in verdicts else False
            del ours[verdicts.index(True)]
        return True

    def ordered(self, theirs: Sequence[Shape], ours: Sequence[Shape], finished: bool) -> bool | None:
        if len(theirs) != len(ours):
            return False
        return _all(self.same(gold, answer, finished) for gold, answer in zip(theirs, ours, strict=True))

    # -- formulas

    def formulas(self, gold: Formula, answer: Formula, finished: bool) -> bool | None:
        theirs, ours = gold.quantity, answer.quantity
        if theirs.unit and ours.unit and theirs.unit != ours.unit:
            return False
        if theirs.percent != ours.percent:
            return same_percent(*((gold.tree, answer.tree) if theirs.percent else (answer.tree, gold.tree)))
        if plain(theirs.body) == plain(ours.body):
            return True
        if finished and not done(gold.tree, answer.tree, theirs.body, ours.body):
            return False
        verdict = same_value(gold.tree, answer.tree)
        if verdict is not None:
            return verdict
        if not (readable(theirs.body) and readable(ours.body)):
            return False
        return self.decide(theirs.body, ours.body) if self.decide else None


def _all(verdicts: Iterable[bool | None]) -> bool | None:
    unsure = False
    for verdict in verdicts:
        if verdict is False:
            return False
        unsure = unsure or verdict is None
    return None if unsure else True


def _tree(side: Shape) -> Node | None:
    return side.tree if isinstance(side, Formula) and not side.quantity.unit else None


def _items(shape: Shape) -> tuple[Shape, ...]:
    """Of a list, a set or a vector; anything else is one item."""
    is_vector = isinstance(shape, Group) and shape.kind == "()" and not shape.name
    return shape.items if isinstance(shape, Several) or is_vector else (shape,)


def _names(items: Iterable[Shape]) -> set[str]:
    """The names of a list of solutions; x_1 and x_2 are both x."""
    return {name.partition("_")[0] for item in items if isinstance(item, Chain) for name in item.names}


def _by_name(items: Iterable[Shape]) -> tuple[Shape, ...]:
    """The values, in the alphabetical order of their names: that of (x, y), (a, b, c) and (r, theta)."""

    return _unnamed(sorted(items, key=lambda item: item.names[0].lstrip("\\") if _is_named(item) else ""))


def _is_named(item: Shape) -> TypeGuard[Chain]:
    return isinstance(item, Chain) and bool(item.names)


def _unnamed(items: Iterable[Shape]) -> tuple[Shape, ...]:
    return tuple(item.items[0] if _is_named(item) and len(item.items) == 1 else item for item in items)


def _beyond(items: Sequence[Shape], others: Sequence[Shape]) -> list[Shape]:
    """The items whose text is not among the others."""
    texts = Counter(other.text for other in others)
    rest = []
    for item in items:
        if texts[item.text] > 0:
            texts[item.text] -= 1
        else:
            rest.append(item)
    return rest
