"""The rule of the sweep in docs/evidence.md."""

import json
from pathlib import Path

import pytest

from benchmarks.learning_rate import Measured, choose, main


def measured(*shares: float, alarm: bool = False) -> Measured:
    return Measured({str(number): share for number, share in enumerate(shares)}, alarm)


BEST = measured(0.5, 0.7, 0.9, 0.7)
CLOSE = measured(0.6, 0.5, 0.9, 0.7)  # 2.5 points behind, standard error 6.3
FAR = measured(0.3, 0.5, 0.7, 0.6)  # 17.5 points behind, standard error 2.5


def test_the_smallest_rate_within_a_standard_error_of_the_best() -> None:
    assert choose({1e-5: FAR, 5e-5: CLOSE, 1e-4: BEST}) == 5e-5
    assert choose({1e-5: FAR, 1e-4: BEST, 5e-4: CLOSE}) == 1e-4


def test_a_rate_with_the_alarm_is_neither_chosen_nor_the_best() -> None:
    assert choose({1e-5: FAR, 1e-4: Measured(BEST.shares, alarm=True)}) == 1e-5
    with pytest.raises(SystemExit, match="at every rate"):
        choose({1e-5: Measured(BEST.shares, alarm=True)})


def test_cells_of_other_problems_are_refused() -> None:
    with pytest.raises(SystemExit, match="same problems"):
        choose({1e-5: BEST, 1e-4: measured(0.5, 0.7)})


def write(cell: Path, right: list[float], gap: float) -> Path:
    """Steps 1 to 6 of two problems each, with two pairs of a problem; `right` is the share of each problem."""
    (cell / "pairs").mkdir(parents=True)
    with (cell / "metrics.jsonl").open("w") as log:
        for step in range(1, 7):
            log.write(json.dumps({"step": step, "data": {"A/training/rollout_probs_diff_mean": gap}}) + "\n")
            records = []
            for number, share in enumerate(right):
                outcomes = [float(k < 4 * share) for k in range(4)]
                records += [
                    {
                        "problem": f"{step}.{number}",
                        "pair": {"draft": {"correct": outcomes[k]}, "challenge": {"correct": outcomes[k + 1]}},
                    }
                    for k in (0, 2)
                ]
            (cell / "pairs" / f"{step}.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records))
    return cell


def test_shares_and_alarms_are_read_from_the_cells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    low, middle, high = (
        write(tmp_path / name, right, gap)
        for name, right, gap in [("low", [0.25, 0.5], 0.002), ("middle", [0.5, 0.75], 0.002), ("high", [1, 0.75], 0.5)]
    )
    main(["--steps", "5", "6", f"1e-5={low}", f"1e-4={middle}", f"1e-3={high}"])
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| 1e-05 | 37.5% | 50.0 (14.4) | no |",
        "| 0.0001 | 62.5% | 25.0 (14.4) | no |",
        "| 0.001 | 87.5% | 0.0 (0.0) | yes |",
        "chosen: 0.0001",
    ]
