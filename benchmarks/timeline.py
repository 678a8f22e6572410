"""Draws the two stages of a step's pairs over time, from the records of `trainer.rollout_data_dir`.

    python benchmarks/timeline.py RUN/pairs/9.jsonl timeline.png

The upper part has one line per pair: its draft, then its challenge, which starts when that draft ends. The lower part
has the number of drafts and challenges in progress.
"""

import argparse
import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

COLOURS = {"draft": "#4477aa", "challenge": "#cc6677"}


def draw(records: Path, picture: Path) -> None:
    pairs = [json.loads(line) for line in records.read_text().splitlines()]
    begin = min(pair["draft_span"][0] for pair in pairs)
    spans = {
        stage: sorted((pair[f"{stage}_span"][0] - begin, pair[f"{stage}_span"][1] - begin) for pair in pairs)
        for stage in COLOURS
    }
    figure, (lines, counts) = plt.subplots(
        2, 1, figsize=(8, 5.5), sharex=True, height_ratios=[3, 1], layout="constrained"
    )
    for row, pair in enumerate(sorted(pairs, key=lambda p: p["draft_span"][1])):
        for stage, colour in COLOURS.items():
            first, last = (at - begin for at in pair[f"{stage}_span"])
            lines.plot([first, last], [row, row], color=colour, linewidth=1)
    lines.set(ylabel="pairs, by the end of their draft", title=f"{len(pairs)} pairs of one step")
    end = max(last for _, last in spans["challenge"])
    grid = [end * i / 400 for i in range(401)]
    for stage, colour in COLOURS.items():
        in_progress = [sum(first <= at < last for first, last in spans[stage]) for at in grid]
        counts.plot(grid, in_progress, color=colour, label=f"{stage}s")
    counts.set(xlabel="seconds since the first draft began", ylabel="in progress", xlim=(0, end), ylim=(0, None))
    counts.legend(frameon=False)
    figure.savefig(picture, dpi=110)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Draw the two stages of a step's pairs over time.")
    parser.add_argument("records", type=Path, help="pair records of one step, RUN/pairs/<step>.jsonl")
    parser.add_argument("picture", type=Path, help="the PNG to write")
    options = parser.parse_args()
    draw(options.records, options.picture)
