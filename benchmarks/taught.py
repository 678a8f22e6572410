"""What a run's updates reinforce: right answers, form, or short ones.

    PYTHONPATH=. python benchmarks/taught.py runs/main/grpo/seed_0 --steps 10 10 20

For each block of steps, from the pair records (`trainer.rollout_data_dir`): the groups, those that train, and those of
them without a right answer. Then the difference between the reinforced completions (positive advantage) and the
suppressed ones, each weighted with its advantage: in the share of right answers, in that of the form asked for, and
in tokens. Once as `agon.live_groups=reward` has it, and once as `correctness` has it: the same completions, so the
second is what that setting would have taught at this point, not what a run with it would have become. Drafts by guests
train nobody and are left out; an adapter that is frozen (`agon.lr`) is shown as if it trained.

`--summaries` prints what each adapter writes between its reasoning and its answer, in drafts and in challenges: of the
completions that close their reasoning, how many have nothing there; then, in the groups that train by correctness, by
how much reinforced completions differ from suppressed ones in that share and in characters, with the standard error of
the mean over groups. The next player reads what a draft has there. Nobody reads that of a challenge.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import get_args

from agon_verl.game import transcript
from agon_verl.game.advantages import LiveBy, group_advantages, live_groups
from agon_verl.game.attempt import nothing_to_read

MEASURES = ("right", "form", "tokens")
GROUPS = "live groups by | groups | train | of these without a right answer | right | form | tokens"
SUMMARIES = "by | closed | nothing | groups | reinforced − suppressed: nothing, points | characters"


@dataclass(frozen=True)
class Completion:
    group: str
    reward: float
    right: float
    form: float
    tokens: float
    by: str = ""  # the adapter and the role: "B draft"
    summary: int | None = None  # characters between reasoning and answer, if the reasoning is closed


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
            f"{each['drafter' if role == 'draft' else 'challenger']} {role}",
            summary_of(each[role], each["reasoning_tags"]),
        )
        for each in records
        for role in ("draft", "challenge")
        if not (role == "draft" and each["pair"]["guest"])
    ]


def summary_of(completion: str, tags: Sequence[str]) -> int | None:
    opening, closing = tags
    parts = transcript.read(completion, tags=(opening, closing))
    if parts.reasoning is None or closing not in completion:
        return None
    text = (parts.summary or "").partition("<answer>")[0].strip()
    return 0 if nothing_to_read(text) else len(text)


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


def summaries(made: Sequence[Completion]) -> Iterator[str]:
    """A row for each adapter and role."""
    for by in sorted({c.by for c in made}):
        closed = [c for c in made if c.by == by and c.summary is not None]
        nothing: list[float] = []
        characters: list[float] = []
        for high, low in sides([c for c in trained(made, "correctness") if c.by == by]):
            nothing.append(100 * (mean(c.summary == 0 for c in high) - mean(c.summary == 0 for c in low)))
            characters.append(mean(c.summary or 0 for c in high) - mean(c.summary or 0 for c in low))
        share = f"{100 * mean(c.summary == 0 for c in closed):.0f} %" if closed else "–"
        yield f"{by} | {len(closed)} | {share} | {len(nothing)} | {_with_error(nothing)} | {_with_error(characters)}"


def sides(made: Sequence[Completion]) -> Iterator[tuple[list[Completion], list[Completion]]]:
    """Of each group, the completions above its mean reward and those below, of those that close their reasoning."""
    groups: dict[str, list[Completion]] = defaultdict(list)
    for completion in made:
        groups[completion.group].append(completion)
    for group in groups.values():
        middle = mean(c.reward for c in group)
        closed = [c for c in group if c.summary is not None]
        high, low = [c for c in closed if c.reward > middle], [c for c in closed if c.reward < middle]
        if high and low:
            yield high, low


def _with_error(values: Sequence[float]) -> str:
    return f"{mean(values):+.0f} ± {stdev(values) / len(values) ** 0.5:.0f}" if len(values) > 1 else "–"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, nargs="+", help="folders with pairs/<step>.jsonl")
    parser.add_argument("--steps", type=int, nargs="+", required=True, help="sizes of the blocks, from step 1 on")
    parser.add_argument("--summaries", action="store_true", help="what is written between reasoning and answer")
    options = parser.parse_args()
    print(f"| run | steps | {SUMMARIES if options.summaries else GROUPS} |")
    print("|---|---|---|---|---|---|---|---|" + "---|" * (not options.summaries))
    for folder in options.run:
        first = 1
        for size in options.steps:
            made = of_steps(folder, range(first, first + size))
            for each in summaries(made) if options.summaries else [row(made, by) for by in get_args(LiveBy)]:
                print(f"| {folder} | {first}–{first + size - 1} | {each} |")
            first += size


if __name__ == "__main__":
    main()
