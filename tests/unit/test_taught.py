"""What updates reinforce, by hand."""

import json
from pathlib import Path

import pytest

from benchmarks.taught import Completion, completions, of_steps, reinforced, row, summaries, summary_of, trained

TAGS = ["<think>", "</think>"]

# Of x nothing is right, and the short one has the form; of y one is right, without the form.
X = [Completion("x", 0.5, 0.0, 1.0, 100.0), Completion("x", 0.0, 0.0, 0.0, 300.0)]
Y = [Completion("y", 2.0, 1.0, 0.0, 400.0), Completion("y", 0.5, 0.0, 1.0, 200.0)]


def test_a_group_of_wrong_answers_teaches_form_and_short_answers() -> None:
    assert reinforced(X) == pytest.approx({"right": 0.0, "form": 1.0, "tokens": -200.0})
    assert reinforced(X + Y) == pytest.approx({"right": 0.5, "form": 0.0, "tokens": 0.0}, abs=1e-3)


def test_by_correctness_only_groups_with_right_and_wrong_train() -> None:
    assert trained(X + Y, "reward") == X + Y
    assert trained(X + Y, "correctness") == Y
    assert row(X + Y, "reward") == "reward | 2 | 2 | 1 | +50 % | +0 % | +0"
    assert row(X + Y, "correctness") == "correctness | 2 | 1 | 0 | +100 % | -100 % | +200"
    assert row(X, "correctness") == "correctness | 1 | 0 | 0 | +0 % | +0 % | +0"


def test_the_two_sides_of_a_pair_are_one_group_where_nothing_is_read(tmp_path: Path) -> None:
    """Unless another problem's were: a draft without a summary shows nothing either."""
    outcome = {"correct": 1.0, "format": 0.0, "length": 7}
    pair = {"draft": outcome, "challenge": outcome, "draft_reward": 2.0, "challenge_reward": 3.0, "guest": False}
    texts = {"draft": "<think>r</think><answer>1</answer>", "challenge": "1", "reasoning_tags": TAGS}
    record = {"uid": "u", "drafter": "A", "challenger": "B", "attempt": {"shown": None}, "pair": pair, **texts}
    apart = ["u draft", "u challenge"]
    alone = {**record, "challenger": "A"}
    assert [c.group for c in completions([record])] == apart
    assert [c.group for c in completions([alone])] == ["u", "u"]
    assert [c.group for c in completions([alone, {**alone, "attempt": {"shown": "…"}}])] == 2 * apart
    assert [c.group for c in completions([{**record, "pair": {**pair, "guest": True}}])] == apart[1:]
    (tmp_path / "pairs").mkdir()
    (tmp_path / "pairs" / "1.jsonl").write_text(json.dumps(record) + "\n")
    assert of_steps(tmp_path, [1]) == completions([record])
    draft, challenge = completions([record])
    assert challenge == Completion("u challenge", 3.0, 1.0, 0.0, 7, "B challenge", None)
    assert (draft.by, draft.summary) == ("A draft", 0)


@pytest.mark.parametrize(
    ("completion", "characters"),
    [
        ("<think>r</think>two words<answer>1</answer>", 9),
        ("<think>r</think>\n<answer>1</answer>", 0),
        ("<think>r</think> - <answer>1</answer>", 0),  # no letter or digit
        ("r</think>two words", 9),
        ("<think>r", None),
        ("two words<answer>1</answer>", None),
        ("", None),
    ],
)
def test_what_stands_between_reasoning_and_answer(completion: str, characters: int | None) -> None:
    assert summary_of(completion, TAGS) == characters


def test_reinforced_completions_with_nothing_to_read() -> None:
    """In two groups the right answers have nothing, in a third it is as in the wrong ones; a fourth does not train."""

    def completion(group: str, right: float, summary: int | None, by: str = "A draft") -> Completion:
        return Completion(group, 2 * right, right, 0.0, 0.0, by, summary)

    made = [completion(group, right, 0 if right else 50) for group in "pq" for right in (0.0, 1.0)]
    made += [completion("r", 0.0, 10), completion("r", 1.0, 10), completion("s", 0.0, 0), completion("s", 0.0, None)]
    made += [completion("t", 1.0, 5, "B challenge")]
    nothing, characters = "+67 ± 33", "-33 ± 17"
    assert list(summaries(made)) == [
        f"A draft | 7 | 43 % | 3 | {nothing} | {characters}",
        "B challenge | 1 | 0 % | 0 | – | –",
    ]
