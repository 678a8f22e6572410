"""The challenger's prompt: the problem, then the opponent's attempt with its final answer withheld.

The text is the same for every reward stack, so that runs which compare stacks differ only in the reward.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

CHALLENGE = """\
{problem}

Below is an opponent's attempt at this problem. It may or may not be correct. Its final answer is withheld.

<attempt>
{attempt}
</attempt>

Do not trust or paraphrase the attempt: verify it, and solve the problem independently. \
You win by being correct when the opponent is wrong."""

NO_SUMMARY = "(The opponent wrote no solution.)"


def challenge_messages(messages: Sequence[Mapping[str, Any]], summary: str | None) -> list[dict[str, Any]]:
    """The drafter's messages with the opponent's attempt added to the last user turn.

    Everything before that turn (a system prompt, examples) is kept. `summary` is what the opponent wrote after its
    reasoning, with the answer withheld; if it is `None` or blank, the challenger reads that there is no solution.
    """
    if not messages or messages[-1]["role"] != "user":
        raise ValueError("the last message of a prompt must be the user's, because it states the problem")
    problem = messages[-1]["content"]
    if not isinstance(problem, str):
        raise ValueError(
            f"only text prompts can be challenged, but the problem's content is a {type(problem).__name__}"
        )
    attempt = summary.strip() if summary and summary.strip() else NO_SUMMARY
    attempt = without_tags(attempt, "attempt")
    # Not str.format: problems and attempts are full of braces.
    head, tail = CHALLENGE.split("{attempt}")
    content = head.replace("{problem}", problem) + attempt + tail
    return [*(dict(m) for m in messages[:-1]), {"role": "user", "content": content}]


def without_tags(text: str, *names: str) -> str:
    """`text` without the tags of the blocks it may be put into, so that its author cannot write outside its own."""
    return re.sub(rf"<\s*+(/?)\s*+({'|'.join(names)})\s*+>", r"<\1 \2>", text, flags=re.IGNORECASE)
