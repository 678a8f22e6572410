r"""Boxes: `\boxed{…}` and `\fbox{…}`, the marks that mathematical text puts around a final answer.

Braces nest, so they are counted. An escaped brace (`\{`) is a printed character and does not count; a line break
(`\\`) does not escape what follows it. All boxes are read in one pass over the text: a model stuck in a loop writes
thousands of boxes that never close, and scanning ahead from each of them would take minutes.
"""

import re
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"(?P<box>\\(?:boxed|fbox)\s*\{)|(?P<escaped>\\\\(?!boxed|fbox)|\\[{}])|(?P<open>\{)|(?P<close>\})", re.ASCII
)


@dataclass(frozen=True, slots=True)
class Box:
    """`text[start:end]` is the box with its command and braces.

    The content is cut out when it is read: boxes nest, and thousands of them would hold thousands of copies.
    """

    text: str = field(repr=False)
    start: int
    inner: int  # where the content starts; it ends before the last brace
    end: int

    @property
    def content(self) -> str:
        return self.text[self.inner : self.end - 1]


def boxes(text: str) -> list[Box]:
    """Every balanced box, ordered by start: an inner box comes after its outer one. Open ones do not count."""
    closed: list[Box] = []
    unclosed: list[tuple[int, int] | None] = []  # (start of the box, start of its content); None for a plain brace
    first = min((start for start in map(text.find, (r"\boxed", r"\fbox")) if start >= 0), default=len(text))
    for token in _TOKEN.finditer(text, first):
        if token["box"]:
            unclosed.append((token.start(), token.end()))
        elif token["open"]:
            unclosed.append(None)
        elif token["close"] and unclosed and (box := unclosed.pop()):
            closed.append(Box(text, *box, token.end()))
    return sorted(closed, key=lambda box: box.start)
