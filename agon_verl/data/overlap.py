r"""Which problems are the same: equal once normalised, or alike in their word n-grams.

A text becomes tokens: words, LaTeX commands, numbers and signs, in lower case; white space, `$`, braces, punctuation
and commands that only space or size (`\left`, `\,`, `\displaystyle`) are dropped, and `\dfrac` is `\frac`. Two problems
are *equal* if their tokens are. They are *alike* if they share at least half of the shorter one's runs of 5 tokens, of
which it must have 8 or more: one retold with other names or reversed, one that contains the other, or a long one with
a few numbers changed. A run that more than 64 problems share is a turn of phrase ("where m and n are relatively prime
positive integers") and does not count.

Not detected: paraphrases, translations, short problems that differ in a word or a number, and the same exercise with
all its numbers changed.

Runs are compared as 64-bit hashes. With a row per text and a column per run that several texts have, the product of the
matrix and its transpose counts what two texts share: 100,000 problems take seconds.
"""

import re
import unicodedata
from collections.abc import Sequence

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


def same_as(texts: Sequence[list[str]], fixed: int) -> dict[int, tuple[int, str]]:
    """For each text that repeats an earlier one: which, and how ("equal" or "alike").

    The first `fixed` texts are only compared with, never reported. A repeated text is not compared any further, so that
    of a chain in which each is like the next, every other one stays.
    """
    import numpy as np
    from scipy.sparse import csr_array, tril

    repeats: dict[int, tuple[int, str]] = {}
    first: dict[tuple[str, ...], int] = {}
    for number, words in enumerate(texts):
        earlier = first.setdefault(tuple(words), number)
        if earlier != number and number >= fixed:
            repeats[number] = (earlier, "equal")
    compared = [[] if number in repeats else words for number, words in enumerate(texts)]
    lengths = np.array([max(0, len(words) - RUN + 1) for words in compared], dtype=np.int64)
    if not lengths.any():
        return repeats
    hashes = (hash(run) for words in compared for run in zip(*(words[i:] for i in range(RUN)), strict=False))
    runs = np.unique(np.fromiter(hashes, dtype=np.int64), return_inverse=True)[1]
    contains = csr_array((np.ones(len(runs), dtype=np.int32), (np.repeat(np.arange(len(texts)), lengths), runs)))
    contains.data[:] = 1  # a run twice in a text is one
    spread = contains.sum(axis=0)
    contains = contains[:, (spread > 1) & (spread <= PHRASE)]
    shared = tril(contains @ contains.T, -1)
    shorter = np.minimum(lengths[shared.row], lengths[shared.col])
    alike = (shorter >= FEWEST) & (shared.data >= SHARE * shorter) & (shared.row >= fixed)
    for number, earlier in sorted(zip(shared.row[alike].tolist(), shared.col[alike].tolist(), strict=True)):
        if number not in repeats and earlier not in repeats:
            repeats[number] = (earlier, "alike")
    return repeats
