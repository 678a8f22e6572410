"""Fenced blocks: the ``` … ``` in which a completion puts a program.

An opening fence may be anywhere in a line (`<answer>```python` is common); the closing one starts its own line. A line
such as ```python inside an open block is part of that block. Only backticks count as fences.

In a list a block is indented like the text of its item, and that indentation is no part of the program. As in Markdown,
as much is removed as the fences are indented, but not more than the first line of the body is: a model may indent the
fences alone.
"""

import os
import re
from dataclasses import dataclass

_FENCE = re.compile(
    r"(?<!`)`{3,}+(?P<tag>[^\n`]*+)\n(?P<body>.*?)(?:(?P<closing>^[ \t]*+)`{3,}+(?!\w)|\Z)", re.S | re.M
)
# Indentation, and perhaps the marker of a list item.
_LEAD = re.compile(r"[ \t]*+(?:(?:[-*+]|[0-9]{1,9}[.)])[ \t]++)?+")
_FIRST_LINE = re.compile(r"^[ \t]*+(?=\S)", re.M)


@dataclass(frozen=True, slots=True)
class Fence:
    """`text[start:end]` is the block with its fences; `closed` is false if the text ends inside it.

    `tag` is what follows the opening fence on its line: usually the language. `body` is without the fences'
    indentation.
    """

    start: int
    end: int
    tag: str
    body: str
    closed: bool


def fences(text: str) -> list[Fence]:
    """Every fenced block in order; only the last can be unclosed."""
    return [
        Fence(m.start(), m.end(), m["tag"].strip(), _dedent(m), m["closing"] is not None) for m in _FENCE.finditer(text)
    ]


def _dedent(block: re.Match[str]) -> str:
    body = block["body"]
    before = block.string[block.string.rfind("\n", 0, block.start()) + 1 : block.start()]
    opening = re.sub(r"[^\t]", " ", before) if _LEAD.fullmatch(before) else ""
    # The closing fence counts too: where a summary begins with a block, its first indentation was stripped.
    indent = max(opening, block["closing"] or "", key=len)
    first = _FIRST_LINE.search(body)
    margin = os.path.commonprefix([indent, first[0] if first else ""])
    return ("\n" + body).replace("\n" + margin, "\n")[1:] if margin else body
