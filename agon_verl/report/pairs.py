"""The pairs of a run: how often each reward was paid, and a few to read.

Files are read line by line, for a long run's do not fit into memory. The choice is drawn with a fixed seed from all
pairs of a kind, so that it is the same for the same files and nobody's pick.

The ladder is R - lambda phi. Lambda is not in the records, and is taken from the drafts, whose R is 2 c + lambda phi.
"""

import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agon_verl.game.withhold import WITHHELD

KINDS = {"conversion": "conversion", "damage": "damage", "right": "both right", "wrong": "both wrong"}
_KIND = {(False, True): "conversion", (True, False): "damage", (True, True): "right", (False, False): "wrong"}
_CLOSING = ("</think>", "<channel|>")
_FORMAT_WEIGHT = 0.5  # the default, where no draft tells
LONGEST = 4_000  # characters of one part of a text
_MOST_SPANS = 60


@dataclass(frozen=True)
class Span:
    """A part of a text; `mark` says why it stands out: "private", "withheld", "cut", or "" for as it is."""

    text: str
    mark: str = ""


@dataclass(frozen=True)
class Card:
    """A pair to read."""

    kind: str
    method: str
    run: str
    step: int
    drafter: str
    challenger: str
    problem: str
    truth: str
    draft: list[Span]
    shown: list[Span]  # empty where the draft had no summary
    challenge: list[Span]
    draft_right: bool
    challenge_right: bool
    draft_facts: str
    challenge_facts: str


@dataclass
class Reading:
    """`rewards`: by step, how often a challenge had this reward and this format term. `read`: pairs of a read draft."""

    pairs: int = 0
    read: int = 0
    unreadable: int = 0
    rewards: dict[int, Counter[tuple[float, float]]] = field(default_factory=dict)
    cards: list[Card] = field(default_factory=list)
    _weights: Counter[float] = field(default_factory=Counter)

    @property
    def format_weight(self) -> float:
        return self._weights.most_common(1)[0][0] if self._weights else _FORMAT_WEIGHT

    def ladder(self) -> dict[int, Counter[float]]:
        """By step, how often R - lambda phi had each value."""
        weight = self.format_weight
        told: dict[int, Counter[float]] = {}
        for step, counts in sorted(self.rewards.items()):
            told[step] = Counter()
            for (reward, form), n in counts.items():
                told[step][round(reward - weight * form, 2) + 0.0] += n
        return told


def read_pairs(method: str, runs: Mapping[str, Sequence[Path]], each: int) -> Reading:
    """All pairs of a method; `each` of a kind are kept as cards."""
    reading, rng = Reading(), random.Random(0)
    kept: dict[str, list[tuple[str, dict[str, Any]]]] = {kind: [] for kind in KINDS}
    seen: Counter[str] = Counter()
    for run, record in _records(runs, reading):
        try:
            kind, was_read = _take(record, reading), _was_read(record)
        except (KeyError, TypeError, ValueError, AttributeError):
            reading.unreadable += 1
            continue
        if not was_read:
            continue
        reading.read += 1
        seen[kind] += 1
        if len(kept[kind]) < each:
            kept[kind].append((run, record))
        elif (place := rng.randrange(seen[kind])) < each:
            kept[kind][place] = (run, record)
    for kind in KINDS:
        kept[kind].sort(key=lambda found: (int(found[1]["step"]), found[0]))
        for run, record in kept[kind]:
            try:
                reading.cards.append(card(kind, method, run, record))
            except (KeyError, TypeError, ValueError, AttributeError):
                reading.unreadable += 1
    return reading


def _records(runs: Mapping[str, Sequence[Path]], reading: Reading) -> Iterator[tuple[str, dict[str, Any]]]:
    for run, paths in runs.items():
        for path in paths:
            with path.open(encoding="utf-8", errors="replace") as lines:
                for line in lines:
                    try:
                        yield run, json.loads(line)
                    except ValueError:  # torn, or still being written
                        reading.unreadable += 1


def _take(record: Mapping[str, Any], reading: Reading) -> str:
    pair, step = record["pair"], int(record["step"])
    draft, challenge = pair["draft"], pair["challenge"]
    kind = _KIND[draft["correct"] >= 1, challenge["correct"] >= 1]
    counts = reading.rewards.setdefault(step, Counter())
    counts[float(pair["challenge_reward"]), float(challenge["format"])] += 1
    if draft["format"] > 0:
        reading._weights[round((pair["draft_reward"] - 2 * draft["correct"]) / draft["format"], 4)] += 1
    reading.pairs += 1
    return kind


def _was_read(record: Mapping[str, Any]) -> bool:
    """In some methods both answer the plain problem; a draft without a summary lengthens the prompt by a sentence."""
    pair = record["pair"]
    return bool(pair.get("opponent_tokens")) or pair["challenge_prompt_tokens"] != pair["draft_prompt_tokens"]


def card(kind: str, method: str, run: str, record: Mapping[str, Any]) -> Card:
    pair, attempt = record["pair"], record.get("attempt") or {}
    shown = attempt.get("shown") or ""
    said = [f"{attempt.get('tokens', 0):,} tokens"]
    said += [word for word, holds in (("cut to fit", attempt.get("cut")), ("leaks", attempt.get("leaked"))) if holds]
    draft_facts = [_facts(pair["draft"], pair["draft_reward"]), "of a guest" if pair.get("guest") else ""]
    challenge_facts = [_facts(pair["challenge"], pair["challenge_reward"])]
    if shown:
        challenge_facts += [f"read {', '.join(said)}", f"{100 * pair.get('copied', 0):.0f} % copied"]
    draft = str(record.get("draft", ""))
    return Card(
        kind,
        method,
        run,
        int(record["step"]),
        str(record.get("drafter", "?")),
        str(record.get("challenger", "?")),
        clipped(str(record.get("problem", "")).strip()),
        clipped(str(record.get("ground_truth", "")), 300),
        _bounded(seen_of(draft, shown)),
        _bounded(marked(shown)),
        _bounded([Span(str(record.get("challenge", "")))]),
        pair["draft"]["correct"] >= 1,
        pair["challenge"]["correct"] >= 1,
        " · ".join(filter(None, draft_facts)),
        " · ".join(challenge_facts),
    )


def _facts(outcome: Mapping[str, Any], reward: float) -> str:
    return f"reward {reward:g} · {outcome['length']:,} tokens"


def marked(shown: str) -> list[Span]:
    """What the challenger read, with the places where something was withheld."""
    spans: list[Span] = []
    for i, part in enumerate(shown.split(WITHHELD)):
        spans += [Span("answer withheld", "withheld")] if i else []
        spans += [Span(part)] if part else []
    return spans


def seen_of(draft: str, shown: str) -> list[Span]:
    """The draft with what the challenger did not read marked.

    What was shown stands at the draft's end, so its parts are looked for from there. Where one is not found, the text
    shown is not the draft's word for word, and only the reasoning is marked.
    """
    start = max((at + len(tag) for tag in _CLOSING if (at := draft.rfind(tag)) >= 0), default=0)
    if not shown:
        return [Span(draft, "private")]
    parts, end, places = [part.strip() for part in shown.split(WITHHELD)], len(draft), []
    for part in filter(None, reversed(parts)):
        if len(parts) > _MOST_SPANS or (at := draft.rfind(part, start, end)) < 0:
            return _spans((draft[:start], "private"), (draft[start:], ""))
        places.append((at, at + len(part)))
        end = at
    if not places:
        return _spans((draft[:start], "private"), (draft[start:], "withheld"))
    first = places[-1][0]
    if not start and parts[0]:  # tags of a kind unknown here: the reasoning ends where the summary begins
        start = first
    spans, cursor = [(draft[:start], "private")], start
    for at, after in reversed(places):
        spans += [(draft[cursor:at], "withheld"), (draft[at:after], "")]
        cursor = after
    return _spans(*spans, (draft[cursor:], "cut" if parts[-1] else "withheld"))


def _spans(*given: tuple[str, str]) -> list[Span]:
    """White space before a mark is not marked."""
    parts = [(text[: len(text) - len(text.lstrip())], text.lstrip(), mark) for text, mark in given]
    return [Span(*span) for blank, text, mark in parts for span in ((blank, ""), (text, mark)) if span[0]]


def _bounded(spans: Sequence[Span]) -> list[Span]:
    more = (
        [Span(f"\n… {len(spans) - _MOST_SPANS:,} more parts are left out here …")] if len(spans) > _MOST_SPANS else []
    )
    return [Span(clipped(span.text), span.mark) for span in spans[:_MOST_SPANS]] + more


def clipped(text: str, longest: int = LONGEST) -> str:
    """Beginning and end of a text that is too long for a page."""
    if len(text) <= longest:
        return text
    head, tail = longest * 2 // 3, longest // 3
    return f"{text[:head]}\n… {len(text) - head - tail:,} characters are left out here …\n{text[-tail:]}"
