"""Fenced blocks: the ``` … ``` in which a completion puts a program.

An opening fence may be anywhere in a line (`<answer>```python` is common); the closing one starts its own line. A line
such as ```python inside an open block is part of that block. Only backticks count as fences.
"""

import re
from dataclasses import dataclass

_FENCE = re.compile(
    r"(?<!`)`{3,}+(?P<tag>[^\n`]*+)\n(?P<body>.*?)(?:(?P<closing>^[ \t]*+`{3,}+(?!\w))|\Z)", re.S | re.M
)


@dataclass(frozen=True, slots=True)
class Fence:
    """`text[start:end]` is the block with its fences; `closed` is false if the text ends inside it.

    `tag` is what follows the opening fence on its line: usually the language.
    """

    start: int
    end: int
    tag: str
    body: str
    closed: bool


def fences(text: str) -> list[Fence]:
    """Every fenced block in order; only the last can be unclosed."""
    return [
        Fence(m.start(), m.end(), m["tag"].strip(), m["body"], m["closing"] is not None) for m in _FENCE.finditer(text)
    ]
