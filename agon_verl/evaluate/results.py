"""What the generations say: a summary of each mode, tests between modes, and the direction of the cascade.

A completion is right when c = 1, as in training's statistics: partial credit counts as wrong. An answer whose judge
failed is in the ledger, for its tokens were generated, and in nothing else. The ledger counts what a mode would cost
alone: a first stage that modes share is in each of them. Prefix caching is not subtracted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from agon_verl.evaluate import statistics
from agon_verl.evaluate.play import MOA, answers
from agon_verl.evaluate.store import Generation, Store
from agon_verl.health.pair_statistics import mean
from agon_verl.pair.direction import DIRECTIONS

Outcomes = dict[str, list[bool]]  # by problem, a value a sample


@dataclass(frozen=True)
class Answer:
    draft: Generation | None
    final: Generation

    @property
    def right(self) -> bool | None:
        return right(self.final)


def right(generation: Generation | None) -> bool | None:
    """`None` where nobody knows."""
    return None if generation is None or generation.acc is None else generation.acc >= 1.0


def collect(store: Store, mode: str, problems: Sequence[str], samples: int, names: tuple[str, ...]) -> list[Answer]:
    def known(key: Any) -> Generation:
        if (found := store.get(key)) is None:
            raise KeyError(f"{key} was not generated")
        return found

    keys = [pair for p in problems for s in range(samples) for pair in answers(mode, p, s, names)]
    return [Answer(known(draft) if draft else None, known(final)) for draft, final in keys]


def outcomes(found: Sequence[Answer]) -> Outcomes:
    by_problem: Outcomes = {}
    for answer in found:
        if answer.right is not None:
            by_problem.setdefault(answer.final.problem, []).append(answer.right)
    return by_problem


def pass_at_1(by_problem: Mapping[str, Sequence[bool]]) -> float | None:
    """The mean over problems of the share of right samples."""
    return mean([sum(row) / len(row) for row in by_problem.values()])


def summary(mode: str, found: Sequence[Answer], samples: int) -> dict[str, Any]:
    by_problem = outcomes(found)
    judged = [answer for answer in found if answer.right is not None]
    told: dict[str, Any] = {
        "problems": len(by_problem),
        "answers": len(judged),
        "left_out": len(found) - len(judged),
        "pass@1": pass_at_1(by_problem),
        "interval": asdict(statistics.interval(list(by_problem.values()))) if by_problem else None,
        "length": mean([a.final.tokens for a in judged]),
        "truncated": mean([a.final.finish == "length" for a in judged]),
        "format": mean([a.final.format for a in judged if a.final.format is not None]),
        "ledger": ledger(found, passes=len(found) // (2 if mode == MOA else 1)),
    }
    if samples > 1 and mode != MOA:  # both agents of a mixture read the same drafts: theirs are no independent samples
        told.update(_of_samples(judged, by_problem, samples))
    if any(answer.draft for answer in found):
        told["exchange"] = exchange(judged)
    return told


def _of_samples(judged: Sequence[Answer], by_problem: Outcomes, samples: int) -> dict[str, Any]:
    first = [a.right for a in judged if a.final.sample == 0]
    ks = [k for k in (2**i for i in range(1, samples.bit_length())) if k < samples] + [samples]
    votes: dict[str, list[tuple[str, bool]]] = {}
    for answer in judged:
        votes.setdefault(answer.final.problem, []).append((answer.final.pred.strip(), bool(answer.right)))
    return {
        "first_sample": {
            "pass@1": mean([bool(r) for r in first]),
            "interval": asdict(statistics.clopper_pearson(sum(map(bool, first)), len(first))) if first else None,
        },
        "pass@k": {
            k: mean([statistics.pass_at(k, sum(row), len(row)) for row in by_problem.values() if len(row) >= k])
            for k in ks
        },
        "majority": mean([statistics.majority(row) for row in votes.values()]),
    }


def exchange(judged: Sequence[Answer]) -> dict[str, Any]:
    """What the second stage makes of right and of wrong drafts, and how long it is after either."""
    of = {r: [a for a in judged if right(a.draft) is r] for r in (True, False)}
    converted = sum(bool(a.right) for a in of[False])
    damaged = sum(not a.right for a in of[True])
    return {
        "right_drafts": len(of[True]),
        "wrong_drafts": len(of[False]),
        "converted": converted,
        "damaged": damaged,
        "conversion": converted / len(of[False]) if of[False] else None,
        "damage": damaged / len(of[True]) if of[True] else None,
        "length_given_right_draft": mean([a.final.tokens for a in of[True]]),
        "length_given_wrong_draft": mean([a.final.tokens for a in of[False]]),
    }


def ledger(found: Sequence[Answer], passes: int) -> dict[str, Any]:
    """Tokens of each stage, and of one pass over one problem."""
    stages = {"draft": [a.draft for a in found if a.draft], "final": [a.final for a in found]}
    told: dict[str, Any] = {
        stage: {"generated": sum(g.tokens for g in made), "prefilled": sum(g.prompt_tokens for g in made)}
        for stage, made in stages.items()
        if made
    }
    told["per_pass"] = {
        kind: sum(stage[kind] for stage in told.values()) / passes if passes else None
        for kind in ("generated", "prefilled")
    }
    return told


def between(by_mode: Mapping[str, Outcomes]) -> list[dict[str, Any]]:
    """Each mode against each after it, on the problems that both have a verdict on."""
    names = list(by_mode)
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    return [{"first": a, "second": b, **found} for a, b in pairs if (found := compared(by_mode[a], by_mode[b]))]


def compared(first: Outcomes, second: Outcomes) -> dict[str, Any] | None:
    shared = [problem for problem in first if problem in second]
    if not shared:
        return None
    return asdict(statistics.paired([first[p] for p in shared], [second[p] for p in shared]))


def better(by_mode: Mapping[str, Outcomes]) -> str | None:
    """The direction with the higher pass@1, the first of equals; `None` without both."""
    found = {d: pass_at_1(by_mode[d]) for d in DIRECTIONS if by_mode.get(d)}
    if len(found) < len(DIRECTIONS):
        return None
    return max(found, key=lambda d: found[d] or 0.0)


def set_results(
    store: Store, problems: Sequence[str], modes: Sequence[str], samples: int, names: tuple[str, ...]
) -> dict[str, Any]:
    found = {mode: collect(store, mode, problems, samples, names) for mode in modes}
    by_mode = {mode: outcomes(given) for mode, given in found.items()}
    return {
        "problems": len(problems),
        "modes": {mode: summary(mode, given, samples) for mode, given in found.items()},
        "tests": between(by_mode),
        "post_hoc": better(by_mode),
        "outcomes": {m: {p: [int(r) for r in row] for p, row in rows.items()} for m, rows in by_mode.items()},
    }
