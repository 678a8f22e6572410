"""The comparison behind `agon.withhold=value`: whether a text that a draft contains is the value of its answer."""

from agon_verl.game.domains.domain import Same
from agon_verl.game.withhold import Withhold
from reward_fns.mathematics.equal import UnreadableReference, equal
from reward_fns.mathematics.sentence import stated


def comparison(withhold: Withhold) -> Same | None:
    """The comparison that a setting of `agon.withhold` needs, in training and at inference."""
    return restates if withhold == "value" else None


def restates(answer: str, value: str) -> bool:
    """Whether the verifier would call `value` equal to `answer`, decided in this process.

    What needs algebra, and so a worker process with limits, counts as different: a draft contains hundreds of values.
    """
    try:
        return equal(stated(answer), value) is True
    except UnreadableReference:
        return False
