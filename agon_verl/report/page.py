"""The same sections as one HTML page that needs nothing else, and as Markdown with its pictures beside it.

Problems, completions and names come from outside, and a completion may hold anything. In HTML all of it is escaped, and
a policy in the page forbids every request and every script but the one here, known by its hash. In Markdown it stands
in fences longer than any in it. What cannot be seen, or turns the direction of text, is shown as a sign.
"""

import base64
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from agon_verl.report.pairs import KINDS, Card, Span
from agon_verl.report.picture import Picture
from agon_verl.report.section import Section, Table

_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
)
_HALVES = re.compile("[\ud800-\udfff]")
_WORDS = ("answers by", "data")

SCRIPT = """
const bar = document.querySelector(".filter");
if (bar) {
  const cards = document.querySelectorAll(".card"), pick = bar.querySelector("select");
  let kind = "";
  const show = () => cards.forEach(c => c.hidden =
    (kind && c.dataset.kind !== kind) || (pick && pick.value && c.dataset.method !== pick.value));
  bar.hidden = false;
  if (pick) pick.addEventListener("change", show);
  bar.querySelectorAll("button").forEach(b => b.addEventListener("click", () => {
    kind = b.dataset.kind;
    bar.querySelectorAll("button").forEach(other => other.setAttribute("aria-pressed", other === b));
    show();
  }));
}
"""


def visible(text: str) -> str:
    """Control characters and others that are not seen by their numbers, halves of characters as what they are."""

    def sign(found: re.Match[str]) -> str:
        code = ord(found[0])
        return f"⟨{code:02X}⟩"

    return _HALVES.sub("\ufffd", _UNSEEN.sub(sign, text.replace("\r\n", "\n")))


def html(title: str, facts: Sequence[str], sections: Sequence[Section]) -> str:
    def seen(value: Any) -> Any:
        return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    def spans(given: Sequence[Span]) -> Markup:
        parts = [(escape(visible(span.text)), span.mark) for span in given]
        return Markup("").join(
            Markup('<span class="{}">{}</span>').format(mark, text) if mark else text for text, mark in parts
        )

    loader = FileSystemLoader(Path(__file__).parent)
    made = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=seen
    )
    return made.get_template("report.html.jinja").render(
        title=title,
        facts=facts,
        sections=sections,
        kinds=KINDS,
        words=_WORDS,
        spans=spans,
        inline=lambda picture: Markup(picture.inline()),
        script=Markup(SCRIPT),
        script_hash=base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode(),
    )


def markdown(title: str, facts: Sequence[str], sections: Sequence[Section], folder: str) -> str:
    parts = [f"# {_md(title)}", *(_md(fact) for fact in facts)]
    for section in sections:
        parts += [f"## {section.title}", _md(section.missing if section.empty else section.caption)]
        if not section.empty:
            parts += [_image(picture, folder) for picture in section.drawn]
            parts += [_table(given) for given in section.tables]
            parts += [_card(card) for card in _first_of_each(section.cards)]
            parts += ["\n".join(f"- {_md(note)}" for note in section.notes)] if section.notes else []
    return "\n\n".join(parts) + "\n"


def _md(text: str) -> str:
    """On one line, with nothing in it that means something to Markdown or HTML."""
    text = " ".join(visible(text).split()).replace("&", "&amp;")
    return re.sub(r"([\\`*_\[\]<>|~#])", r"\\\1", text)


def _image(picture: Picture, folder: str) -> str:
    caption = f"\n\n{_md(picture.caption)}" if picture.caption else ""
    return f"![{_md(picture.title)}]({folder}/{picture.name}.svg){caption}"


def _table(given: Table) -> str:
    lines = [given.head, ["---", *("---" if name in _WORDS else "---:" for name in given.head[1:])]]
    text = "\n".join(
        "| " + " | ".join(cell if i == 1 else _md(cell) for cell in row) + " |"
        for i, row in enumerate([*lines, *given.rows])
    )
    title = _md(given.title)
    return f"<details><summary>{title}</summary>\n\n{text}\n\n</details>" if given.folded else f"### {title}\n\n{text}"


def _first_of_each(cards: Sequence[Card]) -> list[Card]:
    """A file is for reading through: one pair of each kind, where the page has more."""
    return list({card.kind: card for card in reversed(cards)}.values())[::-1]


def _card(card: Card) -> str:
    def verdict(right: bool) -> str:
        return "right" if right else "wrong"

    def text(spans: Sequence[Span]) -> str:
        return "".join(f"[{span.text}]" if span.text == "answer withheld" else span.text for span in spans)

    shown = _fence(text(card.shown)) if card.shown else "No solution: the draft has no summary."
    return "\n\n".join(
        [
            f"### {KINDS[card.kind].capitalize()}: {_md(card.run)}, step {card.step}",
            f"Problem (reference answer: {_md(card.truth)}):",
            _fence(card.problem),
            f"Draft of {_md(card.drafter)}, {verdict(card.draft_right)} ({card.draft_facts}):",
            _fence(text(card.draft)),
            f"What {_md(card.challenger)} saw of it:",
            shown,
            f"Challenge of {_md(card.challenger)}, {verdict(card.challenge_right)} ({card.challenge_facts}):",
            _fence(text(card.challenge)),
        ]
    )


def _fence(text: str) -> str:
    text = visible(text)
    ticks = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{ticks}text\n{text}\n{ticks}"
