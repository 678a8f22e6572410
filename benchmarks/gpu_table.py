"""The table of docs/one_gpu.md: seconds per step and peak memory by model, response cap and card.

    python -m benchmarks.gpu_table [--updates outputs/update_memory.jsonl] [--run qwen3-0.6b:1024:metrics.jsonl …]

Computed numbers have a `~`. Measured are complete steps, from the metrics of a run on the H200 (`--run`). The speed of
an update comes from `benchmarks/update_memory.py` there (`--updates`); other cards' is scaled by their arithmetic, and
generation by their memory bandwidth. 16 problems, 8 + 8 rollouts, lengths with a mean of a third of the cap, 100 tokens
of problem; rows packed.
"""

import argparse
import json
import math
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agon_verl.trainer.memory import GIB, DecoderShape
from benchmarks import step_model
from benchmarks.step_model import Card
from examples.gpu_settings import GpuSettings, TooSmall, Work, cached_token, fit, prompt_length

MEASURED = step_model.CARDS["h200"]
CARDS = {  # by the makers' data sheets
    "24 GB (RTX 4090)": Card(24, 165e12, 1.01e12),
    "48 GB (L40S)": Card(48, 362e12, 0.86e12),
    "80 GB (H100)": step_model.CARDS["h100"],
    "141 GB (H200)": MEASURED,
}
SHAPES = {name: step_model.SHAPES[name] for name in ("qwen3-0.6b", "qwen3-1.7b", "qwen3-4b")}
CAPS = (1024, 4096, 15_360)
PROBLEMS, N, PROBLEM = 16, 8, 100
EFFICIENCY = 0.12  # of the arithmetic of the card, where no update was measured; Qwen2.5-Coder-1.5B reached 0.10 padded
DECODE = 0.009  # seconds per token and batch besides reading memory: two adapters, sampling (Qwen2.5-Coder-1.5B)


def mean_length(cap: int) -> float:
    return cap / 3


def update_tokens(cap: int) -> float:
    """Of both streams: the challenges' prompts contain a summary, taken as a tenth of a completion."""
    return PROBLEMS * N * (2 * (PROBLEM + mean_length(cap)) + 0.1 * mean_length(cap))


def update_flops(shape: DecoderShape, cap: int) -> float:
    """Per token: forward, forward again for the gradient, and backward to the activations alone, the base is frozen."""
    attention = 4 * shape.layers * shape.hidden * (PROBLEM + mean_length(cap)) / 2
    return 3 * (2 * shape.parameters + attention)


def generation(shape: DecoderShape, card: Card, cap: int, settings: GpuSettings) -> float:
    """A draft and then a challenge of the longest kind, of which one is shorter: 1.5 caps of decoding one by one.

    Each token reads the weights and the cache; where the cache cannot hold all pairs, they take turns.
    """
    cached = PROBLEMS * N * (PROBLEM + mean_length(cap) / 2) * cached_token(shape)
    capacity = settings.share * card.gib * GIB - 2 * shape.parameters
    turns = max(1.0, cached / capacity)
    return 1.5 * cap * turns * (DECODE + (2 * shape.parameters + cached / turns) / card.bandwidth)


@dataclass(frozen=True)
class Figures:
    """What was measured on the H200: by shape and cap."""

    updates: dict[tuple[str, int], dict[str, Any]]
    runs: dict[tuple[str, int], tuple[float, float]]  # seconds per step, peak GB

    @property
    def efficiency(self) -> float:
        shares = [
            line["tokens"] / line["seconds"] * update_flops(SHAPES[name], cap) / MEASURED.flops
            for (name, cap), line in self.updates.items()
        ]
        return statistics.median(shares) if shares else EFFICIENCY


def cell(name: str, cap: int, card: Card, figures: Figures) -> str:
    shape, work = SHAPES[name], Work(PROBLEMS, N, prompt_length(cap), cap)
    key = (name, cap)
    if card is MEASURED and key in figures.runs:
        seconds, peak = figures.runs[key]
        return f"{seconds:.0f} s, {peak:.0f} GB"
    try:
        settings = fit(shape, card.gib * GIB, work)
    except TooSmall:
        return "–"
    update = update_tokens(cap) * update_flops(shape, cap) / (card.flops * figures.efficiency)
    if line := figures.updates.get(key):
        update = update_tokens(cap) / line["tokens"] * line["seconds"] * MEASURED.flops / card.flops
    seconds = update + generation(shape, card, cap, settings)
    return f"~{_two_digits(seconds)} s, ~{settings.training * GIB / 1e9:.0f} GB{_notes(settings)}"


def _two_digits(seconds: float) -> str:
    unit = 10 ** max(0, math.floor(math.log10(seconds)) - 1)
    return f"{round(seconds / unit) * unit:,.0f}"


def _notes(settings: GpuSettings) -> str:
    return ("¹" if settings.frees_cache else "") + ("²" if settings.checkpointing else "")


def table(figures: Figures) -> str:
    lines = [f"| model | cap | {' | '.join(CARDS)} |", "|---|---|" + "---|" * len(CARDS)]
    for name in SHAPES:
        for cap in CAPS:
            cells = " | ".join(cell(name, cap, card, figures) for card in CARDS.values())
            lines.append(f"| {name.replace('qwen', 'Qwen').upper().replace('QWEN', 'Qwen')} | {cap:,} | {cells} |")
    return "\n".join(lines)


def read_updates(path: Path | None) -> dict[tuple[str, int], dict[str, Any]]:
    """Of `update_memory.py`: the last line of each shape and cap with packed rows that did not run out of memory."""
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path else []
    return {
        (shape, line["cap"]): line
        for line in lines
        if line["layout"] == "packed" and line.get("peak_gb")
        for shape in SHAPES
        if shape.endswith(line["shape"].removeprefix("qwen3"))
    }


def read_run(argument: str) -> tuple[tuple[str, int], tuple[float, float]]:
    """NAME:CAP:METRICS; the median over the steps after the first, and the peak of all."""
    name, cap, path = argument.split(":", 2)
    lines = [json.loads(line) for line in Path(path).read_text().splitlines()]
    steps = [line["data"] for line in lines if line["step"] > 0]
    seconds = statistics.median(step["timing_s/step"] for step in steps[1:] or steps)
    peaks = [v for step in steps for k, v in step.items() if k.endswith("perf/max_memory_allocated_gb")]
    return (name, int(cap)), (seconds, max(peaks) * GIB / 1e9)  # verl's "gb" are 2**30 bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=Path, help="JSON lines of benchmarks/update_memory.py")
    parser.add_argument("--run", nargs="*", default=[], help="SHAPE:CAP:METRICS.jsonl of a run on the H200")
    args = parser.parse_args()
    print(table(Figures(read_updates(args.updates), dict(map(read_run, args.run)))))


if __name__ == "__main__":
    main()
