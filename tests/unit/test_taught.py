"""What updates reinforce, by hand."""

import json
from pathlib import Path

import pytest

from benchmarks.taught import Completion, completions, of_steps, reinforced, row, trained

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
    record = {"uid": "u", "drafter": "A", "challenger": "B", "attempt": {"shown": None}, "pair": pair}
    apart = ["u draft", "u challenge"]
    alone = {**record, "challenger": "A"}
    assert [c.group for c in completions([record])] == apart
    assert [c.group for c in completions([alone])] == ["u", "u"]
    assert [c.group for c in completions([alone, {**alone, "attempt": {"shown": "…"}}])] == 2 * apart
    assert [c.group for c in completions([{**record, "pair": {**pair, "guest": True}}])] == apart[1:]
    (tmp_path / "pairs").mkdir()
    (tmp_path / "pairs" / "1.jsonl").write_text(json.dumps(record) + "\n")
    assert of_steps(tmp_path, [1]) == completions([record])
    assert completions([record])[1] == Completion("u challenge", 3.0, 1.0, 0.0, 7)
