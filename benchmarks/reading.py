"""What reading does to a challenge, from a run's pair records (`trainer.rollout_data_dir`), or from an evaluation.

    PYTHONPATH=. python benchmarks/reading.py runs/main_2/agon/seed_0 --steps 10 20 10
    PYTHONPATH=. python benchmarks/reading.py runs/main_2/agon/seed_0/eval --held-out

For each block of steps and each direction: the drafts without a summary, whose challengers read nothing (blank), and of
the other challenges those that name what they read ("attempt" or "opponent", which the prompt calls it). Then how much
more often challenges are right after a draft of one kind than after one of another kind of the same problem, in points,
with an interval over problems and their number. Which draft a challenge of a problem reads is chance, so a difference
is what reading does, and not that easy problems have both right drafts and right challenges. A reader that ignores all
drafts has 0 everywhere; one that keeps each draft's answer has 100 between right and wrong.

With `--held-out` the folder is that of an evaluation in the modes A, B, A_to_B and B_to_A, complete samples of its
reported problems. There the challenger has answered the same problem alone as well, so what it does after a draft is
compared with that: how often it is right after drafts of a kind, alone on the same samples, and the difference. The
last row of a direction has right minus wrong drafts of one problem, as above, and the same of the answers alone, which
read nothing: what is left there is chance.
"""

import argparse
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean

from agon_verl.evaluate.results import Results
from agon_verl.evaluate.statistics import paired
from agon_verl.game.attempt import nothing_to_read

NAMES = re.compile(r"\b(attempt|opponent)", re.IGNORECASE)


def of_steps(folder: Path, steps: Iterable[int]) -> list[dict]:
    return [
        json.loads(line) for step in steps for line in (folder / "pairs" / f"{step}.jsonl").read_text().splitlines()
    ]


def kind(record: dict) -> str:
    if nothing_to_read(record["attempt"]["shown"]):
        return "blank"
    return "right" if record["pair"]["draft"]["correct"] >= 1 else "wrong"


Case = tuple[str, bool, bool]  # the problem; whether the challenge and the answer alone are right
KINDS = {"right": ["right"], "wrong": ["wrong"], "nothing to read": ["blank"], "all": ["right", "wrong", "blank"]}


def held_out(folder: Path) -> Iterator[str]:
    """A row for each direction and kind of draft."""
    results = Results.read(folder)
    lines = (json.loads(line) for line in (folder / "generations.jsonl").read_text().splitlines())
    made = {(each["mode"], each["problem"], each["sample"]): each for each in lines}
    problems = [problem for each in results.sets.values() for problem in next(iter(each.outcomes.values()))]
    for drafter, challenger in (("A", "B"), ("B", "A")):
        cases: dict[str, list[Case]] = defaultdict(list)
        for key in [(problem, sample) for problem in problems for sample in range(results.samples)]:
            modes = (drafter, challenger, f"{drafter}_to_{challenger}")
            draft, alone, challenge = (made[(mode, *key)] for mode in modes)
            read = "blank" if nothing_to_read(challenge["shown"]) else "right" if draft["acc"] >= 1 else "wrong"
            cases[read].append((key[0], challenge["acc"] >= 1, alone["acc"] >= 1))
        for name, kinds in KINDS.items():
            yield f"{drafter} → {challenger} | {name} | {_compared([case for each in kinds for case in cases[each]])}"
        after, alone = (
            points(by_problem(cases["right"], column), by_problem(cases["wrong"], column)) for column in (1, 2)
        )
        yield f"{drafter} → {challenger} | right − wrong | | {after} | {alone} | "


def by_problem(cases: Sequence[Case], column: int) -> dict[str, list[int]]:
    outcomes: dict[str, list[int]] = defaultdict(list)
    for case in cases:
        outcomes[case[0]].append(int(case[column]))
    return outcomes


def _compared(cases: Sequence[Case]) -> str:
    sides = [by_problem(cases, column) for column in (1, 2)]
    shares = [f"{sum(map(sum, side.values())) / len(cases):.0%}" if cases else "–" for side in sides]
    return " | ".join([str(len(cases)), *shares, points(*sides)])


def difference(records: Sequence[dict], first: Sequence[str], second: Sequence[str]) -> str:
    """Each problem counts once, with the mean of its challenges after either kind."""

    def outcomes(kinds: Sequence[str]) -> dict[str, list[int]]:
        by_problem: dict[str, list[int]] = defaultdict(list)
        for each in records:
            if kind(each) in kinds:
                by_problem[each["uid"]].append(int(each["pair"]["challenge"]["correct"] >= 1))
        return by_problem

    return points(outcomes(first), outcomes(second))


def points(first: Mapping[str, Sequence[int]], second: Mapping[str, Sequence[int]]) -> str:
    test = paired(first, second)
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
    parser.add_argument("run", type=Path, nargs="+", help="folders with pairs/<step>.jsonl, or of evaluations")
    kinds = parser.add_mutually_exclusive_group(required=True)
    kinds.add_argument("--steps", type=int, nargs="+", help="sizes of the blocks, from step 1 on")
    kinds.add_argument("--held-out", action="store_true", help="the folders are those of evaluations")
    options = parser.parse_args()
    if options.held_out:
        print("| evaluation | direction | draft | cases | right after it | alone | difference, problems |")
        print("|---" * 7 + "|")
        for folder in options.run:
            print("\n".join(f"| {folder} | {row} |" for row in held_out(folder)))
        return
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
