"""The report as one HTML page without external files.

Problems, completions and names are untrusted text. All of it is escaped, and a Content-Security-Policy in the page
forbids every request and every script except the one below, which is identified by its hash. Control characters,
invisible characters and direction marks are replaced by their code points.
"""

import base64
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from agon_verl.report.pairs import KINDS, Span
from agon_verl.report.section import Section

_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
)
_SURROGATE = re.compile("[\ud800-\udfff]")
_TEXT_COLUMNS = ("answers by", "data")  # left-aligned; numbers are right-aligned

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
    """Invisible characters as ⟨code point⟩, lone surrogates as U+FFFD."""
    text = _INVISIBLE.sub(lambda match: f"⟨{ord(match[0]):02X}⟩", text.replace("\r\n", "\n"))
    return _SURROGATE.sub("\ufffd", text)


def _visible_value(value: Any) -> Any:
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


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
        finalize=_visible_value,
    )
    return environment.get_template("report.html.jinja").render(
        title=title,
        facts=facts,
        sections=sections,
        kinds=KINDS,
        text_columns=_TEXT_COLUMNS,
        spans=_markup,
        inline=lambda picture: Markup(picture.inline()),
        script=Markup(SCRIPT),
        script_hash=base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode(),
    )
