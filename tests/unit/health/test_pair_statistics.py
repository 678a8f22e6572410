from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agon_verl.game.rewards import Outcome, challenge_reward, standalone_reward
from agon_verl.health.pair_statistics import Pair, group_metrics, pair_metrics


def pair(group: str, a: float, b: float, *, phi: float = 1.0, lengths: tuple[int, int] = (100, 50), **other) -> Pair:
    draft, challenge = Outcome(a, 1.0, lengths[0]), Outcome(b, phi, lengths[1])
    fields = {
        "leaked": False,
        "summary_cut": False,
        "no_summary": False,
        "draft_prompt_tokens": 10,
        "challenge_prompt_tokens": 40,
        "opponent_tokens": 20,
    }
    return Pair(
        group,
        draft,
        challenge,
        standalone_reward(draft),
        challenge_reward("adv", challenge, draft),
        **{**fields, **other},
    )


PAIRS = [
    pair("x", 1, 1, lengths=(100, 40), leaked=True, stated=True),
    pair("x", 0, 1, lengths=(200, 60)),
    pair("x", 0, 0, lengths=(300, 80), phi=0.0, no_summary=True, ended=False),
    pair("y", 1, 1, lengths=(100, 20), summary_cut=True),
    pair("y", 1, 0, lengths=(100, 90), reasoned=False),
]


def test_every_metric_by_hand():
    """Drafts: x 1 0 0, y 1 1. Challenges: x 1 1 0, y 1 0, the third without format."""
    assert pair_metrics(PAIRS) == pytest.approx(
        {
            "draft/acc": 3 / 5,
            "draft/format": 1.0,
            "draft/reward": (2.5 + 0.5 + 0.5 + 2.5 + 2.5) / 5,
            "draft/length": 160.0,
            "draft/dead_groups": 1 / 2,  # y is right throughout
            "challenge/acc": 3 / 5,
            "challenge/format": 4 / 5,
            "challenge/reward": (2.5 + 3.5 + 0.0 + 2.5 + 0.5) / 5,
            "challenge/length": 58.0,
            "challenge/dead_groups": 0.0,
            "pair/conversion": 1 / 2,
            "pair/damage": 1 / 3,
            "pair/length_given_right_draft": 50.0,
            "pair/leak": 1 / 5,
            "pair/leak_right": 1 / 3,
            "pair/leak_wrong": 0.0,
            "pair/stated_right": 1 / 3,
            "pair/stated_wrong": 0.0,
            "pair/conversion_unstated": 1.0,  # the third pair has no summary to state anything
            "pair/damage_stated": 0.0,
            "pair/damage_unstated": 1 / 2,
            "pair/summary_cut": 1 / 5,
            "pair/no_summary": 1 / 5,
            "pair/no_summary_cut_off": 1 / 5,
            "pair/no_summary_unclosed": 0.0,
            "pair/no_summary_answer_only": 0.0,
            "pair/no_reasoning": 1 / 5,
            "ledger/draft_generated": 800.0,
            "ledger/draft_prefilled": 50.0,
            "ledger/challenge_generated": 290.0,
            "ledger/challenge_prefilled": 200.0,
            "ledger/opponent_prefilled": 100.0,
        }
    )


def test_copying_is_split_by_what_the_attempt_states():
    pairs = [
        pair("x", 0, 1, leaked=True),
        pair("x", 0, 0, leaked=True, stated=True),
        pair("x", 0, 0, leaked=True, stated=True),
        pair("x", 1, 0, leaked=True, stated=True),
        pair("x", 1, 1),
    ]
    metrics = pair_metrics(pairs)
    expected = {
        "leak": 4 / 5, "leak_right": 1 / 2, "leak_wrong": 1.0, "stated_right": 1 / 2, "stated_wrong": 2 / 3,
        "conversion_stated": 0.0, "conversion_unstated": 1.0, "damage_stated": 1.0, "damage_unstated": 0.0,
    }  # fmt: skip
    assert {name: metrics[f"pair/{name}"] for name in expected} == pytest.approx(expected)


def test_drafts_without_a_summary_are_split_by_the_reason():
    cases = [(1, 0, 0), (1, 1, 0), (1, 1, 0), (1, 1, 1), (1, 0, 1), (0, 0, 0), (0, 1, 0), (0, 1, 0)]
    pairs = [pair("x", 0, 0, no_summary=n, ended=e, answer_only=o) for n, e, o in cases]
    metrics = pair_metrics(pairs)
    shares = [metrics[f"pair/no_summary{end}"] for end in ("", "_cut_off", "_unclosed", "_answer_only")]
    assert shares == [5 / 8, 1 / 8, 2 / 8, 2 / 8]


def test_a_conditional_without_a_case_is_left_out():
    all_right = pair_metrics([pair("x", 1, 1), pair("x", 1, 0)])
    assert "pair/conversion" not in all_right
    assert all_right["pair/damage"] == 0.5
    all_wrong = pair_metrics([pair("x", 0, 1), pair("x", 0, 0)])
    assert "pair/damage" not in all_wrong and "pair/length_given_right_draft" not in all_wrong
    assert all_wrong["pair/conversion"] == 0.5


def test_guests_leave_the_draft_stream_and_stay_in_everything_else():
    """Without the third and the fourth, the drafter's own are x 1 0 and y 1: y is then a group of one, and dead."""
    pairs = [replace(p, guest=i in (2, 3)) for i, p in enumerate(PAIRS)]
    metrics = pair_metrics(pairs)
    assert {name: value for name, value in metrics.items() if name.startswith("draft/")} == pytest.approx(
        {
            "draft/acc": 2 / 3,
            "draft/format": 1.0,
            "draft/reward": (2.5 + 0.5 + 2.5) / 3,
            "draft/length": 400 / 3,
            "draft/dead_groups": 1 / 2,
        }
    )
    others = {name: value for name, value in pair_metrics(PAIRS).items() if not name.startswith("draft/")}
    assert {name: value for name, value in metrics.items() if not name.startswith("draft/")} == others


def test_a_guests_draft_does_not_keep_the_drafters_group_alive():
    pairs = [pair("x", 1, 1), pair("x", 1, 1), pair("x", 0, 1, guest=True)]
    assert pair_metrics(pairs)["draft/dead_groups"] == 1.0
    assert pair_metrics(pairs)["challenge/dead_groups"] == 0.0


def test_guests_alone_leave_no_draft_stream():
    metrics = pair_metrics([replace(p, guest=True) for p in PAIRS])
    assert metrics == {name: value for name, value in pair_metrics(PAIRS).items() if not name.startswith("draft/")}


def test_no_pairs_no_metrics():
    assert pair_metrics([]) == {}


def test_partial_credit_counts_as_wrong_but_enters_the_accuracy():
    metrics = pair_metrics([pair("x", 0.9, 1.0), pair("x", 1.0, 0.5)])
    assert metrics["pair/conversion"] == 1.0
    assert metrics["pair/damage"] == 1.0
    assert metrics["draft/acc"] == pytest.approx(0.95)


def test_a_group_of_one_is_dead():
    metrics = pair_metrics([pair("x", 1, 1), pair("y", 0, 1), pair("y", 1, 1)])
    assert metrics["draft/dead_groups"] == metrics["challenge/dead_groups"] == 0.5


def test_dead_groups_go_by_reward_not_by_correctness():
    """A group right throughout is alive in the challenge stream if its drafts differ: adv pays 3 and 2."""
    metrics = pair_metrics([pair("x", 0, 1), pair("x", 1, 1)])
    assert metrics["challenge/acc"] == 1.0
    assert metrics["challenge/dead_groups"] == 0.0


@given(st.permutations(PAIRS))
def test_the_order_of_pairs_does_not_matter(pairs):
    assert pair_metrics(pairs) == pytest.approx(pair_metrics(PAIRS))


@given(st.permutations(["u", "v"]))
def test_the_names_of_groups_do_not_matter(names):
    renamed = [replace(p, group=names["xy".index(p.group)]) for p in PAIRS]
    assert pair_metrics(renamed) == pair_metrics(PAIRS)


def test_dead_groups_by_stream_and_together() -> None:
    # Drafts all right, challenges all wrong: either stream says nothing, both together do.
    told = [pair("x", 1, 0) for _ in range(4)]
    assert group_metrics(told)["dead_groups"] == 1.0
    assert group_metrics(told, together=True)["dead_groups"] == 0.0
    assert group_metrics([])["dead_groups"] is None


def test_groups_that_train_although_nothing_is_right() -> None:
    """Challenges: x wrong, one without form; y wrong and alike; z right and wrong. Drafts: all right."""
    pairs = [pair("x", 1, 0), pair("x", 1, 0, phi=0.0), *[pair("y", 1, 0)] * 2, pair("z", 1, 1), pair("z", 1, 0)]
    assert group_metrics(pairs) == {"dead_groups": 4 / 6, "live_all_wrong": 1 / 6}
    assert group_metrics(pairs, "correctness") == {"dead_groups": 5 / 6, "live_all_wrong": 0.0}
    # Drafts and challenges of a problem together are right and wrong in each.
    assert group_metrics(pairs, together=True) == {"dead_groups": 0.0, "live_all_wrong": 0.0}


def test_partial_credit_that_differs_is_not_form() -> None:
    assert group_metrics([pair("x", 1, 0.2), pair("x", 1, 0.4)])["live_all_wrong"] == 0.0
    assert group_metrics([pair("x", 1, 0.2), pair("x", 1, 0.2, phi=0.0)])["live_all_wrong"] == 1 / 2


def test_a_group_that_is_right_throughout_may_train_on_form_or_bonus() -> None:
    pairs = [pair("x", 0, 1), pair("x", 1, 1)]
    assert group_metrics(pairs)["live_all_wrong"] == 0.0
    assert pair_metrics(pairs, "correctness")["challenge/dead_groups"] == 1.0
