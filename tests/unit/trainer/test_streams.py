"""Which rows train which adapter, worked out by hand."""

from dataclasses import asdict, replace

import pytest

from agon_verl.game.rewards import Outcome
from agon_verl.game.roles import Roles
from agon_verl.health.pair_statistics import Pair
from agon_verl.trainer.streams import StreamRows, share_rival, split_streams

WHO = Roles("B", "A")  # an odd step: B drafts
KEYS = ["x_0_0", "x_0_1", "x_1_0", "x_1_1", "y_0_0", "y_0_1", "y_1_0", "y_1_1"]


def pair(group: str, draft_reward: float, challenge_reward: float) -> Pair:
    outcome = Outcome(correct=1.0, format=0.0, length=3)
    return Pair(
        group=group,
        draft=outcome,
        challenge=outcome,
        draft_reward=draft_reward,
        challenge_reward=challenge_reward,
        leaked=False,
        summary_cut=False,
        no_summary=False,
        draft_prompt_tokens=1,
        challenge_prompt_tokens=1,
        opponent_tokens=1,
    )


# Drafts differ in x only, challenges in y only.
PAIRS = [pair("x", 2.0, 1.0), pair("x", 0.0, 1.0), pair("y", 2.0, 0.0), pair("y", 2.0, 3.0)]


def test_each_stream_keeps_the_groups_whose_own_rewards_differ() -> None:
    assert split_streams(KEYS, PAIRS, WHO) == [
        StreamRows("draft", "B", live=(0, 2), dead=(4, 6)),
        StreamRows("challenge", "A", live=(5, 7), dead=(1, 3)),
    ]


def test_the_order_of_the_rows_does_not_matter() -> None:
    draft, challenge = split_streams(KEYS[::-1], PAIRS, WHO)
    assert (draft.live, challenge.live) == ((5, 7), (0, 2))


def test_a_frozen_adapter_has_no_live_row() -> None:
    draft, challenge = split_streams(KEYS, PAIRS, WHO, frozen=["B"])
    assert draft == StreamRows("draft", "B", live=(), dead=(0, 2, 4, 6))
    assert challenge.live == (5, 7)


def test_a_guests_drafts_train_nobody_and_its_challenges_do() -> None:
    guests = [replace(p, guest=p.group == "x", challenge_reward=float(i)) for i, p in enumerate(PAIRS)]
    draft, challenge = split_streams(KEYS, guests, WHO)
    assert draft.live == () and challenge.live == (1, 3, 5, 7)


def test_one_group_holds_drafts_and_challenges_of_a_problem() -> None:
    """Plain GRPO: in x the drafts differ, in y the challenges: both groups are live in one stream."""
    assert split_streams(KEYS, PAIRS, Roles("A", "A"), one_group=True) == [
        StreamRows("draft", "A", live=tuple(range(8)), dead=())
    ]
    level = [replace(p, draft_reward=1.0, challenge_reward=1.0) for p in PAIRS]
    (stream,) = split_streams(KEYS, level, Roles("A", "A"), one_group=True)
    assert stream.live == ()


def test_one_group_is_live_if_only_the_streams_differ_from_each_other() -> None:
    pairs = [replace(p, draft_reward=1.0, challenge_reward=2.0) for p in PAIRS]
    (stream,) = split_streams(KEYS, pairs, Roles("A", "A"), one_group=True)
    assert stream.live == tuple(range(8))


def test_by_correctness_a_group_is_live_only_if_right_and_wrong_are_in_it() -> None:
    """Rewards differ in every group: by the form of the drafts of x and y, by the bonus of the challenges of y."""
    right, wrong, formed = Outcome(1.0, 0.0, 3), Outcome(0.0, 0.0, 3), Outcome(0.0, 1.0, 3)
    made = [
        replace(pair("x", 0.5, 2.0), draft=formed, challenge=right),
        replace(pair("x", 0.0, 0.0), draft=wrong, challenge=wrong),
        replace(pair("y", 0.5, 3.0), draft=formed, challenge=right),
        replace(pair("y", 0.0, 2.0), draft=wrong, challenge=right),
    ]
    assert split_streams(KEYS, made, WHO, by="correctness") == [
        StreamRows("draft", "B", live=(), dead=(0, 2, 4, 6)),
        StreamRows("challenge", "A", live=(1, 3), dead=(5, 7)),
    ]
    assert [stream.dead for stream in split_streams(KEYS, made, WHO)] == [(), ()]
    (stream,) = split_streams(KEYS, made, Roles("A", "A"), one_group=True, by="correctness")
    assert stream.live == tuple(range(8))  # the challenges of x and of y are right and their drafts wrong


def test_a_shared_rival_is_the_first_draft_of_the_problem() -> None:
    wrong, right = Outcome(0.0, 0.0, 1), Outcome(1.0, 0.0, 1)
    drafts = {"x": (wrong, right), "y": (right, wrong)}
    extras = [
        {"pair": asdict(replace(pair(group, 0.0, 0.0), draft=draft, challenge=right))}
        for group, both in drafts.items()
        for draft in both
    ]
    share_rival(extras, lambda challenge, draft: 2 * challenge.correct + challenge.correct * (1 - draft.correct))
    assert [extra["pair"]["challenge_reward"] for extra in extras] == [3.0, 3.0, 2.0, 2.0]


def test_pairs_without_a_reward_are_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        split_streams(KEYS, [replace(PAIRS[0], draft_reward=float("nan")), *PAIRS[1:]], WHO)
