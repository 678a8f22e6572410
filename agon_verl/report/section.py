"""One section of a report: pictures, tables, pairs and notes."""

from collections.abc import Sequence
from dataclasses import dataclass

from agon_verl.report.pairs import Card
from agon_verl.report.picture import Picture


@dataclass(frozen=True)
class SectionTable:
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str
    folded: bool = False


@dataclass(frozen=True)
class Section:
    """`caption` tells the reader what to look for; `missing` what a run needs for this section."""

    key: str
    title: str
    caption: str
    missing: str
    pictures: Sequence[Picture] = ()
    tables: Sequence[SectionTable] = ()
    notes: Sequence[str] = ()
    cards: Sequence[Card] = ()

    @property
    def empty(self) -> bool:
        return not (self.pictures or self.tables or self.cards)


def signed(value: float) -> str:
    return f"{100 * value:+.1f}".replace("-", "−")
