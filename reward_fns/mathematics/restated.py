"""The comparison behind `agon.withhold=value`: whether a text that a draft contains is the value of its answer."""

from reward_fns.mathematics.equal import UnreadableReference, equal


def restates(answer: str, value: str) -> bool:
    """Whether the verifier would call `value` equal to `answer`, decided in this process in microseconds.

    What needs algebra, and so a worker process with limits, counts as different: a draft contains hundreds of values.
    """
    try:
        return equal(answer, value) is True
    except UnreadableReference:
        return False
