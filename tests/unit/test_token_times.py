"""Requests with a known rate: the fit must find it."""

import random
from itertools import accumulate

import pytest

from benchmarks.token_times import WIDTH, intervals

RATES = [125.0] * 8 + [250.0] * 12  # tokens per second of a sequence in each half second
MADE = [0.0, *accumulate(WIDTH * rate for rate in RATES)]


def ends(begin: float, length: int) -> float:
    """When a request that begins then has its last token."""
    at = int(begin / WIDTH)
    target = MADE[at] + (begin - WIDTH * at) * RATES[at] + length
    last = next(n for n in range(len(RATES)) if MADE[n + 1] >= target)
    return WIDTH * last + (target - MADE[last]) / RATES[last]


def records(lengths: list[tuple[int, int]], clock: float) -> list[dict]:
    pairs = []
    for draft, challenge in lengths:
        middle = ends(0.0, draft)
        pairs.append(
            {
                "draft_span": [clock, clock + middle],
                "challenge_span": [clock + middle, clock + ends(middle, challenge)],
                "draft_update_span": [clock + 4.0, clock + 5.25],
                "challenge_update_span": None,
                "pair": {"draft": {"length": draft}, "challenge": {"length": challenge}},
            }
        )
    return pairs


def test_the_time_of_a_token_is_found_where_it_changes() -> None:
    chance = random.Random(0)
    lengths = [(chance.randint(100, 700), chance.randint(100, 700)) for _ in range(128)]
    found = intervals(records(lengths, clock=1_795_008_558.1))
    assert found[0].sequences == found[0].drafts == 128
    far = [each for each in found if each.sequences and abs(each.begin + WIDTH / 2 - 4.0) > 1.0]  # from the change
    assert {each.begin < 4.0 for each in far} == {True, False}
    for each in far:
        assert each.milliseconds == pytest.approx(8.0 if each.begin < 4.0 else 4.0, rel=0.05), each
    for each in found:
        assert each.training == pytest.approx({4.0: 1.0, 4.5: 1.0, 5.0: 0.5}.get(each.begin, 0.0), abs=1e-6)
