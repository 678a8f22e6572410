"""What the challenger is shown of a draft: its summary, without the answer, short enough for the prompt."""

from collections.abc import Callable
from dataclasses import dataclass

from agon_verl.game.transcript import Transcript, final_program
from agon_verl.game.withhold import fit, leaks, withhold_answer


@dataclass(frozen=True, slots=True)
class Attempt:
    """`shown` is `None` where the opponent wrote no summary; `leaked`: the answer is still in it; `cut`: to fit."""

    shown: str | None
    tokens: int
    leaked: bool
    cut: bool


NO_ATTEMPT = Attempt(shown=None, tokens=0, leaked=False, cut=False)


def attempt_of(draft: Transcript, domain: str, count: Callable[[str], int], excess: Callable[[str], int]) -> Attempt:
    """`count` gives a text's tokens; `excess` by how many the challenger's prompt with it would be too long."""
    if draft.summary is None:
        return NO_ATTEMPT
    withheld = withhold_answer(draft.summary, domain)
    shown, cut, budget, over = withheld, False, count(withheld), excess(withheld)
    while over > 0 and budget > 0:  # more than once only where tokens merge across the cut
        budget -= over
        shown, cut = fit(withheld, budget, count)
        over = excess(shown)
    answer = final_program(draft.summary) if domain == "code" else draft.answer
    return Attempt(shown, count(shown), leaks(shown, answer, domain), cut)
