"""Splits a completion, while it is generated, into reasoning and content, and ends the content at a stop string.

The reasoning is the first block: opened by the chat template, or at the beginning of the completion. It ends at the
first closing tag, because a stream cannot know whether another one follows; game/transcript.py, which has the complete
text, uses the last. Everything after it is content, including later tags. A verifier therefore reads the same answer in
the content as in the completion, unless that ends inside a second block. White space at the start of a part is dropped.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

Part = Literal["reasoning_content", "content"]


class StreamSplitter:
    """Tags and stop strings may arrive in any number of pieces."""

    def __init__(self, tags: tuple[str, str], opened: bool, stop: Sequence[str] = ()) -> None:
        self._opening, self._closing = tags
        self._opened, self._stop = opened, tuple(stop)
        self._part: Part | None = None  # unknown until the first characters have arrived
        self._buffer, self._started = "", False
        self.stopped = False

    def feed(self, piece: str, last: bool = False) -> list[tuple[Part, str]]:
        """The new text of each part. Text that may become a tag or a stop string is kept back until the `last` call."""
        self._buffer += piece
        return list(self._split(last))

    def _split(self, last: bool) -> Iterator[tuple[Part, str]]:
        if self._part is None and not self._find_first_part(last):
            return
        if self._part == "reasoning_content":
            text, closed, after = self._buffer.partition(self._closing)
            rest = "" if closed or last else _unfinished(text, [self._closing])
            yield from self._emit(text[: len(text) - len(rest)])
            self._buffer = after if closed else rest
            if closed:
                self._part, self._started = "content", False
        if self._part == "content" and not self.stopped:
            text = self._buffer if self._started else self._buffer.lstrip()
            # The stop string that ends first, so that the result does not depend on the pieces.
            match = min(((at + len(s), at) for s in self._stop if (at := text.find(s)) >= 0), default=None)
            self.stopped = match is not None
            rest = "" if match or last else _unfinished(text, self._stop)
            yield from self._emit(text[: match[1]] if match else text[: len(text) - len(rest)])
            self._buffer = rest

    def _find_first_part(self, last: bool) -> bool:
        text = self._buffer.lstrip()
        if not last and len(text) < len(self._opening) and self._opening.startswith(text):
            return False
        reasons = self._opened or text.startswith(self._opening)
        self._part = "reasoning_content" if reasons else "content"
        self._buffer = text.removeprefix(self._opening) if reasons else text
        return True

    def _emit(self, text: str) -> Iterator[tuple[Part, str]]:
        text = text if self._started else text.lstrip()
        if text and self._part is not None:
            self._started = True
            yield self._part, text


def _unfinished(text: str, marks: Sequence[str]) -> str:
    """The longest end of `text` that is the beginning of one of `marks`, but not all of it."""
    longest = max((len(mark) for mark in marks), default=1) - 1
    for size in range(min(longest, len(text)), 0, -1):
        if any(mark.startswith(text[-size:]) for mark in marks):
            return text[-size:]
    return ""
