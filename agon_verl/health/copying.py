"""How much of a challenge repeats the attempt it was shown.

The share of the challenge's n-grams of words, counted with repetitions, that occur anywhere in the attempt. n = 5: two
solutions of one problem share shorter n-grams by chance ("the sum of the"), while in a copy a changed word
breaks only five n-grams. A copy in which every thirtieth word is changed still scores above 0.8.

Pass both texts as a rival would read them: what follows the reasoning, with the answer withheld. The reasoning has
thousands of the challenger's own words, among which a copied solution would not show. The marker of a withheld answer
is in both texts and is ignored.

Words are separated by white space; each Chinese or Japanese character is a word, since nothing separates those. A
challenge of three or four words is compared as a single n-gram. One with fewer words is an answer rather than a
solution and scores 0: those words are in most attempts.
"""

import re
from collections.abc import Iterator
from itertools import islice

from agon_verl.game.withhold import WITHHELD

LONGEST = 5  # words of an n-gram
SHORTEST = 3  # words of a challenge that can be called a copy

_UNSPACED = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # kana and ideographs
_WORD = re.compile(rf"[{_UNSPACED}]|[^\s{_UNSPACED}]+")


def copied_share(shown: str | None, challenge: str) -> float:
    """From 0 to 1; 0 where no attempt was shown. Linear in the length of both texts."""
    words = _words(challenge)
    n = min(LONGEST, len(words))
    if not shown or n < SHORTEST:
        return 0.0
    attempt = set(_ngrams(_words(shown), n))
    return sum(ngram in attempt for ngram in _ngrams(words, n)) / (len(words) - n + 1)


def _words(text: str) -> list[str]:
    return _WORD.findall(text.replace(WITHHELD, " "))


def _ngrams(words: list[str], n: int) -> Iterator[tuple[str, ...]]:
    return zip(*(islice(words, start, None) for start in range(n)), strict=False)
