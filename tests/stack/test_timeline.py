"""The picture of steps over time: what it reads from pair records, and that it is drawn."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.timeline import Step, draw

PLAIN = {"draft_update_span": [13.5, 14.5], "challenge_update_span": [15.0, 16.0]}
STREAMED = [
    {"draft_update_span": [11.5, 12.5], "challenge_update_span": [13.5, 14.5]},
    {"draft_update_span": [13.0, 13.4], "challenge_update_span": None},
]


def records(path: Path, training: list[dict[str, Any]]) -> Path:
    pairs = [
        {"draft_span": [10.0, 11.0], "challenge_span": [11.0, 12.0]},
        {"draft_span": [10.5, 12.0], "challenge_span": [12.0, 13.0]},
    ]
    of_the_step = {"step": 6, "optimizer_spans": {"A": [14.5, 14.6], "B": [16.0, 16.1]}, "sync_span": [16.5, 17.0]}
    lines = [json.dumps({**pair, **own, **of_the_step}) for pair, own in zip(pairs, training, strict=True)]
    path.write_text("\n".join(lines))
    return path


def test_a_plain_step_has_one_update_of_each_stage_after_the_last_pair(tmp_path: Path) -> None:
    step = Step.read(records(tmp_path / "6.jsonl", [PLAIN, PLAIN]))
    assert not step.streamed
    assert (step.number, step.decoded, step.end) == (6, 3.0, 7.0)
    assert step.decoding == (((0.0, 1.0), (1.0, 2.0)), ((0.5, 2.0), (2.0, 3.0)))
    assert [spans for _, spans in step.training.values()] == [
        ((3.5, 4.5),),
        ((5.0, 6.0),),
        (pytest.approx((4.5, 4.6)), pytest.approx((6.0, 6.1))),
        ((6.5, 7.0),),
    ]


def test_a_streamed_step_has_its_parts_and_rows_without_a_gradient_none(tmp_path: Path) -> None:
    step = Step.read(records(tmp_path / "6.jsonl", STREAMED))
    assert step.streamed
    drafts, challenges, *_ = (spans for _, spans in step.training.values())
    assert drafts == ((1.5, 2.5), pytest.approx((3.0, 3.4))) and challenges == ((3.5, 4.5),)


def test_both_are_drawn_into_one_picture(tmp_path: Path) -> None:
    steps = [
        Step.read(records(tmp_path / f"{name}.jsonl", training))
        for name, training in (("plain", [PLAIN, PLAIN]), ("streamed", STREAMED))
    ]
    draw(steps, tmp_path / "timeline.png")
    assert (tmp_path / "timeline.png").read_bytes().startswith(b"\x89PNG")


def test_records_of_an_older_version_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "1.jsonl"
    path.write_text(json.dumps({"step": 1, "draft_span": [0, 1], "challenge_span": [1, 2]}))
    with pytest.raises(SystemExit, match="has no times of training"):
        Step.read(path)
