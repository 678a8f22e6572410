"""From generations to results: a summary of each mode, tests between modes, and the better direction of the cascade.

A completion is right when c = 1, as in training's statistics: partial credit counts as wrong. An answer whose judge
failed is in the ledger, because its tokens were generated, and in nothing else. The ledger counts what a mode would
cost alone: a first stage that modes share is in each of them. Prefix caching is not subtracted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from agon_verl.evaluate import statistics
from agon_verl.evaluate.play import MOA, answers
from agon_verl.evaluate.results import Exchange, FirstSample, Ledger, ModeResults, Outcomes, Paired, SetResults, Tokens
from agon_verl.evaluate.statistics import mean, paired, pass_at_1
from agon_verl.evaluate.store import Generation, Store
from agon_verl.game.attempt import nothing_to_read
from agon_verl.pair.direction import DIRECTIONS


@dataclass(frozen=True)
class Answer:
    draft: Generation | None
    final: Generation

    @property
    def right(self) -> bool | None:
        return right(self.final)


def right(generation: Generation | None) -> bool | None:
    """`None` where the judge failed, or without a generation."""
    return None if generation is None or generation.acc is None else generation.acc >= 1.0


def set_results(
    store: Store, problems: Sequence[str], modes: Sequence[str], samples: int, names: tuple[str, ...]
) -> SetResults:
    collected = {mode: collect(store, mode, problems, samples, names) for mode in modes}
    outcomes = {mode: outcomes_of(answered) for mode, answered in collected.items()}
    return SetResults(
        problems=len(problems),
        modes={mode: mode_results(mode, answered, samples) for mode, answered in collected.items()},
        tests=tests(outcomes),
        post_hoc=better_direction(outcomes),
        outcomes=outcomes,
    )


def collect(store: Store, mode: str, problems: Sequence[str], samples: int, names: tuple[str, ...]) -> list[Answer]:
    made, keys = (
        store.generations,
        [pair for p in problems for s in range(samples) for pair in answers(mode, p, s, names)],
    )
    return [Answer(made[draft] if draft else None, made[final]) for draft, final in keys]


def outcomes_of(answered: Sequence[Answer]) -> Outcomes:
    by_problem: dict[str, list[int]] = {}
    for answer in answered:
        if answer.right is not None:
            by_problem.setdefault(answer.final.problem, []).append(int(answer.right))
    return by_problem


def mode_results(mode: str, answered: Sequence[Answer], samples: int) -> ModeResults:
    outcomes = outcomes_of(answered)
    judged = [answer for answer in answered if answer.right is not None]
    more: dict[str, Any] = {}
    if samples > 1 and mode != MOA:  # both agents of a mixture read the same drafts: their answers are not independent
        more |= sample_results(judged, outcomes, samples)
    if any(answer.draft for answer in answered):
        more["exchange"] = exchange(judged)
    return ModeResults(
        problems=len(outcomes),
        answers=len(judged),
        left_out=len(answered) - len(judged),
        pass_at_1=pass_at_1(outcomes) if outcomes else None,
        interval=statistics.interval(list(outcomes.values())) if outcomes else None,
        length=mean([a.final.tokens for a in judged]),
        truncated=mean([a.final.finish == "length" for a in judged]),
        format=mean([a.final.format for a in judged if a.final.format is not None]),
        ledger=ledger(answered, passes=len(answered) // (2 if mode == MOA else 1)),
        **more,
    )


def sample_results(judged: Sequence[Answer], outcomes: Outcomes, samples: int) -> dict[str, Any]:
    """What several samples per problem add to the results of a mode."""
    first = [bool(a.right) for a in judged if a.final.sample == 0]
    ks = [k for k in (2**i for i in range(1, samples.bit_length())) if k < samples] + [samples]
    votes: dict[str, list[tuple[str, bool]]] = {}
    for answer in judged:
        votes.setdefault(answer.final.problem, []).append((answer.final.pred.strip(), bool(answer.right)))
    interval = statistics.exact_interval(sum(first), len(first)) if first else None
    rows = outcomes.values()
    return {
        "first_sample": FirstSample(pass_at_1=mean(first), interval=interval),
        "pass_at_k": {k: mean([statistics.pass_at(k, sum(r), len(r)) for r in rows if len(r) >= k]) for k in ks},
        "majority": mean([statistics.majority(row) for row in votes.values()]),
    }


def exchange(judged: Sequence[Answer]) -> Exchange:
    after_right, after_wrong = ([a for a in judged if right(a.draft) is r] for r in (True, False))
    converted = sum(bool(a.right) for a in after_wrong)
    damaged = sum(not a.right for a in after_right)
    return Exchange(
        right_drafts=len(after_right),
        wrong_drafts=len(after_wrong),
        converted=converted,
        damaged=damaged,
        conversion=converted / len(after_wrong) if after_wrong else None,
        damage=damaged / len(after_right) if after_right else None,
        length_given_right_draft=mean([a.final.tokens for a in after_right]),
        length_given_wrong_draft=mean([a.final.tokens for a in after_wrong]),
        no_summary=sum(nothing_to_read(a.final.shown) for a in judged),
        no_reasoning=sum(a.final.reasoned is False for a in judged),
    )


def ledger(answered: Sequence[Answer], passes: int) -> Ledger:
    def tokens(generations: Sequence[Generation]) -> Tokens:
        return Tokens(generated=sum(g.tokens for g in generations), prefilled=sum(g.prompt_tokens for g in generations))

    drafts, finals = [a.draft for a in answered if a.draft], [a.final for a in answered]
    total = tokens([*drafts, *finals])
    per_pass = Tokens(generated=total.generated / passes, prefilled=total.prefilled / passes)
    return Ledger(**({"draft": tokens(drafts)} if drafts else {}), final=tokens(finals), per_pass=per_pass)


def tests(outcomes: Mapping[str, Outcomes]) -> list[Paired]:
    """Each mode against each after it, on the problems that both have a verdict on."""
    return [
        test.model_copy(update={"first": a, "second": b})
        for a, b in combinations(outcomes, 2)
        if (test := paired(outcomes[a], outcomes[b]))
    ]


def better_direction(outcomes: Mapping[str, Outcomes]) -> str | None:
    """The direction with the higher pass@1, the first of equals; `None` without both."""
    shares = {d: pass_at_1(outcomes[d]) for d in DIRECTIONS if outcomes.get(d)}
    return max(shares, key=lambda d: shares[d]) if len(shares) == len(DIRECTIONS) else None
