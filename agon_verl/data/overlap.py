r"""Which problems are the same: equal once normalised, or alike in their word n-grams.

A text becomes tokens: words, LaTeX commands, numbers and signs, in lower case; white space, `$`, braces, punctuation
and commands that only space or size (`\left`, `\,`, `\displaystyle`) are dropped, and `\dfrac` is `\frac`. Two problems
are *equal* if their tokens are. They are *alike* if they share at least half of the shorter one's runs of 5 tokens, of
which it must have 8 or more: one retold with other names or reversed, one that contains the other, or a long one with
a few numbers changed. A run that more than 64 problems share is a turn of phrase ("where m and n are relatively prime
positive integers") and does not count.

Not detected: paraphrases, translations, short problems that differ in a word or a number, and the same exercise with
all its numbers changed.

Runs are compared as 64-bit hashes of all texts at once. A run that occurs once cannot be shared; the others are so few
that they can be counted pair by pair: 100,000 problems take seconds.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import Any

RUN = 5  # tokens
SHARE = 0.5
FEWEST = 8  # runs that a problem must have to be compared by them
PHRASE = 64  # problems; a run in more of them is a turn of phrase

_TOKEN = re.compile(r"\\[a-z]+|[^\W\d_]+|\d+(?:\.\d+)?|[^\s\w$.,;:?'\"`~{}\\]|_")
_SPACING = re.compile(
    r"\\(?:left|right|big+[lrm]?|displaystyle|textstyle|limits|q?quad|text(?:bf|it)?|mathrm|mbox)(?![a-z])"
    r"|\\[,;:! ()\[\]]"
)
_FRACTION = re.compile(r"\\[dtc]frac(?![a-z])")


def tokens(text: str) -> list[str]:
    text = unicodedata.normalize("NFKC", text).casefold()
    if "\\" in text:
        text = _FRACTION.sub(r"\\frac", _SPACING.sub(" ", text))
    return _TOKEN.findall(text)


def same_as(texts: Sequence[list[str]], fixed: int, bar: Callable[[Any], Any] = iter) -> dict[int, tuple[int, str]]:
    """For each text that repeats an earlier one: which, and how ("equal" or "alike").

    The first `fixed` texts are only compared with, never reported. A repeated text is not compared any further, so that
    of a chain in which each is like the next, every other one stays.
    """
    repeats: dict[int, tuple[int, str]] = {}
    first: dict[tuple[str, ...], int] = {}
    for number, words in enumerate(texts):
        earlier = first.setdefault(tuple(words), number)
        if earlier != number and number >= fixed:
            repeats[number] = (earlier, "equal")
    chosen = [number for number in range(len(texts)) if number not in repeats]
    lengths = [len(texts[number]) - RUN + 1 for number in chosen]
    for place, others, counts in bar(_sharing([texts[number] for number in chosen])):
        if chosen[place] < fixed:
            continue
        for other, count in zip(others, counts, strict=True):
            shorter = min(lengths[place], lengths[other])
            if count >= SHARE * shorter and shorter >= FEWEST and chosen[other] not in repeats:
                repeats[chosen[place]] = (chosen[other], "alike")
                break
    return repeats


def _sharing(texts: Sequence[list[str]]) -> Iterator[tuple[int, list[int], list[int]]]:
    """Each text that shares enough runs with earlier ones, these texts, and the numbers of shared runs."""
    import numpy as np

    ids: dict[str, int] = {}
    flat = np.fromiter((ids.setdefault(word, len(ids)) for words in texts for word in words), dtype=np.uint64)
    if len(flat) < RUN:
        return
    owner = np.repeat(np.arange(len(texts)), [len(words) for words in texts])
    hashes = np.zeros(len(flat) - RUN + 1, dtype=np.uint64)
    for place in range(RUN):
        hashes = _scramble(hashes + _scramble(flat[place : len(hashes) + place]))
    inside = owner[: len(hashes)] == owner[RUN - 1 :]
    run = np.unique(hashes[inside], return_inverse=True)[1].astype(np.int64)
    pair = np.unique(run * len(texts) + owner[: len(hashes)][inside])  # a run twice in a text is one
    run, text = pair // len(texts), pair % len(texts)
    spread = np.bincount(run)[run]
    shared = (spread > 1) & (spread <= PHRASE)
    run, text = np.unique(run[shared], return_inverse=True)[1], text[shared]  # sorted by run, then by text
    begins = np.searchsorted(run, np.arange(len(run) + 1))
    by_text = np.argsort(text, kind="stable")
    for mine in np.split(by_text, np.flatnonzero(np.diff(text[by_text])) + 1):
        if len(mine):
            others = np.concatenate([text[begins[each] : place] for each, place in zip(run[mine], mine, strict=True)])
            earlier, counts = np.unique(others, return_counts=True)
            enough = counts >= SHARE * FEWEST
            if enough.any():
                yield int(text[mine[0]]), earlier[enough].tolist(), counts[enough].tolist()


def _scramble(values: Any) -> Any:
    """A 64-bit mix (multiply, fold), so that sums of scrambled values collide only by chance."""
    import numpy as np

    values = (values ^ (values >> np.uint64(31))) * np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(29))) * np.uint64(0xD6E8FEB86659FD93)
    return values ^ (values >> np.uint64(32))
