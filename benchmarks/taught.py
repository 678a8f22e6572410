"""What a run's updates reinforce: right answers, form, or short ones.

    python benchmarks/taught.py runs/main/grpo/seed_0 --steps 10 10 20

For each block of steps, from the pair records (`trainer.rollout_data_dir`): the groups, those that train, and those of
them without a right answer. Then the difference between the reinforced completions (positive advantage) and the
suppressed ones, each weighted with its advantage: in the share of right answers, in that of the form asked for, and
in tokens. Once as `agon.live_groups=reward` has it, and once as `correctness` has it: the same completions, so the
second is what that setting would have taught at this point, not what a run with it would have become.
"""

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from agon_verl.game.advantages import group_advantages, live_groups
from agon_verl.health.pair_statistics import LiveBy

MEASURES = ("right", "form", "tokens")


@dataclass(frozen=True)
class Completion:
    group: str
    reward: float
    right: float
    form: float
    tokens: float


def completions(record: dict) -> list[Completion]:
    """Both sides of a pair. Of GRPO, whose player reads nothing of its own, they are in one group."""
    pair, alone = record["pair"], record["drafter"] == record["challenger"] and record["attempt"]["shown"] is None
    return [
        Completion(
            record["uid"] if alone else f"{record['uid']} {role}",
            pair[f"{role}_reward"],
            pair[role]["correct"],
            pair[role]["format"],
            pair[role]["length"],
        )
        for role in ("draft", "challenge")
    ]


def of_steps(folder: Path, steps: Iterable[int]) -> list[Completion]:
    made = []
    for step in steps:
        with (folder / "pairs" / f"{step}.jsonl").open(encoding="utf-8") as lines:
            made += [each for line in lines for each in completions(json.loads(line))]
    return made


def trained(made: Sequence[Completion], by: LiveBy) -> list[Completion]:
    value: Callable[[Completion], float] = (lambda c: c.reward) if by == "reward" else (lambda c: c.right)
    live = live_groups([value(c) for c in made], [c.group for c in made])
    return [c for c in made if c.group in live]


def reinforced(made: Sequence[Completion]) -> dict[str, float]:
    """How the reinforced completions differ from the suppressed ones; both have the same total advantage."""
    advantages = group_advantages([c.reward for c in made], [c.group for c in made])
    total = sum(map(abs, advantages)) / 2
    return {name: sum(a * getattr(c, name) for a, c in zip(advantages, made, strict=True)) / total for name in MEASURES}


def row(made: Sequence[Completion], by: LiveBy) -> str:
    live = trained(made, by)
    names = {c.group for c in live}
    wrong = names - {c.group for c in live if c.right >= 1}
    differences = reinforced(live) if live else dict.fromkeys(MEASURES, 0.0)
    right, form, tokens = (
        round(differences[name] * scale) for name, scale in zip(MEASURES, (100, 100, 1), strict=True)
    )
    shown = f"{right:+} % | {form:+} % | {tokens:+}"
    return f"{by} | {len({c.group for c in made})} | {len(names)} | {len(wrong)} | {shown}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, nargs="+", help="folders with pairs/<step>.jsonl")
    parser.add_argument("--steps", type=int, nargs="+", required=True, help="sizes of the blocks, from step 1 on")
    options = parser.parse_args()
    print("| run | steps | live groups by | groups | train | of these without a right answer | right | form | tokens |")
    print("|---|---|---|---|---|---|---|---|---|")
    for folder in options.run:
        first = 1
        for size in options.steps:
            made = of_steps(folder, range(first, first + size))
            for by in get_args(LiveBy):
                print(f"| {folder} | {first}–{first + size - 1} | {row(made, by)} |")
            first += size


if __name__ == "__main__":
    main()
