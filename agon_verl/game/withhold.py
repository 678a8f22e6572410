"""What the challenger may read of a draft: its summary with the final answer withheld.

Each domain has its own rule (`domains`). All prefer to withhold too much: a lost sentence costs the challenger a hint,
while a challenger that can see the answer learns to copy. What a derivation implies cannot be withheld, as the paper
notes; `Domain.leaks` and `Domain.states` measure what is left.

Departure from the paper: it says that the answer is withheld, not how. `agon.withhold=announced` withholds where a text
announces its answer. `agon.withhold=value` also withholds the draft's own final value where the text states it as a
result, as 113 of 146 right drafts of a first real model do (docs/one_gpu.md).
"""

from typing import Literal

from agon_verl.game.domains import DOMAINS
from agon_verl.game.domains.domain import WITHHELD as WITHHELD
from agon_verl.game.domains.domain import Same

Withhold = Literal["announced", "value"]


def withhold_answer(
    summary: str, domain: str = "math", answer: str | None = None, same: Same | None = None, problem: str = ""
) -> str:
    """The summary with `WITHHELD` in place of its final answer.

    With the verifier's comparison `same`, the value of `answer` is withheld too, wherever it is stated as a result.
    """
    shown = DOMAINS[domain].withhold(summary)
    return DOMAINS[domain].withhold_value(shown, answer, same, problem) if same and answer else shown
