"""Role rotation (line 2 of Algorithm 1): on even steps A drafts and B challenges, on odd steps the reverse.

The roles are a function of the step alone, so a resumed run needs no saved state to continue the rotation.
"""

from typing import NamedTuple

ADAPTERS = ("A", "B")
ROTATIONS = ("alternate", "fixed")


class Roles(NamedTuple):
    drafter: str
    challenger: str


def roles(step: int, rotation: str = "alternate") -> Roles:
    """Who drafts and who challenges at `step`; "fixed" is the paper's ablation, in which A always drafts."""
    if rotation not in ROTATIONS:
        raise ValueError(f"rotation {rotation!r} is unknown: use one of {', '.join(ROTATIONS)}")
    a, b = ADAPTERS
    return Roles(b, a) if rotation == "alternate" and step % 2 else Roles(a, b)
