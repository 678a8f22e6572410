r"""The parts of a completion: the private reasoning, the solution summary after it, the final answer, the format term.

The reasoning ends at the **last** closing tag. If a model closes its reasoning, continues to think and closes it again,
the opponent sees only what follows the second tag, and no answer from before it is graded. If a block opens again after
that and is cut off, the summary is the text in between. A completion cut off inside its reasoning has no summary.

The chat template may have opened the block inside the prompt, where nothing that reads the completion can see it. So
a closing tag never needs an opening one; `opened` only decides what a completion *without* a closing tag is:
reasoning that was cut off (true), or the summary of a model that wrote no reasoning (false, and no opening tag
either).

The final answer is the last `<answer>` block of the summary or, if that contains a box, the content of its last box.
Without any `<answer>` it is the last balanced box. An `<answer>` that never closes was cut off: no answer, even if a
box precedes it. A blank answer counts as none.

phi(y), which the paper calls well-formed `<think>`/`<answer>` structure, is 1 exactly when, white space at both ends
aside, the completion is: an opening tag or none, reasoning (possibly empty) without either tag, one closing tag, any
text without either tag, and one `<answer>` block that is not blank, is the only one after the reasoning and ends the
completion. The reasoning may mention `<answer>`: it is private.

Departures from the paper: it parses the answer from the `<answer>` block only; the box is our fall-back, so that a base
model which has not learned the tags yet can already be right (its phi stays 0). It calls phi "standard" and does not
mention repeated tags; the rules above are ours.
"""

from dataclasses import dataclass

from agon_verl.game.boxes import boxes
from agon_verl.game.fences import Fence, fences

REASONING_TAGS = ("<think>", "</think>")
OPENED = "reasoning_opened"  # key of extra_info: the prompt opened the reasoning block
_ANSWER, _END_ANSWER = "<answer>", "</answer>"


@dataclass(frozen=True, slots=True)
class Transcript:
    """`None` means absent; only an empty reasoning block is blank. `summary` still contains the final answer."""

    reasoning: str | None
    summary: str | None
    answer: str | None
    well_formed: bool


def read(completion: str, *, opened: bool = False, tags: tuple[str, str] = REASONING_TAGS) -> Transcript:
    """Split a decoded completion by the rules at the top of this file."""
    opening, closing = tags
    text = completion.strip()
    if not text:
        return Transcript(None, None, None, well_formed=False)
    before, closed, after = text.rpartition(closing)
    if not closed and (opened or opening in text):
        return Transcript(text.removeprefix(opening).strip(), None, None, well_formed=False)

    summary = after.partition(opening)[0].strip()
    answer = _final_answer(summary)
    reasoning = before.removeprefix(opening)
    well_formed = (
        bool(closed)
        and not any(tag in reasoning for tag in tags)
        and opening not in after
        and summary.count(_ANSWER) == summary.count(_END_ANSWER) == 1
        and summary.endswith(_END_ANSWER)
        and answer is not None
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


def _final_answer(summary: str) -> str | None:
    if _ANSWER in summary:
        content, closed, _ = summary.rpartition(_ANSWER)[2].partition(_END_ANSWER)
        if not closed:
            return None
        boxed = boxes(content)
    else:
        content, boxed = "", boxes(summary)
    return (boxed[-1].content if boxed else content).strip() or None
