"""The pair records that a run writes while it goes on."""

from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from threading import Event

import pytest

from agon_verl.trainer.records import unfinished, write_jsonl


def test_a_record_that_cannot_be_written_is_an_error_at_the_next_step(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    go_on = Event()
    with ThreadPoolExecutor(max_workers=1) as pool:
        failed = pool.submit(write_jsonl, tmp_path / "file" / "1.jsonl", [{"step": 1}])
        wait([failed])
        running = pool.submit(go_on.wait)
        written = pool.submit(write_jsonl, tmp_path / "2.jsonl", [{"step": 2}])
        with pytest.raises(NotADirectoryError):
            unfinished([failed, running, written])
        assert unfinished([running, written]) == [running, written]
        go_on.set()
        wait([written])
        assert unfinished([running, written]) == []
    assert (tmp_path / "2.jsonl").read_text() == '{"step": 2}\n'
