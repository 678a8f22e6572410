"""What challenges take from drafts, by hand."""

import json
import re
from pathlib import Path

import pytest

from agon_verl.evaluate.results import Results
from benchmarks.reading import difference, held_out, of_steps, row


def record(uid: str, draft: float, challenge: float, shown: str | None = "so it is 7", text: str = "") -> dict:
    pair = {"draft": {"correct": draft}, "challenge": {"correct": challenge}}
    return {"uid": uid, "attempt": {"shown": shown}, "challenge": text, "pair": pair}


def test_a_reader_that_follows_has_100_points_and_one_that_ignores_has_none() -> None:
    follows = [record(uid, right, right) for uid in "xy" for right in (0.0, 1.0)]
    ignores = [record(uid, draft, uid == "x") for uid in "xy" for draft in (0.0, 1.0)]
    assert row(follows) == "0% | 0% | +100, 2 | – | – | –"
    assert row(ignores) == "0% | 0% | +0, 2 | – | – | –"


def test_problems_with_right_drafts_only_do_not_count() -> None:
    """Otherwise easy problems would look as if their drafts had been read."""
    easy = [record("easy", 1.0, 1.0)] * 3
    hard = [record("hard", 0.0, 0.0)] * 3
    assert row(easy + hard) == "0% | 0% | – | – | – | –"
    assert row(easy + hard + [record("x", 1.0, 0.0), record("x", 0.0, 1.0)]) == "0% | 0% | -100, 1 | – | – | –"


def test_a_problem_counts_once_whatever_its_number_of_drafts() -> None:
    many = [record("x", 1.0, 1.0)] * 6 + [record("x", 0.0, 0.0)] + [record("x", 0.0, 1.0)]
    few = [record("y", 1.0, 0.0), record("y", 0.0, 0.0)]
    assert re.fullmatch(r"\+25 \(.* to .*\), 2", difference(many + few, ["right"], ["wrong"]))


def test_against_drafts_without_a_summary() -> None:
    """A right summary helps, a wrong one harms: together they bring nothing here."""
    blank = [record("x", 1.0, 1.0, shown=None, text="The attempt"), record("x", 0.0, 0.0, shown=None)]
    named = record("x", 0.0, 0.0, text="the OPPONENT's attempt is wrong")
    assert (
        row([*blank, named, record("x", 1.0, 1.0, text="unattempted")])
        == "50% | 50% | +100, 1 | +50, 1 | -50, 1 | +0, 1"
    )
    assert row(blank) == "100% | – | – | – | – | –"
    only = [record("x", 1.0, 1.0, shown="[answer withheld]"), record("x", 0.0, 0.0, shown="\n[answer withheld].")]
    assert row(only) == "100% | – | – | – | – | –"


def test_the_records_of_some_steps(tmp_path: Path) -> None:
    (tmp_path / "pairs").mkdir()
    for step in (1, 2, 3):
        (tmp_path / "pairs" / f"{step}.jsonl").write_text(json.dumps({"step": step}) + "\n")
    assert of_steps(tmp_path, [2, 3]) == [{"step": 2}, {"step": 3}]
    with pytest.raises(FileNotFoundError):
        of_steps(tmp_path, [4])


def test_held_out_answers_after_a_draft_and_alone(tmp_path: Path) -> None:
    """Problem p: a right draft, which helps; q: a wrong one, which harms; r: nothing to read."""
    drafts = {"p": (1.0, "Add."), "q": (0.0, "Add."), "r": (1.0, "[answer withheld]")}
    after, alone = {"p": 1.0, "q": 0.0, "r": 1.0}, {"p": 0.0, "q": 1.0, "r": 1.0}
    lines = []
    for problem, (acc, shown) in drafts.items():
        rows = {"A": (acc, None), "B": (alone[problem], None), "A_to_B": (after[problem], shown), "B_to_A": (0.0, None)}
        lines += [
            json.dumps({"mode": mode, "problem": problem, "sample": 0, "acc": right, "shown": text})
            for mode, (right, text) in rows.items()
        ]
    (tmp_path / "generations.jsonl").write_text("\n".join(lines) + "\n")
    outcomes = {"A": {problem: [1] for problem in drafts}}
    toy = {"problems": 3, "modes": {}, "tests": [], "post_hoc": None, "outcomes": outcomes}
    whole = {"target": "t", "samples": 1, "settings": {}, "versions": {}, "direction": {"chosen": None, "why": ""}}
    ledger = {"generations": 12, "generated": 0, "prefilled": 0}
    whole |= {"sets": {"toy": toy}, "development": None, "ledger": ledger, "left_out": 0}
    Results.model_validate(whole).write(tmp_path / "results.json")
    assert list(held_out(tmp_path))[:5] == [
        "A → B | right | 1 | 100% | 0% | +100, 1",
        "A → B | wrong | 1 | 0% | 100% | -100, 1",
        "A → B | nothing to read | 1 | 100% | 100% | +0, 1",
        "A → B | all | 3 | 67% | 67% | +0 (-100 to +100), 3",
        "A → B | right − wrong | | – | – | ",  # no problem has both
    ]
