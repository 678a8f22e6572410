"""Whether all runs had the same budget: 2N rollouts per problem, counted from what was generated."""

from collections.abc import Sequence
from pathlib import Path

from agon_verl.pair.run_folder import read_metrics


def steps(metrics: Path) -> list[dict[str, float]]:
    """The metrics of each training step."""
    by_step = read_metrics(metrics).by_step
    return [by_step[step] for step in sorted(by_step) if "ledger/rollouts" in by_step[step]]


def parity(logged: Sequence[dict[str, float]], n: int, problems: int) -> str:
    """`ok`, or how the run differs from 2N rollouts on each of `problems` problems."""
    if not logged:
        return "no step was logged"
    for number, step in enumerate(logged, start=1):
        made, drawn = step["ledger/rollouts"], step["ledger/problems"]
        if made != 2 * n * drawn:
            return f"step {number} generated {made:.0f} rollouts for {drawn:.0f} problems, not {2 * n * drawn:.0f}"
    seen = sum(step["ledger/problems"] for step in logged)
    return "ok" if seen == problems else f"trained on {seen:.0f} problems, not {problems}"
