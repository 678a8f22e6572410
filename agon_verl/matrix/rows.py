"""The rows of the table: one or two per method, over its seeds.

The way of answering that represents a method is fixed in advance. Pairs that read each other answer as a cascade, in
the direction chosen on development data; a second row has the direction that was better afterwards, as in the paper.
Plain GRPO is its adapter alone, with its two-pass self-cascade as a row of its own; self-refinement is A reading A.
Pairs that never read each other are the mean of both adapters alone.
"""

from collections.abc import Sequence

from agon_verl.evaluate.summary import CASCADE, EITHER, POST_HOC

ROWS = {
    "grpo": (("GRPO, 2N rollouts", "A"), ("GRPO, two-pass self-cascade", "A_to_A")),
    "self_refine": (("self-refinement", "A_to_A"),),
    "shared_hidden": (("competitive, shared hidden opponent", EITHER),),
    "hidden": (("competitive, hidden opponents", EITHER),),
    "base": (("zero-shot", "base"), ("Mixture-of-Agents, untrained", "moa")),
}
# The modes to evaluate: all modes of a pair, and for the base, once per matrix, those that need no adapter.
PAIR = ("A_to_B", "B_to_A", "A_to_A", "B_to_B", "A", "B")
MODES = {"grpo": ("A", "A_to_A"), "self_refine": ("A", "A_to_A"), "base": ("base", "moa")}
# What the others are compared with.
REFERENCES = (("grpo", "A"), ("grpo", "A_to_A"), ("coop", CASCADE))
NAMES = {"coop": "cooperative", "adv": "Agon", "fixed": "Agon, fixed roles", "tiebreak": "Agon, length tiebreak"}


def rows(method: str, label: str = "") -> Sequence[tuple[str, str]]:
    """The rows of a method, each with the way of answering that it shows; `label` is an arm's own name."""
    name = label or NAMES.get(method, method)
    plain = ((name, CASCADE), (f"{name}, direction post hoc", POST_HOC))
    own = ROWS.get(method, plain)
    return own if not label or own is plain else [(f"{label}: {text}", way) for text, way in own]
