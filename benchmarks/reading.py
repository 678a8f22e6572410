"""What reading does to a challenge, from a run's pair records (`trainer.rollout_data_dir`).

    PYTHONPATH=. python benchmarks/reading.py runs/main_2/agon/seed_0 --steps 10 20 10

For each block of steps and each direction: the drafts without a summary, and the challenges that name what they read
("attempt" or "opponent", which the prompt calls it). Then, over the problems with a right and a wrong draft that showed
a summary, how often challenges are right after a right draft and after a wrong one of the same problem. Which draft a
challenge of a problem reads is chance, so the difference is what it takes from the draft, and not that easy problems
have both right drafts and right challenges. A reader that ignores all drafts has 0, one that keeps each draft's answer
100 points. It does not say whether reading helps: compare a cascade with one adapter alone for that.
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


def row(records: Sequence[dict]) -> str:
    read = [each for each in records if each["attempt"]["shown"] is not None]
    right: dict[str, list[int]] = defaultdict(list)
    wrong: dict[str, list[int]] = defaultdict(list)
    for each in read:
        after = right if each["pair"]["draft"]["correct"] >= 1 else wrong
        after[each["uid"]].append(int(each["pair"]["challenge"]["correct"] >= 1))
    blank = f"{1 - len(read) / len(records):.0%}"
    named = f"{mean(bool(NAMES.search(each['challenge'])) for each in read):.0%}" if read else "–"
    test = paired(right, wrong)
    if test is None:
        return f"{blank} | {named} | 0 | – | – | –"
    both = right.keys() & wrong.keys()
    shares = [100 * mean(mean(after[uid]) for uid in both) for after in (right, wrong)]
    around = f" ({100 * test.interval.low:+.0f} to {100 * test.interval.high:+.0f})" if test.interval else ""
    difference = f"{100 * test.difference:+.0f}{around}"
    return f"{blank} | {named} | {len(both)} | {shares[0]:.0f} % | {shares[1]:.0f} % | {difference}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, nargs="+", help="folders with pairs/<step>.jsonl")
    parser.add_argument("--steps", type=int, nargs="+", required=True, help="sizes of the blocks, from step 1 on")
    options = parser.parse_args()
    print("| run | steps | direction | no summary | named | problems | right: after right | wrong | points (95 %) |")
    print("|---|---|---|---|---|---|---|---|---|")
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
