"""The table of docs/one_gpu.md marks what was computed, and takes what was measured as it is."""

import json
from pathlib import Path

from benchmarks import gpu_table
from benchmarks.gpu_table import Figures, read_run, read_updates, table


def rows(text: str) -> dict[tuple[str, str], list[str]]:
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()[2:]]
    return {(line[0], line[1]): line[2:] for line in lines}


def test_without_measurements_every_number_is_marked() -> None:
    cells = [cell for row in rows(table(Figures({}, {}))).values() for cell in row]
    assert len(cells) == 3 * 3 * 4 and "–" in cells
    assert all(cell == "–" or (cell.startswith("~") and ", ~" in cell) for cell in cells)


def test_a_measured_step_replaces_the_h200s_numbers_alone(tmp_path: Path) -> None:
    updates = [
        {"shape": "0.6b", "cap": 1024, "layout": "packed", "tokens": 10_000, "seconds": 1.0, "peak_gb": 20.0},
        {"shape": "0.6b", "cap": 1024, "layout": "padded", "tokens": 10_000, "seconds": 9.0, "peak_gb": 90.0},
        {"shape": "4b", "cap": 15_360, "layout": "packed", "error": "out of memory", "peak_gb": None},
    ]
    (lines := tmp_path / "updates.jsonl").write_text("".join(json.dumps(line) + "\n" for line in updates))
    steps = [{"timing_s/step": seconds, "A/perf/max_memory_allocated_gb": 33.3} for seconds in (90.0, 30.0, 31.0, 32.0)]
    (metrics := tmp_path / "metrics.jsonl").write_text(
        "".join(json.dumps({"step": number, "data": step}) + "\n" for number, step in enumerate(steps, 1))
    )
    figures = Figures(read_updates(lines), dict([read_run(f"qwen3-1.7b:1024:{metrics}")]))
    found = rows(table(figures))
    assert found["Qwen3-1.7B", "1,024"][3] == "31 s, 36 GB"
    others = [cell for key, row in found.items() for cell in row if key != ("Qwen3-1.7B", "1,024")]
    assert all(cell == "–" or ", ~" in cell for cell in others)
    assert figures.updates.keys() == {("qwen3-0.6b", 1024)} and figures.updates["qwen3-0.6b", 1024]["seconds"] == 1.0


def test_the_speed_of_what_is_computed_follows_the_measured_one() -> None:
    line = {"tokens": 1000, "seconds": 1.0, "peak_gb": 1.0}
    slow, fast = (Figures({("qwen3-0.6b", 4096): {**line, "seconds": s}}, {}).efficiency for s in (2.0, 1.0))
    assert fast == 2 * slow
    assert Figures({}, {}).efficiency == gpu_table.EFFICIENCY
