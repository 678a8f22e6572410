"""The shapes an answer can have; `shape` reads them, `equal` compares them."""

from dataclasses import dataclass

from reward_fns.mathematics.units import Quantity


@dataclass(frozen=True)
class Shape:
    """`text` is the answer in one spelling: the same text is the same answer. A plain `Shape` is nothing but text."""

    text: str


@dataclass(frozen=True)
class Formula(Shape):
    quantity: Quantity


@dataclass(frozen=True)
class Words(Shape):
    words: str


@dataclass(frozen=True)
class Choice(Shape):
    r"""A letter of a multiple-choice question; `rest` is what follows its label, as in "(B) 12"."""

    letter: str
    rest: Shape | None


@dataclass(frozen=True)
class Several(Shape):
    """`braced` for a set written as one."""

    items: tuple[Shape, ...]
    braced: bool = False


@dataclass(frozen=True)
class Group(Shape):
    """Ordered items between `(` or `[` and `)` or `]`; `name` is that of the inequality it was written as."""

    items: tuple[Shape, ...]
    brackets: str
    name: str = ""


@dataclass(frozen=True)
class Union(Shape):
    parts: tuple[Shape, ...]


@dataclass(frozen=True)
class Matrix(Shape):
    rows: tuple[tuple[Shape, ...], ...]
    bars: bool  # a determinant


@dataclass(frozen=True)
class Chain(Shape):
    """`names = values[0] = values[1] …`; without a name it is an equation. `approximate` are those after an ≈."""

    names: tuple[str, ...]
    values: tuple[Shape, ...]
    approximate: tuple[Shape, ...] = ()


@dataclass(frozen=True)
class Relation(Shape):
    """`left op right` for `<`, `<=` and `!=`; > is turned round."""

    left: Shape
    op: str
    right: Shape
