"""Which learning rate of a sweep: the smallest that is within a standard error of the best.

    python benchmarks/learning_rate.py --steps 9 12 2e-5=SWEEP/lr_2e-5/seed_100 5e-5=SWEEP/lr_5e-5/seed_100 …

Each folder is a cell of `agon matrix` with GRPO, all with the same seed and so with the same problems. The measure is
the share of right rollouts in these steps. The standard error is that of the difference to the best rate, paired over
problems. A rate at which the alarm `gap` was raised (rollout and training disagree) is out.
"""

import argparse
import json
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path

from agon_verl.health.alarms import AlarmConfig, Alarms


@dataclass(frozen=True)
class Measured:
    shares: Mapping[str, float]  # of right rollouts, by problem
    alarm: bool

    @property
    def share(self) -> float:
        return statistics.mean(self.shares.values())


def read(cell: Path, first: int, last: int) -> Measured:
    right: dict[str, list[bool]] = defaultdict(list)
    for step in range(first, last + 1):
        with (cell / "pairs" / f"{step}.jsonl").open(encoding="utf-8") as lines:
            for record in map(json.loads, lines):
                right[record["problem"]] += [record["pair"][role]["correct"] >= 1 for role in ("draft", "challenge")]
    alarms = Alarms(AlarmConfig())
    logged = (json.loads(line)["data"] for line in (cell / "metrics.jsonl").read_text().splitlines())
    raised = [alarm.rule.name for metrics in logged for alarm in alarms.update(metrics)]
    return Measured({problem: statistics.mean(each) for problem, each in right.items()}, "gap" in raised)


def behind(best: Measured, other: Measured) -> tuple[float, float]:
    """How far, with its standard error."""
    if best.shares.keys() != other.shares.keys():
        raise SystemExit("the cells have not seen the same problems in these steps")
    differences = [best.shares[problem] - other.shares[problem] for problem in best.shares]
    return statistics.mean(differences), statistics.stdev(differences) / sqrt(len(differences))


def choose(rates: Mapping[float, Measured]) -> float:
    allowed = {rate: measured for rate, measured in rates.items() if not measured.alarm}
    if not allowed:
        raise SystemExit("the alarm `gap` was raised at every rate")
    best = max(allowed.values(), key=lambda measured: measured.share)
    distances = {rate: behind(best, measured) for rate, measured in allowed.items()}
    return min(rate for rate, (distance, error) in distances.items() if distance <= error)


def table(rates: Mapping[float, Measured]) -> str:
    best = max(rates.values(), key=lambda measured: measured.share)
    lines = ["| rate | right | behind the best (standard error), points | alarm `gap` |", "|---|---|---|---|"]
    for rate, measured in sorted(rates.items()):
        distance, error = behind(best, measured)
        alarm = "yes" if measured.alarm else "no"
        lines.append(f"| {rate:g} | {measured.share:.1%} | {100 * distance:.1f} ({100 * error:.1f}) | {alarm} |")
    return "\n".join(lines)


def main(line: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", nargs=2, type=int, metavar=("FIRST", "LAST"), required=True)
    parser.add_argument("cells", nargs="+", metavar="RATE=FOLDER")
    args = parser.parse_args(line)
    cells = dict(cell.split("=", 1) for cell in args.cells)
    rates = {float(rate): read(Path(folder), *args.steps) for rate, folder in cells.items()}
    print(table(rates))
    print(f"chosen: {choose(rates):g}")


if __name__ == "__main__":
    main()
