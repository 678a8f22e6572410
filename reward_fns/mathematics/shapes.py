"""The shapes an answer can have; `shape` reads them, `equal` compares them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from reward_fns.mathematics.expression import Node, read
from reward_fns.mathematics.tokens import Tokens
from reward_fns.mathematics.units import Quantity


@dataclass(frozen=True)
class Shape:
    """`text` is the answer in one spelling: the same text is the same answer. A plain `Shape` is nothing but text."""

    text: str
    items: tuple["Shape", ...] = ()

    def formulas(self) -> Iterator[Tokens]:
        """Every formula in it."""
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
    """A letter of a multiple-choice question; the one item is what follows its label, as in "(B) 12"."""

    letter: str = field(kw_only=True)


@dataclass(frozen=True)
class Several(Shape):
    """Values or intervals in any order; `braced` for a set written as one, or a union."""

    braced: bool = False


@dataclass(frozen=True)
class Group(Shape):
    """Ordered items. `kind` is the brackets of a pair or interval, "()" for all other vectors, or says what it is.

    `name` is that of the inequality it was written as.
    """

    kind: str = field(kw_only=True)
    name: str = ""


@dataclass(frozen=True)
class Chain(Shape):
    """`names = items[0] = items[1] …`; without a name it is an equation, or with another `op` an inequality."""

    names: tuple[str, ...] = ()
    op: str = "="
