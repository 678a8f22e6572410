"""What reading does to a challenge, from a run's pair records (`trainer.rollout_data_dir`).

    PYTHONPATH=. python benchmarks/reading.py runs/main_2/agon/seed_0 --steps 10 20 10

For each block of steps and each direction: the drafts without a summary, whose challengers read nothing (blank), and of
the other challenges those that name what they read ("attempt" or "opponent", which the prompt calls it). Then how much
more often challenges are right after a draft of one kind than after one of another kind of the same problem, in points,
with an interval over problems and their number. Which draft a challenge of a problem reads is chance, so a difference
is what reading does, and not that easy problems have both right drafts and right challenges. A reader that ignores all
drafts has 0 everywhere; one that keeps each draft's answer has 100 between right and wrong.
"""

import argparse
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean

from agon_verl.evaluate.statistics import paired

NAMES = re.compile(r"\b(attempt|opponent)", re.IGNORECASE)


def of_steps(folder: Path, steps: Iterable[int]) -> list[dict]:
    return [
        json.loads(line) for step in steps for line in (folder / "pairs" / f"{step}.jsonl").read_text().splitlines()
    ]


def kind(record: dict) -> str:
    if record["attempt"]["shown"] is None:
        return "blank"
    return "right" if record["pair"]["draft"]["correct"] >= 1 else "wrong"


def difference(records: Sequence[dict], first: Sequence[str], second: Sequence[str]) -> str:
    """Each problem counts once, with the mean of its challenges after either kind."""

    def outcomes(kinds: Sequence[str]) -> dict[str, list[int]]:
        by_problem: dict[str, list[int]] = defaultdict(list)
        for each in records:
            if kind(each) in kinds:
                by_problem[each["uid"]].append(int(each["pair"]["challenge"]["correct"] >= 1))
        return by_problem

    test = paired(outcomes(first), outcomes(second))
    if test is None:
        return "–"
    around = f" ({100 * test.interval.low:+.0f} to {100 * test.interval.high:+.0f})" if test.interval else ""
    return f"{100 * test.difference:+.0f}{around}, {test.problems}"


def row(records: Sequence[dict]) -> str:
    read = [each for each in records if kind(each) != "blank"]
    blank = f"{1 - len(read) / len(records):.0%}"
    named = f"{mean(bool(NAMES.search(each['challenge'])) for each in read):.0%}" if read else "–"
    pairs = [(["right"], ["wrong"]), (["right"], ["blank"]), (["wrong"], ["blank"]), (["right", "wrong"], ["blank"])]
    return " | ".join([blank, named, *(difference(records, *pair) for pair in pairs)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, nargs="+", help="folders with pairs/<step>.jsonl")
    parser.add_argument("--steps", type=int, nargs="+", required=True, help="sizes of the blocks, from step 1 on")
    options = parser.parse_args()
    columns = ["run", "steps", "direction", "blank", "named", "right − wrong"]
    columns += [f"{each} − blank" for each in ("right", "wrong", "read")]
    print(f"| {' | '.join(columns)} |")
    print("|---" * len(columns) + "|")
    for folder in options.run:
        first = 1
        for size in options.steps:
            records = of_steps(folder, range(first, first + size))
            for direction in sorted({(each["drafter"], each["challenger"]) for each in records}):
                of_it = [each for each in records if (each["drafter"], each["challenger"]) == direction]
                print(f"| {folder} | {first}–{first + size - 1} | {' → '.join(direction)} | {row(of_it)} |")
            first += size


if __name__ == "__main__":
    main()
