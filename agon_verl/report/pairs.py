"""The pair records of a run: how often each reward was earned, and a few pairs to read.

Files are read line by line, because those of a long run do not fit into memory. The pairs to read are drawn with a
fixed seed from all pairs of a kind, so the same files give the same pairs.
"""

import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agon_verl.game.transcript import REASONING_TAGS
from agon_verl.game.withhold import WITHHELD

KINDS = {"conversion": "conversion", "damage": "damage", "right": "both right", "wrong": "both wrong"}
_KIND = {(False, True): "conversion", (True, False): "damage", (True, True): "right", (False, False): "wrong"}
_MAX_CHARACTERS = 4_000  # of one part of a text
_MAX_SPANS = 60


@dataclass(frozen=True)
class Span:
    """A part of a text. `mark` is "private", "withheld", "cut", or "" for text that the challenger read."""

    text: str
    mark: str = ""


@dataclass(frozen=True)
class Stage:
    adapter: str
    right: bool
    facts: str
    text: list[Span]


@dataclass(frozen=True)
class Card:
    """A pair to read. `shown` is empty if the draft has no summary."""

    kind: str
    method: str
    run: str
    step: int
    problem: str
    truth: str
    draft: Stage
    shown: list[Span]
    challenge: Stage


@dataclass
class PairView:
    """The pairs of one method.

    `rewards` counts, per step, the challenges with each reward R − λφ; `read` counts the pairs whose challenger read a
    draft; `unreadable` counts lines that are not a pair record, such as the last line of a killed run.
    """

    read: int = 0
    unreadable: int = 0
    rewards: dict[int, Counter[float]] = field(default_factory=dict)
    format_weights: set[float] = field(default_factory=set)
    cards: list[Card] = field(default_factory=list)


def read_pairs(method: str, runs: Mapping[str, Sequence[Path]], per_kind: int) -> PairView:
    """All pairs of a method, with `per_kind` cards of each kind. `runs` has the files of each run."""
    view, rng = PairView(), random.Random(0)
    cards: dict[str, list[Card]] = {kind: [] for kind in KINDS}
    candidates: Counter[str] = Counter()
    for run, path in [(run, path) for run, paths in runs.items() for path in paths]:
        with path.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                try:
                    record = json.loads(line)
                    kind = _count(record, view)
                    if not _was_read(record["pair"]):
                        continue
                    view.read += 1
                    candidates[kind] += 1
                    if len(cards[kind]) < per_kind:
                        cards[kind].append(_card(kind, method, run, record))
                    elif (place := rng.randrange(candidates[kind])) < per_kind:
                        cards[kind][place] = _card(kind, method, run, record)
                except (KeyError, TypeError, ValueError, AttributeError):
                    view.unreadable += 1
    view.cards = [card for kind in KINDS for card in sorted(cards[kind], key=lambda card: (card.step, card.run))]
    return view


def _count(record: Mapping[str, Any], view: PairView) -> str:
    """Counts the reward of a challenge; returns the kind of the pair."""
    pair, weight = record["pair"], _format_weight(record)
    draft, challenge, step = pair["draft"], pair["challenge"], int(record["step"])
    kind = _KIND[draft["correct"] >= 1, challenge["correct"] >= 1]
    reward = round(pair["challenge_reward"] - weight * challenge["format"], 2) + 0.0
    view.rewards.setdefault(step, Counter())[reward] += 1
    view.format_weights.add(weight)
    return kind


def _format_weight(record: Mapping[str, Any]) -> float:
    """λ. Records of older versions do not have it; there the draft's reward 2c + λφ gives it, unless φ = 0."""
    if "format_weight" in record:
        return float(record["format_weight"])
    draft, reward = record["pair"]["draft"], record["pair"]["draft_reward"]
    return round((reward - 2 * draft["correct"]) / draft["format"], 4) if draft["format"] > 0 else 0.5


def _was_read(pair: Mapping[str, Any]) -> bool:
    """Some methods give both adapters the plain problem; in others even a missing summary lengthens the prompt."""
    return bool(pair.get("opponent_tokens")) or pair["challenge_prompt_tokens"] != pair["draft_prompt_tokens"]


def _card(kind: str, method: str, run: str, record: Mapping[str, Any]) -> Card:
    pair, attempt = record["pair"], record.get("attempt") or {}
    draft, shown = str(record.get("draft", "")), attempt.get("shown") or ""
    closing_tag = str((record.get("reasoning_tags") or REASONING_TAGS)[1])
    read = [f"read {attempt.get('tokens', 0):,} tokens", f"{100 * pair.get('copied', 0):.0f} % copied"]
    read += [word for key, word in (("cut", "cut to fit"), ("leaked", "answer leaked")) if attempt.get(key)]
    return Card(
        kind,
        method,
        run,
        int(record["step"]),
        _shorten(str(record.get("problem", "")).strip()),
        _shorten(str(record.get("ground_truth", "")), 300),
        _stage(record, "draft", mark_hidden(draft, shown, closing_tag), ["by a guest"] if pair.get("guest") else []),
        _shorten_spans(mark_withheld(shown)),
        _stage(record, "challenge", [Span(str(record.get("challenge", "")))], read if shown else []),
    )


def _stage(record: Mapping[str, Any], name: str, text: list[Span], facts: Sequence[str]) -> Stage:
    pair = record["pair"]
    facts = [f"reward {pair[f'{name}_reward']:g}", f"{pair[name]['length']:,} tokens", *facts]
    adapter = str(record.get({"draft": "drafter", "challenge": "challenger"}[name], "?"))
    return Stage(adapter, pair[name]["correct"] >= 1, " · ".join(facts), _shorten_spans(text))


def mark_withheld(shown: str) -> list[Span]:
    """The text that the challenger read, with the places where an answer was withheld."""
    spans: list[Span] = []
    for i, part in enumerate(shown.split(WITHHELD)):
        spans += [Span("answer withheld", "withheld")] if i else []
        spans += [Span(part)] if part else []
    return spans


def mark_hidden(draft: str, shown: str, closing_tag: str = REASONING_TAGS[1]) -> list[Span]:
    """The draft, with the parts marked that the challenger did not read.

    The shown text is the end of the draft without its answers, so its parts are searched from the end. If one is not
    in the draft, the shown text was changed in some other way, and only the reasoning is marked.
    """
    if not shown:
        return [Span(draft, "private")]
    closing = draft.rfind(closing_tag)
    start = closing + len(closing_tag) if closing >= 0 else 0
    parts, end, places = [part.strip() for part in shown.split(WITHHELD)], len(draft), []
    for part in filter(None, reversed(parts)):
        if len(parts) > _MAX_SPANS or (at := draft.rfind(part, start, end)) < 0:
            return _spans((draft[:start], "private"), (draft[start:], ""))
        places.append((at, at + len(part)))
        end = at
    if not places:
        return _spans((draft[:start], "private"), (draft[start:], "withheld"))
    if not start and parts[0]:  # no closing tag: the reasoning ends where the summary begins
        start = places[-1][0]
    spans, cursor = [(draft[:start], "private")], start
    for at, after in reversed(places):
        spans += [(draft[cursor:at], "withheld"), (draft[at:after], "")]
        cursor = after
    return _spans(*spans, (draft[cursor:], "cut" if parts[-1] else "withheld"))


def _spans(*texts: tuple[str, str]) -> list[Span]:
    """Leading white space is not marked; empty spans are dropped."""
    parts = [(text[: len(text) - len(text.lstrip())], text.lstrip(), mark) for text, mark in texts]
    return [Span(*span) for blank, text, mark in parts for span in ((blank, ""), (text, mark)) if span[0]]


def _shorten_spans(spans: Sequence[Span]) -> list[Span]:
    omitted = len(spans) - _MAX_SPANS
    more = [Span(f"\n… {omitted:,} more parts omitted …")] if omitted > 0 else []
    return [Span(_shorten(span.text), span.mark) for span in spans[:_MAX_SPANS]] + more


def _shorten(text: str, characters: int = _MAX_CHARACTERS) -> str:
    """The beginning and the end of a long text."""
    if len(text) <= characters:
        return text
    head, tail = characters * 2 // 3, characters // 3
    return f"{text[:head]}\n… {len(text) - head - tail:,} characters omitted …\n{text[-tail:]}"
