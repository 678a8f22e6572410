"""The report as one HTML page without external files.

Problems, completions and names are untrusted text. All of it is escaped, and a Content-Security-Policy in the page
forbids every request and every script except the template's own, which is identified by its hash. Control characters,
invisible characters and direction marks are replaced by their code points.
"""

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from agon_verl.report.pairs import KINDS, Card, Span
from agon_verl.report.picture import Picture

_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
)
_SURROGATE = re.compile("[\ud800-\udfff]")
_TEXT_COLUMNS = ("answers by", "data", "command", "log")  # left-aligned; numbers are right-aligned


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


def visible(value: Any) -> Any:
    """A text with invisible characters as ⟨code point⟩ and lone surrogates as U+FFFD; other values as they are."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    text = _INVISIBLE.sub(lambda match: f"⟨{ord(match[0]):02X}⟩", value.replace("\r\n", "\n"))
    return _SURROGATE.sub("\ufffd", text)


def _markup(spans: Sequence[Span]) -> Markup:
    texts = [(escape(visible(span.text)), span.mark) for span in spans]
    return Markup("").join(
        Markup('<span class="{}">{}</span>').format(mark, text) if mark else text for text, mark in texts
    )


def html(title: str, facts: Sequence[str], sections: Sequence[Section]) -> str:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=visible,
    )
    return environment.get_template("report.html.jinja").render(
        title=title,
        facts=facts,
        sections=sections,
        kinds=KINDS,
        text_columns=_TEXT_COLUMNS,
        spans=_markup,
        digest=lambda script: base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )
