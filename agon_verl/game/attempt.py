"""What the challenger is shown of a draft: its summary, without the answer, short enough for the prompt.

Departure from the paper: it does not limit the length of a summary.
"""

import re
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

from agon_verl.game.control_tokens import ControlTokens
from agon_verl.game.domains import DOMAINS
from agon_verl.game.domains.domain import Same
from agon_verl.game.transcript import Transcript
from agon_verl.game.withhold import WITHHELD, withhold_answer


@dataclass(frozen=True, slots=True)
class Attempt:
    """`shown` is `None` if the opponent wrote no summary; `cut`: to fit.

    `leaked`: it still contains the answer; `stated`: as a result.
    """

    shown: str | None
    tokens: int
    leaked: bool
    cut: bool
    stated: bool = False
    reasoned: bool = True  # the draft has reasoning, which is not shown


NO_ATTEMPT = Attempt(shown=None, tokens=0, leaked=False, cut=False)


def nothing_to_read(shown: str | None) -> bool:
    """Whether the opponent wrote no summary, or one of which nothing is left without its answer."""
    return re.search(r"\w", (shown or "").replace(WITHHELD, "")) is None


def attempt_of(
    draft: Transcript,
    domain: str,
    control: ControlTokens,
    count: Callable[[str], int],
    excess: Callable[[str], int],
    problem: str = "",
    same: Same | None = None,
) -> Attempt:
    """`count` counts a text's tokens; `excess`, by how many the challenger's prompt with it would be too long.

    `same`, the verifier's comparison, withholds the value of the answer too (`agon.withhold=value`).
    """
    if draft.summary is None:
        return NO_ATTEMPT
    rules = DOMAINS[domain]
    answer = rules.final_answer(draft) or ""
    withheld = control.break_up(withhold_answer(draft.summary, domain, answer, same, problem))
    shown, cut, budget, over = withheld, False, count(withheld), excess(withheld)
    while over > 0 and budget > 0:  # more than once only where tokens merge across the cut
        budget -= over
        shown, cut = shorten(withheld, budget, count)
        over = excess(shown)
    leaked, stated = rules.leaks(shown, answer), rules.states(shown, answer)
    return Attempt(shown, count(shown), leaked, cut, stated, reasoned=bool(draft.reasoning))


def shorten(text: str, budget: int, count: Callable[[str], int]) -> tuple[str, bool]:
    """`text` within `budget` tokens as `count` counts them, and whether it was cut.

    The cut is at the end of a line or sentence if that keeps at least half of what fits, else at the end of a word. If
    the first word is too long, nothing is left.
    """
    if budget <= 0:
        return "", bool(text)
    if count(text) <= budget:
        return text, False
    words = [word.end() for word in re.finditer(r"[^\s。！？]*+[。！？]++|[^\s。！？]++", text)]
    at_word = _longest(text, words, budget, count)
    sentences = [
        end.start() for end in re.finditer(r"(?<=[.!?。！？])(?=\s)|(?<=[。！？])|(?<=\S)\s*\n", text[: at_word + 1])
    ]
    at_sentence = _longest(text, sentences, budget, count)
    return text[: at_sentence if 2 * at_sentence >= at_word else at_word], True


def _longest(text: str, ends: list[int], budget: int, count: Callable[[str], int]) -> int:
    """The last of `ends` at which `text` can be cut to fit, 0 if there is none.

    A longer prefix can be one token shorter, where the tokenizer merges across the cut. The search may then return less
    than the most that fits, but never more: the cut that it returns has been counted.
    """
    fitting = bisect_right(ends, budget, key=lambda end: count(text[:end]))
    return ends[fitting - 1] if fitting else 0
