"""Draws steps over time, one below the other: when vLLM decodes their pairs, and what the trainer does.

    python benchmarks/timeline.py OUT/plain/pairs/6.jsonl OUT/agon/pairs/6.jsonl timeline.png

The arguments are pair records of one step each (`trainer.rollout_data_dir`). OUT is the folder of `step_time.py`:
its arms have the same problems at the same step, and with `--mean-length` the same lengths. A pair is a line: its
draft, then its challenge, each from the request to the answer. Below are the trainer's calls that compute gradients of
drafts and of challenges, the optimizer's step of each adapter, and the sync of the adapters to vLLM. In a plain step
the optimizer's step is the end of such a call. Rewards and the transfer of rows are not drawn.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

Span = tuple[float, float]
DRAFT, CHALLENGE, OPTIMIZER, SYNC = "#0072b2", "#e69f00", "#000000", "#009e73"  # Okabe and Ito's palette


@dataclass(frozen=True)
class Step:
    """Times in seconds since the first draft began; one span of `decoding` per pair for each stage."""

    number: int
    decoding: tuple[tuple[Span, Span], ...]
    training: dict[str, tuple[str, tuple[Span, ...]]]  # by the name of its row: the colour and when

    @classmethod
    def read(cls, path: Path) -> "Step":
        pairs = [json.loads(line) for line in path.read_text().splitlines()]
        if any("sync_span" not in pair for pair in pairs):
            raise SystemExit(f"{path} has no times of training: it is of a version that did not record them")
        begin = min(pair["draft_span"][0] for pair in pairs)

        def since(span: Sequence[float]) -> Span:
            return span[0] - begin, span[1] - begin

        def distinct(spans: Sequence[Sequence[float] | None]) -> tuple[Span, ...]:
            return tuple(since(span) for span in sorted({tuple(span) for span in spans if span}))

        first = pairs[0]  # the last two are the same for all pairs of a step
        return cls(
            first["step"],
            tuple(sorted(((since(p["draft_span"]), since(p["challenge_span"])) for p in pairs), key=lambda p: p[0][1])),
            {
                "gradients of drafts": (DRAFT, distinct([p["draft_update_span"] for p in pairs])),
                "gradients of challenges": (CHALLENGE, distinct([p["challenge_update_span"] for p in pairs])),
                "optimizer": (OPTIMIZER, distinct([*first["optimizer_spans"].values()])),
                "sync of adapters": (SYNC, distinct([first["sync_span"]])),
            },
        )

    @property
    def end(self) -> float:
        return max(last for _, spans in self.training.values() for _, last in spans)

    @property
    def decoded(self) -> float:
        return max(last for pair in self.decoding for _, last in pair)

    @property
    def streamed(self) -> bool:
        return any(first < self.decoded for _, spans in self.training.values() for first, _ in spans)


def draw_pairs(axes: Axes, step: Step) -> None:
    rows = range(len(step.decoding))
    for stage, (label, colour) in enumerate((("draft is decoded", DRAFT), ("challenge is decoded", CHALLENGE))):
        spans = [pair[stage] for pair in step.decoding]
        seconds, begins = [last - first for first, last in spans], [first for first, _ in spans]
        axes.barh(rows, seconds, height=1, left=begins, color=colour, label=label)
    when = "streamed: gradients while others are decoded" if step.streamed else "plain: gradients after all pairs"
    axes.set_title(f"{when}; step {step.number}, {step.end:.1f} s", loc="left", fontsize=10)
    axes.set(ylabel=f"{len(rows)} pairs, by\nend of draft", yticks=[], ylim=(-1, len(rows)))


def draw_training(axes: Axes, step: Step) -> None:
    names = list(step.training)
    for row, (colour, spans) in enumerate(step.training.values()):
        bars: list[Any] = [(first, last - first) for first, last in spans]
        # An edge keeps a step of milliseconds visible, and separates parts that follow each other.
        edge = "white" if row < 2 else colour
        axes.broken_barh(bars, (row - 0.4, 0.8), facecolor=colour, edgecolor=edge, linewidth=0.8)
    axes.set(yticks=range(len(names)), yticklabels=names, ylim=(len(names) - 0.4, -0.6))
    axes.grid(axis="x", color="0.85")
    axes.set_axisbelow(True)


def draw(steps: Sequence[Step], picture: Path) -> None:
    figure, axes = plt.subplots(
        2 * len(steps),
        1,
        figsize=(9, 3.4 * len(steps) + 0.4),
        sharex=True,
        squeeze=False,
        height_ratios=[2, 1] * len(steps),
        layout="constrained",
    )
    for number, step in enumerate(steps):
        upper, lower = axes[2 * number, 0], axes[2 * number + 1, 0]
        draw_pairs(upper, step)
        draw_training(lower, step)
        for part in (upper, lower):
            part.axvline(step.decoded, color="0.4", linestyle="--", linewidth=0.8, label="the last pair has ended")
    axes[-1, 0].set(xlabel="seconds since the first draft began", xlim=(0, 1.01 * max(step.end for step in steps)))
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(picture, dpi=110)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Draw steps over time: decoding of pairs, and what the trainer does.")
    parser.add_argument("records", type=Path, nargs="+", help="pair records of a step, RUN/pairs/<step>.jsonl")
    parser.add_argument("picture", type=Path, help="the PNG to write")
    options = parser.parse_args()
    draw([Step.read(path) for path in options.records], options.picture)
