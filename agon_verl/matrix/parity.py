"""Whether all runs had the same budget: 2N rollouts a problem, by what was really generated."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def steps(metrics: Path) -> list[dict[str, Any]]:
    """What each training step logged; of a step that was run again after a stop, the last."""
    found: dict[int, dict[str, Any]] = {}
    for line in metrics.read_text().splitlines() if metrics.exists() else []:
        if line.endswith("}"):  # a run may be killed in the middle of a line
            told = json.loads(line)
            if "ledger/rollouts" in told["data"]:
                found[told["step"]] = told["data"]
    return [found[step] for step in sorted(found)]


def parity(logged: Sequence[dict[str, Any]], n: int, problems: int) -> str:
    """`ok`, or how the run departs from 2N rollouts on each of `problems` problems."""
    if not logged:
        return "no step was logged"
    for number, step in enumerate(logged, start=1):
        made, drawn = step["ledger/rollouts"], step["ledger/problems"]
        if made != 2 * n * drawn:
            return f"step {number} generated {made:.0f} rollouts for {drawn:.0f} problems, not {2 * n * drawn:.0f}"
    seen = sum(step["ledger/problems"] for step in logged)
    return "ok" if seen == problems else f"it saw {seen:.0f} problems, not {problems}"
