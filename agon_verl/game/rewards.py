"""The reward stacks: what the drafter's and the challenger's completions earn.

With c correctness, phi format, lambda = `format_weight`, gamma = `tiebreak_weight`, draft a and challenge b:

    standalone   R(a) = 2 c(a) + lambda phi(a)                            the drafter's: Eq. coop, no opponent
    coop         R(b) = 2 c(b) + lambda phi(b)
    adv          R(b) = 2 c(b) + c(b) (1 - c(a)) + lambda phi(b)          the second term is the conversion bonus
    margin       R(b) = 3 c(b) - c(a) + lambda phi(b)                     the paper's ablation
    any + gamma c(b) c(a) 1[|b| < |a|]                                    the optional length tiebreak

Departures from the paper: its margin leaves the format term out (R = 3 c(b) - c(a)); ours keeps it, so that stacks
differ in the competitive term only. A verifier may give partial credit, c in [0, 1]; the formulas are the same.
|y| counts the tokens of the completion, reasoning included.
"""

from dataclasses import dataclass
from typing import Literal, get_args

Stack = Literal["coop", "adv", "margin"]
Rival = Literal["own", "shared"]
STACKS: tuple[str, ...] = get_args(Stack)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The verdict on one completion: c, phi and |y|."""

    correct: float
    format: float
    length: int

    def __post_init__(self) -> None:
        for name in ("correct", "format"):
            value = getattr(self, name)
            if not 0.0 <= value <= 1.0:
                raise ValueError(f"{name} is {value!r}, but must lie in [0, 1]: scale the verifier's score")


def standalone_reward(o: Outcome, format_weight: float = 0.5) -> float:
    return 2.0 * o.correct + format_weight * o.format


def challenge_reward(
    stack: str, challenge: Outcome, draft: Outcome, *, format_weight: float = 0.5, tiebreak_weight: float = 0.0
) -> float:
    """R(b) of `challenge` paired with `draft`. The tiebreak needs strictly fewer tokens than the draft has."""
    b, a = challenge.correct, draft.correct
    if stack == "coop":
        game = 2.0 * b
    elif stack == "adv":
        game = 2.0 * b + b * (1.0 - a)
    elif stack == "margin":
        game = 3.0 * b - a
    else:
        raise ValueError(f"reward stack {stack!r} is unknown: use one of {', '.join(STACKS)}")
    tiebreak = tiebreak_weight * b * a if challenge.length < draft.length else 0.0
    return game + format_weight * challenge.format + tiebreak
