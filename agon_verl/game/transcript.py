r"""The parts of a completion: the private reasoning, the solution summary after it, the final answer, the format term.

The reasoning ends at the **last** closing tag. If a model closes its reasoning, continues to think and closes it again,
the opponent sees only what follows the second tag. If a block opens again after that and never closes, the summary is
the text in between. A completion that never closes its reasoning has no summary.

The chat template may have opened the block inside the prompt, where nothing that reads the completion can see it. So
a closing tag never needs an opening one; `opened` only decides what a completion *without* a closing tag is:
reasoning that was cut off (true), or the summary of a model that wrote no reasoning (false, and no opening tag
either).

The final answer is the last `<answer>` block or, if that contains a box, the content of its last box. Without any
`<answer>` it is the last balanced box. A blank answer counts as none. What follows the reasoning is read first; an
answer elsewhere counts only where the completion ended by itself (`ended`), because correctness and structure are two
terms of the reward:

    ended   an answer inside the reasoning, or in reasoning that never closes      an `<answer>` that never closes
    True    counts: the last complete block, else the last box                     its last box counts, else none
    False   none: the token limit cut off the completion                           none
    None    the last complete block counts, a box does not: not known here         none

An opening `<answer>` tag with text after it always voids what precedes it: "5, <answer>6" is no 5.

phi(y), which the paper calls well-formed `<think>`/`<answer>` structure, is 1 exactly when, white space at both ends
aside, the completion is: an opening tag or none, reasoning (possibly empty) without either tag, one closing tag, any
text without either tag, and one `<answer>` block that is not blank, is the only one after the reasoning and ends the
completion. The reasoning may mention `<answer>`: it is private. With `needs_summary` the text before the answer must
have a letter or a digit: nothing else in the rewards asks a drafter to write what its rival reads.

Departures from the paper: it parses the answer from the `<answer>` block only; the box is our fall-back, so that a base
model which has not learned the tags yet can already be right (its phi stays 0). It calls phi "standard" and mentions
neither repeated tags nor completions that were cut off; the rules above are ours.
"""

import re
from dataclasses import dataclass

from agon_verl.game.boxes import boxes
from agon_verl.game.fences import Fence, fences

REASONING_TAGS = ("<think>", "</think>")
OPENED = "reasoning_opened"  # key of extra_info: the prompt opened the reasoning block
ENDED = "completion_ended"  # key of extra_info: the model ended the completion; false: the token limit did
_ANSWER, _END_ANSWER = "<answer>", "</answer>"


@dataclass(frozen=True, slots=True)
class Transcript:
    """`None` means absent; only an empty reasoning block is blank. `summary` still contains the final answer."""

    reasoning: str | None
    summary: str | None
    answer: str | None
    well_formed: bool


def read(
    completion: str,
    *,
    opened: bool = False,
    ended: bool | None = None,
    tags: tuple[str, str] = REASONING_TAGS,
    needs_summary: bool = False,
) -> Transcript:
    """Split a decoded completion by the rules at the top of this file."""
    opening, closing = tags
    text = completion.strip()
    if not text:
        return Transcript(None, None, None, well_formed=False)
    before, closed, after = text.rpartition(closing)
    unclosed = not closed and (opened or opening in text)
    summary = "" if unclosed else after.partition(opening)[0].strip()
    answer = _final_answer(after if ended else summary, ended)
    if answer is None and ended is not False:
        answer = _final_answer(text, ended, boxed=bool(ended))
    if unclosed:
        return Transcript(text.removeprefix(opening).strip(), None, answer, well_formed=False)

    reasoning = before.removeprefix(opening)
    well_formed = (
        bool(closed)
        and not any(tag in reasoning for tag in tags)
        and opening not in after
        and summary.count(_ANSWER) == summary.count(_END_ANSWER) == 1
        and summary.endswith(_END_ANSWER)
        and answer is not None
        and (not needs_summary or re.search(r"\w", summary.partition(_ANSWER)[0]) is not None)
    )
    return Transcript(reasoning.strip() if closed else None, summary or None, answer, well_formed)


def final_block(summary: str | None) -> Fence | None:
    """The last fenced block of a summary; `None` without one, or if the text was cut off inside it."""
    blocks = fences(summary or "")
    return blocks[-1] if blocks and blocks[-1].closed and blocks[-1].body.strip() else None


def final_program(summary: str | None) -> str | None:
    """The text of the final block."""
    block = final_block(summary)
    return None if block is None else block.body


def _final_answer(text: str, ended: bool | None, *, boxed: bool = True) -> str | None:
    """`boxed`: whether a box counts in a text without any `<answer>`."""
    if ended:
        text = text.rstrip().removesuffix(_ANSWER)  # opened at the end, and nothing in it
    content, closed = text, ""
    if _ANSWER in text:
        content, closed, _ = text.rpartition(_ANSWER)[2].partition(_END_ANSWER)
        boxed = bool(closed or ended)
    if boxed and (marked := boxes(content)):
        content = marked[-1].content
    elif not closed:
        return None
    return content.strip() or None
