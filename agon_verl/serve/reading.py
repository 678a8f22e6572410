"""A completion taken apart while it is written: its reasoning, then its content, cut at a stop string.

The reasoning is what a first block holds: one that the chat template opened, or that the completion begins with. It
ends at the first closing tag, for nobody can know of a stream that another will follow; game/transcript.py, which has
the whole text, takes the last. Everything after it is content, tags and all, so a verifier that is given the content
finds the same answer in it, unless it breaks off inside a second block. White space at the start of either is dropped.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

Part = Literal["reasoning_content", "content"]


class Reading:
    """Told the pieces as they come; a tag or stop string may arrive in any number of them."""

    def __init__(self, tags: tuple[str, str], opened: bool, stop: Sequence[str] = ()) -> None:
        self._opening, self._closing = tags
        self._opened, self._stop = opened, tuple(stop)
        self._part: Part | None = None  # not known before the first characters are
        self._held, self._begun = "", False
        self.stopped = False

    def feed(self, piece: str, last: bool = False) -> list[tuple[Part, str]]:
        """What is new of each part. What may yet turn out to be a tag or stop string is held back until the `last`."""
        self._held += piece
        return list(self._news(last))

    def _news(self, last: bool) -> Iterator[tuple[Part, str]]:
        if self._part is None and not self._begins(last):
            return
        if self._part == "reasoning_content":
            text, closed, after = self._held.partition(self._closing)
            kept = "" if closed or last else _beginning(text, [self._closing])
            yield from self._say(text[: len(text) - len(kept)])
            self._held = after if closed else kept
            if closed:
                self._part, self._begun = "content", False
        if self._part == "content" and not self.stopped:
            text = self._held if self._begun else self._held.lstrip()
            # The one that is complete first, whatever the pieces.
            found = min(((at + len(s), at) for s in self._stop if (at := text.find(s)) >= 0), default=None)
            self.stopped = found is not None
            kept = "" if found or last else _beginning(text, self._stop)
            yield from self._say(text[: found[1]] if found else text[: len(text) - len(kept)])
            self._held = kept

    def _begins(self, last: bool) -> bool:
        text = self._held.lstrip()
        if not last and len(text) < len(self._opening) and self._opening.startswith(text):
            return False
        reasons = self._opened or text.startswith(self._opening)
        self._part = "reasoning_content" if reasons else "content"
        self._held = text.removeprefix(self._opening) if reasons else text
        return True

    def _say(self, text: str) -> Iterator[tuple[Part, str]]:
        text = text if self._begun else text.lstrip()
        if text and self._part is not None:
            self._begun = True
            yield self._part, text


def _beginning(text: str, marks: Sequence[str]) -> str:
    """The longest end of `text` with which one of `marks` begins, short of a whole one."""
    longest = max((len(mark) for mark in marks), default=1) - 1
    for size in range(min(longest, len(text)), 0, -1):
        if any(mark.startswith(text[-size:]) for mark in marks):
            return text[-size:]
    return ""
