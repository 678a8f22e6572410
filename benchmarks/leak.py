"""How often an attempt still gives its answer away, with either setting of `agon.withhold`, on the same drafts.

    python benchmarks/leak.py RUN/pairs [MORE …] [--examples 10]

The arguments are the pair records of mathematics runs: files, or folders of `trainer.rollout_data_dir`. Each draft is
withheld again with `announced` and with `value`, before it is cut to fit the prompt, and measured by
`agon_verl/game/domains/leaks.py`: does the attempt contain the draft's answer anywhere, and does it state it as a
result? Drafts without a summary or an answer are counted and left out. The share of the text that is kept does not
count the markers.

The last table is of the pairs as they were played: conversion and damage by whether the attempt stated the answer.
`--examples` prints lines that still state the answer of a right draft with `value`, for reading.
"""

import argparse
import json
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from agon_verl.game import transcript
from agon_verl.game.domains.leaks import contains, states
from agon_verl.game.transcript import REASONING_TAGS
from agon_verl.game.withhold import WITHHELD, Withhold, withhold_answer
from reward_fns.mathematics.restated import comparison

SETTINGS = {setting: comparison(setting) for setting in get_args(Withhold)}


@dataclass(frozen=True)
class Draft:
    """`shown`: the attempt by setting."""

    right: bool
    summary: str
    answer: str
    shown: dict[str, str]


def records(paths: Iterable[Path]) -> Iterator[dict[str, Any]]:
    for path in paths:
        for file in sorted(path.glob("*.jsonl")) if path.is_dir() else [path]:
            with file.open(encoding="utf-8") as lines:
                yield from map(json.loads, lines)


def read(record: dict[str, Any]) -> Draft | None:
    opening, closing = record.get("reasoning_tags") or REASONING_TAGS
    opened = record["problem"].rstrip().endswith(opening)
    ended = record["pair"].get("ended")
    draft = transcript.read(record["draft"], opened=opened, ended=ended, tags=(opening, closing))
    if draft.summary is None or draft.answer is None:
        return None
    shown = {
        name: withhold_answer(draft.summary, "math", draft.answer, same, record["problem"])
        for name, same in SETTINGS.items()
    }
    return Draft(record["pair"]["draft"]["correct"] >= 1, draft.summary, draft.answer, shown)


def share(cases: Sequence[bool]) -> str:
    return f"{100 * sum(cases) / len(cases):.1f} % ({sum(cases)} of {len(cases)})" if cases else "no case"


def text(texts: Iterable[str]) -> int:
    return sum(len(each.replace(WITHHELD, "")) for each in texts)


def leak_table(drafts: Sequence[Draft]) -> Iterator[str]:
    yield "| withhold | drafts | contain the answer | state it as a result | text kept | of what announced keeps |"
    yield "|---|---|---|---|---|---|"
    for name in SETTINGS:
        for kind, group in (
            ("right", [draft for draft in drafts if draft.right]),
            ("wrong", [draft for draft in drafts if not draft.right]),
            ("all", drafts),
        ):
            kept = text(draft.shown[name] for draft in group)
            full = text(draft.summary for draft in group)
            announced = text(draft.shown["announced"] for draft in group)
            yield (
                f"| {name} | {kind} | {share([contains(draft.shown[name], draft.answer) for draft in group])} "
                f"| {share([states(draft.shown[name], draft.answer) for draft in group])} "
                f"| {100 * kept / max(1, full):.1f} % | {100 * kept / max(1, announced):.1f} % |"
            )


def copying_table(played: Sequence[tuple[bool, bool, bool]]) -> Iterator[str]:
    """`played`: whether the attempt states the answer, the draft is right, the challenge is right."""
    yield "| as played | conversion | damage |"
    yield "|---|---|---|"
    for name, stated in (("the attempt states the answer", True), ("it does not", False)):
        conversion = [challenge for case, draft, challenge in played if case == stated and not draft]
        damage = [not challenge for case, draft, challenge in played if case == stated and draft]
        yield f"| {name} | {share(conversion)} | {share(damage)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description="How often attempts give their answer away, by agon.withhold.")
    parser.add_argument("records", type=Path, nargs="+", help="pair records, or folders of them")
    parser.add_argument("--examples", type=int, default=0, help="right drafts that still leak, to print")
    options = parser.parse_args()
    pairs = list(records(options.records))
    drafts = [read(record) for record in pairs]
    readable = [draft for draft in drafts if draft]
    print(f"{len(pairs)} pairs, {len(readable)} of them with a summary and an answer\n")
    print("\n".join(leak_table(readable)), end="\n\n")
    played = [
        (
            states(record["attempt"]["shown"] or "", draft.answer),
            record["pair"]["draft"]["correct"] >= 1,
            record["pair"]["challenge"]["correct"] >= 1,
        )
        for record, draft in zip(pairs, drafts, strict=True)
        if draft
    ]
    print("\n".join(copying_table(played)))
    leaking = [draft for draft in readable if draft.right and states(draft.shown["value"], draft.answer)]
    for draft in random.Random(0).sample(leaking, min(options.examples, len(leaking))):
        print(f"\n--- {draft.answer}")
        print("\n".join(line for line in draft.shown["value"].split("\n") if states(line, draft.answer)))


if __name__ == "__main__":
    main()
