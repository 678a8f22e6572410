"""The guide's third domain: a reward function of one's own."""

import asyncio
import itertools
from typing import Any

import pytest

from examples.knights import claims, compute_score, puzzles

TRUTH = "Ann is a knight, Bob is a knave, and Cy is a knight."


def score(completion: str, truth: Any = TRUTH, **extra_info: bool) -> dict[str, Any]:
    return asyncio.run(compute_score("knights", completion, truth, extra_info))


@pytest.mark.parametrize(
    "answer", [TRUTH, "Cy is a knight. Ann is a knight. Bob is a knave.", "ann is knight, bob is knave, cy is KNIGHT"]
)
def test_the_right_answer_in_any_order(answer: str) -> None:
    assert score(f"<think>Hm.</think>So. <answer>{answer}</answer>") == {
        "score": 2.5, "acc": 1.0, "format": 1.0, "pred": answer, "verdict": "correct"
    }  # fmt: skip


@pytest.mark.parametrize(
    "answer",
    [
        "Ann is a knight, Bob is a knave.",
        "Ann is a knight, Bob is a knave, Cy is a knave.",
        "Ann is a knight, Bob is a knave, Cy is a knight, Cy is a knave.",
        "Ann is not a knave, Bob is a knave, Cy is a knight.",
        "Everyone is a knight, Bob is a knave, Cy is a knight.",
        "knight, knave, knight",
    ],
)
def test_less_more_or_other_than_that_is_wrong(answer: str) -> None:
    assert score(f"<think>Hm.</think><answer>{answer}</answer>")["verdict"] == "wrong"


def test_what_is_thought_aloud_counts_only_if_the_model_ended_there() -> None:
    thought = f"<think><answer>{TRUTH}</answer>"
    assert score(f"{thought} Or not", completion_ended=False)["verdict"] == "no_answer"
    ended = score(f"{thought}</think>", completion_ended=True)
    assert (ended["verdict"], ended["format"]) == ("correct", 0.0)


def test_every_possibility_at_once_is_no_answer() -> None:
    every = [" ".join(f"{who} is a {kind}." for who in ("Ann", "Bob", "Cy")) for kind in ("knight", "knave")]
    assert score(f"<answer>{' '.join(every)}</answer>")["acc"] == 0.0


def test_guessing_scores_what_guessing_is_worth() -> None:
    guesses = [
        score(f"<answer>Ann is a {a}, Bob is a {b}, Cy is a {c}.</answer>")["acc"]
        for a, b, c in itertools.product(("knight", "knave"), repeat=3)
    ]
    assert sum(guesses) == 1.0


def test_a_megabyte_of_one_word_is_read_once() -> None:
    """From each of its letters it would take hours."""
    assert claims("a" * 1_000_000) == {}


def test_a_reference_that_cannot_be_read_is_the_judges_failure() -> None:
    for truth in ("", None, "Ann is a knight. Ann is a knave."):
        with pytest.raises(ValueError, match="ground_truth"):
            score("<answer>Ann is a knight</answer>", truth)


def test_reasoning_gyms_own_answers_are_accepted() -> None:
    pytest.importorskip("reasoning_gym", reason="an optional dependency: pip install reasoning-gym")
    for row in puzzles(50, people=3, seed=0, split="train"):
        truth = row["reward_model"]["ground_truth"]
        assert score(f"<answer>{truth}</answer>", truth)["acc"] == 1.0
