"""What challenges take from drafts, by hand."""

import json
from pathlib import Path

import pytest

from benchmarks.reading import of_steps, row


def record(uid: str, draft: float, challenge: float, shown: str | None = "so it is 7", text: str = "") -> dict:
    pair = {"draft": {"correct": draft}, "challenge": {"correct": challenge}}
    return {"uid": uid, "attempt": {"shown": shown}, "challenge": text, "pair": pair}


def test_a_reader_that_follows_has_100_points_and_one_that_ignores_has_none() -> None:
    follows = [record(uid, right, right) for uid in "xy" for right in (0.0, 1.0)]
    ignores = [record(uid, draft, uid == "x") for uid in "xy" for draft in (0.0, 1.0)]
    assert row(follows) == "0% | 0% | 2 | 100 % | 0 % | +100"
    assert row(ignores) == "0% | 0% | 2 | 50 % | 50 % | +0"


def test_problems_with_right_drafts_only_do_not_count() -> None:
    """Otherwise easy problems would look as if their drafts had been read."""
    easy = [record("easy", 1.0, 1.0)] * 3
    hard = [record("hard", 0.0, 0.0)] * 3
    assert row(easy + hard) == "0% | 0% | 0 | – | – | –"
    assert row(easy + hard + [record("x", 1.0, 0.0), record("x", 0.0, 1.0)]) == "0% | 0% | 1 | 0 % | 100 % | -100"


def test_a_problem_counts_once_whatever_its_number_of_drafts() -> None:
    many = [record("x", 1.0, 1.0)] * 6 + [record("x", 0.0, 0.0)] + [record("x", 0.0, 1.0)]
    few = [record("y", 1.0, 0.0), record("y", 0.0, 0.0)]
    assert row(many + few).startswith("0% | 0% | 2 | 50 % | 25 % | +25 (")


def test_drafts_without_a_summary_are_counted_and_left_out(tmp_path: Path) -> None:
    blank = record("x", 1.0, 1.0, shown=None, text="The attempt")
    named = record("x", 0.0, 0.0, text="the OPPONENT's attempt is wrong")
    records = [blank, named, record("x", 1.0, 0.0, text="unattempted")]
    assert row(records) == "33% | 50% | 1 | 0 % | 0 % | +0"
    assert row([blank]) == "100% | – | 0 | – | – | –"
    (tmp_path / "pairs").mkdir()
    for step in (1, 2, 3):
        (tmp_path / "pairs" / f"{step}.jsonl").write_text(json.dumps({"step": step}) + "\n")
    assert of_steps(tmp_path, [2, 3]) == [{"step": 2}, {"step": 3}]
    with pytest.raises(FileNotFoundError):
        of_steps(tmp_path, [4])
