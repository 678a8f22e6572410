"""The table: one row a method, over its seeds.

Which mode speaks for a method is fixed beforehand. Pairs that read each other are a cascade, in the direction chosen
on development data, and beside it the better one afterwards, as the paper has it. Plain GRPO is its adapter alone, and
its two-pass self-cascade a row of its own; self-refinement is A reading A. Pairs that never read are their adapters
alone, the mean of both.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from agon_verl.evaluate import statistics
from agon_verl.evaluate.compare import CASCADE, POST_HOC, rows_of
from agon_verl.evaluate.results import pass_at_1
from agon_verl.evaluate.table import number, percent, table

SPEAKS = {
    "grpo": (("GRPO, 2N rollouts", ("A",)), ("GRPO, two-pass self-cascade", ("A_to_A",))),
    "self_refine": (("self-refinement", ("A_to_A",)),),
    "shared_hidden": (("competitive, shared hidden opponent", ("A", "B")),),
    "hidden": (("competitive, hidden opponents", ("A", "B")),),
    "base": (("zero-shot", ("base",)), ("Mixture-of-Agents, untrained", ("moa",))),
}
# What is evaluated: of a pair all that it can play, of the base, once for all, what needs no adapter.
PAIR = ("A_to_B", "B_to_A", "A_to_A", "B_to_B", "A", "B")
MODES = {"grpo": ("A", "A_to_A"), "self_refine": ("A", "A_to_A"), "base": ("base", "moa")}
NAMES = {"coop": "cooperative", "adv": "Agon", "fixed": "Agon, fixed roles", "tiebreak": "Agon, length tiebreak"}


def rows(method: str) -> Sequence[tuple[str, tuple[str, ...]]]:
    """The rows of a method, each with the modes whose mean it is."""
    name = NAMES.get(method, method)
    return SPEAKS.get(method, ((name, (CASCADE,)), (f"{name}, direction post hoc", (POST_HOC,))))


def share(results: Mapping[str, Any], source: str, modes: Sequence[str]) -> float | None:
    found = rows_of(results, source)
    shares = [pass_at_1(found[mode]) for mode in modes if mode in found]
    known = [each for each in shares if each is not None]
    return sum(known) / len(known) if known else None


def tokens(results: Mapping[str, Any], source: str, modes: Sequence[str]) -> tuple[float, float] | None:
    """Mean length of the final stage, and tokens generated for a problem by all stages."""
    found = results["sets"][source]
    named = {CASCADE: results["direction"]["chosen"], POST_HOC: found["post_hoc"]}
    told = [found["modes"][named.get(mode, mode)] for mode in modes if named.get(mode, mode) in found["modes"]]
    if not told:
        return None
    each = [(one["length"], one["ledger"]["per_pass"]["generated"]) for one in told]
    return sum(a for a, _ in each) / len(each), sum(b for _, b in each) / len(each)


def main_table(by_method: Mapping[str, Sequence[Mapping[str, Any]]], failed: Mapping[str, int], source: str) -> str:
    """`by_method` has the results of each seed; `failed` counts the cells that have none."""
    lines = []
    for method, given in by_method.items():
        for name, modes in rows(method):
            shares = [found for each in given if (found := share(each, source, modes)) is not None]
            cost = [spent for each in given if (spent := tokens(each, source, modes)) is not None]
            line = [name, f"{len(shares)}" + (f" ({failed[method]} failed)" if failed.get(method) else "")]
            if shares:
                over = statistics.spread(shares)
                line += [percent(over.mean), percent(over.deviation), f"{percent(over.low)} to {percent(over.high)}"]
            else:
                line += ["–", "–", "–"]
            for place in (0, 1):
                line.append(number(sum(each[place] for each in cost) / len(cost)) if cost else "–")
            lines.append(line)
    head = ["method", "seeds", "mean pass@1 %", "deviation", "range", "final length", "generated a problem"]
    return table(head, lines)
