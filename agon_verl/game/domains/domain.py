"""What the game has to know about a kind of problem, and the helpers that its domains share."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from agon_verl.game.transcript import Transcript

Span = tuple[int, int]  # start and end of a part of a text
Same = Callable[[str, str], bool]  # (answer, value): whether the verifier calls them equal

WITHHELD = "[answer withheld]"
ANSWER_BLOCK = re.compile(r"<answer.*?(?:</answer\s*+>|\Z)", re.I | re.S)
_ANSWER_END = re.compile(r"^.*</answer\s*+>?", re.I | re.M)


@dataclass(frozen=True)
class Domain:
    """A value of `agon.domain`.

    `withhold` replaces the final answer in a summary by `WITHHELD`, a run of markers by one; twice is the same as once.
    `withhold_value(shown, answer, same, problem)` then replaces the value of the draft's `final_answer` too, wherever
    the text states it as a result. `leaks(shown, answer)` tells whether the text still contains that answer,
    `states(shown, answer)` whether as a result.
    """

    name: str
    withhold: Callable[[str], str]
    withhold_value: Callable[[str, str, Same, str], str]
    final_answer: Callable[[Transcript], str | None]
    leaks: Callable[[str, str], bool]
    states: Callable[[str, str], bool]
    withheld_parts: str  # what `withhold` replaces, for the description of an exported pair
    withheld_values: str  # what `withhold_value` adds to it
    prompt: str  # the default prompt of prepared data
    tagged_prompt: str  # the same for models that do not reason by themselves; {opening} and {closing} are the tags
    verifier: str  # the default reward function
    reward_timeout: float  # seconds per reward, as in the recipes


def withhold_tags(text: str, marker: str) -> str:
    return _ANSWER_END.sub(marker, ANSWER_BLOCK.sub(marker, text))


def replaced(text: str, spans: Iterable[Span], marker: str) -> str:
    """`text` with `marker` in place of each span, in order; of two that overlap the second stays as it is."""
    parts: list[str] = []
    cursor = 0
    for start, end in spans:
        if start >= cursor:
            parts += text[cursor:start], marker
            cursor = end
    return "".join((*parts, text[cursor:]))


def squash(text: str) -> str:
    return "".join(text.split())
