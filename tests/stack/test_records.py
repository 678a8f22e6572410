"""The pair records that a run writes while it goes on."""

from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from agon_verl.trainer.records import unfinished, write_jsonl


def test_a_record_that_cannot_be_written_is_an_error_at_the_next_step(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with ThreadPoolExecutor(max_workers=1) as pool:
        written = pool.submit(write_jsonl, tmp_path / "1.jsonl", [{"step": 1}])
        failed = pool.submit(write_jsonl, tmp_path / "file" / "2.jsonl", [{"step": 2}])
        wait([written, failed])
    assert (tmp_path / "1.jsonl").read_text() == '{"step": 1}\n'
    waiting: Future = Future()
    assert unfinished([written, waiting]) == [waiting]
    with pytest.raises(FileExistsError):
        unfinished([written, failed, waiting])
