"""Programs: the final program *is* the answer.

Withheld are `<answer>` blocks and the last fenced block, closed or cut off, and every other block that contains the
same program, ignoring white space. Of many `<answer>` blocks only the last few are looked for elsewhere: a loop of them
would be compared each with each. Prose and other snippets stay: they are the derivation. The marker keeps its fence, so
that a second pass does not take the last snippet for the program.
"""

import re
from collections.abc import Iterable

from agon_verl.game.domains.domain import ANSWER_BLOCK, WITHHELD, Domain, replaced, squash, withhold_tags
from agon_verl.game.fences import fences
from agon_verl.game.transcript import final_program

PROGRAM_TASK = "Write a Python program that solves this problem: it reads standard input and prints to standard output."
# In its place for a problem whose tests call a function.
FUNCTION_TASK = (
    "Write Python code that solves this problem: it defines what the problem names, reads no input and returns a value."
)

PROMPT = f"""\
{{problem}}

{PROGRAM_TASK} Reason step by step. Then summarise your approach in a few sentences, and end with the whole program in \
one fenced block between <answer> and </answer>:

<answer>
```python
# the program
```
</answer>"""

TAGGED_PROMPT = f"""\
{{problem}}

{PROGRAM_TASK} Answer in three parts. First reason step by step between {{opening}} and {{closing}}; nobody else reads \
this part. After {{closing}}, summarise your approach in a few sentences. End with the whole program in one fenced \
block between <answer> and </answer>. Use exactly this form:

{{opening}}
the reasoning
{{closing}}
the summary
<answer>
```python
# the program
```
</answer>"""

_MARKER = f"```\n{WITHHELD}\n```"
_MOST_ANSWERS = 16  # programs in `<answer>` blocks whose copies are looked for, the last ones
_RUN = re.compile(rf"{re.escape(_MARKER)}(?:\s*+{re.escape(_MARKER)})+")


def withhold(summary: str) -> str:
    answers = [block for tag in ANSWER_BLOCK.findall(summary) for block in fences(tag)]
    blocks = fences(summary)[-1:] + answers[-_MOST_ANSWERS:]
    programs = {squash(block.body) for block in blocks} - {"", squash(WITHHELD)}
    text = withhold_tags(summary.strip(), f"\n{_MARKER}\n")
    blocks = fences(text)
    copies = [block for block in blocks[:-1] if _contains(squash(block.body), programs)] + blocks[-1:]
    shown = replaced(text, ((block.start, block.end) for block in copies), _MARKER)
    return _RUN.sub(_MARKER, shown).strip()


def _contains(body: str, programs: Iterable[str]) -> bool:
    return any(program in body for program in programs)


def leaks(shown: str, answer: str) -> bool:
    """Whether `shown` contains the same program, ignoring white space."""
    blocks = fences(answer)
    program = squash(blocks[-1].body if blocks else answer)
    return bool(program) and program in squash(shown)


CODE = Domain(
    name="code",
    withhold=withhold,
    withhold_value=lambda shown, answer, same, problem: shown,  # every copy of the program is already withheld
    final_answer=lambda draft: final_program(draft.summary),
    leaks=leaks,
    states=leaks,
    withheld_parts="<answer> blocks, the last fenced program and its copies",
    withheld_values="nothing more",
    prompt=PROMPT,
    tagged_prompt=TAGGED_PROMPT,
    verifier="pkg://reward_fns.unit_tests",
    reward_timeout=600.0,
)
