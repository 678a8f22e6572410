"""A part of a report: tables, pictures and sentences, whatever they are put on."""

from collections.abc import Sequence
from dataclasses import dataclass

from agon_verl.report.pairs import Card
from agon_verl.report.picture import Picture


@dataclass(frozen=True)
class Table:
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str
    folded: bool = False


@dataclass(frozen=True)
class Section:
    """`caption` says in a sentence what to look for; `missing` what a run would need for this part."""

    key: str
    title: str
    caption: str
    missing: str
    pictures: Sequence[Picture | None] = ()
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()
    cards: Sequence[Card] = ()

    @property
    def drawn(self) -> list[Picture]:
        return [picture for picture in self.pictures if picture]

    @property
    def empty(self) -> bool:
        return not (self.drawn or self.tables or self.cards)


def signed(value: float) -> str:
    return f"{100 * value:+.1f}".replace("-", "−")
