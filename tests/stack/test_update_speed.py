"""The benchmark of an update, on a tiny model: every variant of it trains, and the table reads what was written."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks import update_speed
from tests.tiny import make_model


def test_variants_are_measured_and_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_model(tmp_path / "model")
    out = tmp_path / "out.jsonl"
    sizes = ["--rows", "4", "--cap", "32", "--prompt", "8", "--micro-batch", "64", "--repeats", "1"]
    line = ["update_speed", "--model", str(tmp_path / "model"), "--out", str(out), *sizes]
    monkeypatch.setattr(sys, "argv", [*line, "--variants", "packed", "default", "--profile", str(tmp_path / "traces")])
    update_speed.main()
    before, after = map(json.loads, out.read_text().splitlines())
    assert (before["variant"], before["fsdp"], before["peft"], before["micro_batch"]) == ("packed", True, True, 128)
    assert (after["variant"], after["fsdp"], after["peft"], after["micro_batch"]) == ("default", False, False, 64)
    assert before["tokens"] == after["tokens"] > 0 and after["tokens_per_second"] > 0
    assert "aten::mm" in (tmp_path / "traces" / "default.txt").read_text()
    printed = capsys.readouterr().out
    assert "| packed | " in printed and "| default | " in printed

    with out.open("a") as file:
        file.write(json.dumps({"variant": "larger", "error": "out of memory: 9 GiB"}) + "\n")
    assert update_speed.table(out).endswith("| larger | out of memory: 9 GiB | | |")
