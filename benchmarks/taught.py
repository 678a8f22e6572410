"""What a run's updates reinforce: right answers, form, or short ones.

    PYTHONPATH=. python benchmarks/taught.py runs/main/grpo/seed_0 --steps 10 10 20

For each block of steps, from the pair records (`trainer.rollout_data_dir`): the groups, those that train, and those of
them without a right answer. Then the difference between the reinforced completions (positive advantage) and the
suppressed ones, each weighted with its advantage: in the share of right answers, in that of the form asked for, and
in tokens. Once as `agon.live_groups=reward` has it, and once as `correctness` has it: the same completions, so the
second is what that setting would have taught at this point, not what a run with it would have become. Drafts by guests
train nobody and are left out; an adapter that is frozen (`agon.lr`) is shown as if it trained.
"""

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from agon_verl.game.advantages import LiveBy, group_advantages, live_groups

MEASURES = ("right", "form", "tokens")


@dataclass(frozen=True)
class Completion:
    group: str
    reward: float
    right: float
    form: float
    tokens: float


def completions(records: Sequence[dict]) -> list[Completion]:
    """Both sides of each pair. Of GRPO, where one player reads nothing in any of them, they are in one group."""
    grpo = all(each["drafter"] == each["challenger"] and each["attempt"]["shown"] is None for each in records)
    return [
        Completion(
            each["uid"] if grpo else f"{each['uid']} {role}",
            each["pair"][f"{role}_reward"],
            each["pair"][role]["correct"],
            each["pair"][role]["format"],
            each["pair"][role]["length"],
        )
        for each in records
        for role in ("draft", "challenge")
        if not (role == "draft" and each["pair"]["guest"])
    ]


def of_steps(folder: Path, steps: Iterable[int]) -> list[Completion]:
    records: list[dict] = []
    for step in steps:
        with (folder / "pairs" / f"{step}.jsonl").open(encoding="utf-8") as lines:
            records += map(json.loads, lines)
    return completions(records)


def trained(made: Sequence[Completion], by: LiveBy) -> list[Completion]:
    verdicts = [c.right for c in made] if by == "correctness" else None
    live = live_groups([c.reward for c in made], [c.group for c in made], verdicts)
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
