r"""Mathematics: the final answer is a short expression.

Withheld are: `<answer>` blocks (one that never closes, to the end of the text; a closing tag that was never opened,
with its line); every box, whether it closes or not (one that does not, to the end of its line); what follows "the
answer is", "Answer:", "final result =" and the like, to the end of the sentence or, if nothing follows on that line,
the complete next paragraph; a sentence that ends with "… is the answer"; and GSM8K's `#### 72`. The announcements are
English. `restatements` withholds more, `leaks` measures what is left.
"""

import re

from agon_verl.game.boxes import boxes
from agon_verl.game.domains.domain import WITHHELD, Domain, replaced, withhold_tags
from agon_verl.game.domains.leaks import contains, states
from agon_verl.game.domains.restatements import withhold_value

PROMPT = """\
{problem}

Reason step by step. Then summarise your solution in a few sentences, and end with the final answer alone, between \
<answer> and </answer>."""

TAGGED_PROMPT = """\
{problem}

Answer in three parts. First reason step by step between {opening} and {closing}; nobody else reads this part. After \
{closing}, summarise your solution in a few sentences. End with the final answer alone, between <answer> and \
</answer>. Use exactly this form:

{opening}
the reasoning
{closing}
the summary
<answer>
the final answer
</answer>"""

_UNCLOSED_BOX = re.compile(r"\\(?:boxed|fbox).*")
_GSM8K = re.compile(r"^[ \t]*+####(?!#)(?:(?=[^A-Za-z\n]*\d)[^A-Za-z\n]*+$|.*\Z)", re.M)

# Runs of markers. A merge may not join lines or sentences that a second pass would then read as one.
_MARK = re.escape(WITHHELD)
_RUN = re.compile(rf"{_MARK}(?:[ \t$*,;]*+{_MARK})+")
_LINES = re.compile(rf"^{_MARK}(?:\n{_MARK}$)+", re.M)
_PARAGRAPHS = re.compile(rf"^{_MARK}(?:\n\s*\n{_MARK}(?=\n\s*\n|\Z))+", re.M)

_NOUN = r"\b(?:ans(?:wers?)?|final (?:result|value|solution))\b"
_ANNOUNCEMENT = re.compile(
    rf"(?:{_NOUN}(?:,? (?:to|for|of|in|we|you|here|then|thus|therefore)\b[^.!?:=]{{0,80}}?(?<![\s*_]))?[\s*_]*+"
    r"(?:[:=]|\b(?:is|are|equals|becomes|(?:will|would|must|should) be)\b)"
    r"|\b(?:the|our|my|an|final|correct) answer (?:of )?(?=[-+*$\\(]{0,4}\d))[\s*_:=]*+",
    re.I,
)
_CONCLUSION = re.compile(rf"\b(?:is|are|be|as)\s+(?:the|our|my)\s+(?:\w+\s+)?{_NOUN}", re.I)
_HEADING = re.compile(rf"[\W\d_]*+(?:step \d+\W*)?(?:(?:the|our|my)\s+)?(?:final\s+)?{_NOUN}[\W_]*", re.I)
_SENTENCE = re.compile(r"(?P<lead>\s*)(?P<text>.+?)(?P<end>[.!?][)\"'*_$\]]*(?=\s+(?:[A-Z]|" + _MARK + r")|\s*$)|$)")
_MARKUP = " \t*_:=$\\[("


def withhold(summary: str) -> str:
    text = withhold_tags(summary.strip(), WITHHELD)
    text = replaced(text, ((box.start, box.end) for box in boxes(text)), WITHHELD)
    text = _UNCLOSED_BOX.sub(WITHHELD, text)
    text = _withhold_statements(_GSM8K.sub(WITHHELD, text))
    for run in (_RUN, _LINES, _PARAGRAPHS):
        text = run.sub(WITHHELD, text)
    return text.strip()


def _withhold_statements(text: str) -> str:
    """Withhold what is announced as the answer, on the line of the announcement or in the paragraph after it."""
    shown = []
    awaited = begun = False  # a value was announced and is still to come; its paragraph has begun
    for line in text.split("\n"):
        if not line.strip():
            awaited = awaited and not begun
            shown.append(line)
            continue
        rest, announces = _withhold_line(line)
        shown.append(WITHHELD if awaited else rest)
        awaited, begun = awaited or announces, awaited and not announces
    return "\n".join(shown)


def _withhold_line(line: str) -> tuple[str, bool]:
    """The line with announced values withheld, and whether it ends with an announcement whose value is to come."""
    if _HEADING.fullmatch(line):
        return line, True
    shown: list[str] = []
    announces = False
    for sentence in _SENTENCE.finditer(line):
        clause, end = sentence["text"], sentence["end"]
        announcement = _ANNOUNCEMENT.search(clause)
        announces = announcement is not None and not clause[announcement.end() :].strip(_MARKUP)
        if _CONCLUSION.search(clause):
            clause = WITHHELD
        elif announcement and not announces:
            clause = clause[: announcement.end()] + WITHHELD
        shown += sentence["lead"], clause, end
    return "".join(shown), announces


MATH = Domain(
    name="math",
    withhold=withhold,
    withhold_value=withhold_value,
    final_answer=lambda draft: draft.answer,
    leaks=contains,
    states=states,
    withheld_parts="<answer> blocks, boxes, what follows 'the answer is', 'Answer:' and the like, and '#### 72'",
    withheld_values="the value of the draft's answer wherever the text states it as a result, in any notation",
    prompt=PROMPT,
    tagged_prompt=TAGGED_PROMPT,
    verifier="pkg://reward_fns.math_answer",
    reward_timeout=90.0,
)
