"""Completions of Qwen2.5-Coder-1.5B-Instruct on MATH problems, 128 drafts and 128 challenges, labelled by hand.

`right`: its last complete `<answer>` block, else its last box, states the reference's value and nothing else; `note`
gives the reason where that is not plain. A value in prose alone is not right: the prompt requires the block.
`finished`: the model ended the completion, which had at most 1,024 tokens.
"""

import asyncio
import json
from pathlib import Path

import pytest

from agon_verl.game.transcript import ENDED
from reward_fns.math_answer import compute_score

LABELS = Path(__file__).resolve().parents[3] / "benchmarks" / "math_completions.jsonl"
ROWS = [json.loads(line) for line in LABELS.read_text(encoding="utf-8").splitlines()]


def accepted(row: dict, extra_info: dict) -> bool:
    return asyncio.run(compute_score("math", row["text"], row["ground_truth"], extra_info))["acc"] == 1.0


def test_agreement_with_the_labels() -> None:
    assert len(ROWS) == 256
    verdicts = {row["id"]: accepted(row, {ENDED: row["finished"]}) for row in ROWS}
    wrong_accepts = [row["id"] for row in ROWS if verdicts[row["id"]] and not row["right"]]
    wrong_rejects = [row["id"] for row in ROWS if not verdicts[row["id"]] and row["right"]]
    assert not wrong_accepts
    assert len(wrong_rejects) <= 0.01 * len(ROWS), wrong_rejects


def test_no_wrong_accept_where_the_end_is_not_reported() -> None:
    assert not [row["id"] for row in ROWS if accepted(row, {}) and not row["right"]]


@pytest.mark.parametrize("row", [row for row in ROWS if not row["finished"]], ids=lambda row: row["id"])
def test_a_completion_that_was_cut_off_is_not_right(row: dict) -> None:
    assert not row["right"]
