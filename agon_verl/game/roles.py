"""Who drafts and who challenges (line 2 of Algorithm 1): A drafts on even steps and B on odd ones.

The roles depend only on the step, so a resumed run needs no saved state to continue the rotation. With one
player, as in plain GRPO and in self-refinement, A is both.
"""

from typing import Literal, NamedTuple, get_args

Adapter = Literal["A", "B"]  # the only place that names them
ADAPTERS: tuple[Adapter, Adapter] = get_args(Adapter)
BASE = "base"  # the player without an adapter
Rotation = Literal["alternate", "fixed"]
Players = Literal["pair", "one"]


class Roles(NamedTuple):
    drafter: str
    challenger: str


def roles(step: int, rotation: Rotation = "alternate", players: Players = "pair") -> Roles:
    """Who drafts and who challenges at `step`; "fixed" is the paper's ablation, in which A always drafts."""
    return directions(players)[step % 2 if rotation == "alternate" else 0]


def directions(players: Players) -> tuple[Roles, Roles]:
    """The roles on even and on odd steps."""
    a, b = ADAPTERS
    return (Roles(a, b), Roles(b, a)) if players == "pair" else (Roles(a, a), Roles(a, a))
