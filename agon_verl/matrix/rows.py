"""The table: one row per method, over its seeds.

The way of answering that represents a method is fixed in advance. Pairs that read each other answer as a cascade, in
the direction chosen on development data; a second row has the direction that was better afterwards, as in the paper.
Plain GRPO is its adapter alone, with its two-pass self-cascade as a row of its own; self-refinement is A reading A.
Pairs that never read each other are the mean of both adapters alone.
"""

from collections.abc import Mapping, Sequence

from agon_verl.evaluate.markdown import number, percent, table
from agon_verl.evaluate.results import Results
from agon_verl.evaluate.summary import CASCADE, EITHER, POST_HOC, summaries

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
NAMES = {"coop": "cooperative", "adv": "Agon", "fixed": "Agon, fixed roles", "tiebreak": "Agon, length tiebreak"}


def rows(method: str) -> Sequence[tuple[str, str]]:
    """The rows of a method, each with the way of answering that it shows."""
    name = NAMES.get(method, method)
    return ROWS.get(method, ((name, CASCADE), (f"{name}, direction post hoc", POST_HOC)))


def main_table(by_method: Mapping[str, Sequence[Results]], failed: Mapping[str, int], source: str) -> str:
    """`by_method` has the results of each seed; `failed` counts the cells that have none."""
    lines = []
    for method, runs in by_method.items():
        by_way = summaries(runs, source)
        for name, way in rows(method):
            summary = by_way.get(way)
            count = len(summary.shares) if summary else 0
            line = [name, f"{count}" + (f" ({failed[method]} failed)" if failed.get(method) else "")]
            if summary:
                over = summary.spread
                line += [percent(over.mean), percent(over.deviation), f"{percent(over.low)} to {percent(over.high)}"]
                line += [number(summary.length), number(summary.generated)]
            lines.append(line if summary else [*line, *["–"] * 5])
    head = ["method", "seeds", "mean pass@1 %", "deviation", "range", "final length", "generated per problem"]
    return table(head, lines)
