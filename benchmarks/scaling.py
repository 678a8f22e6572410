"""How the parts of an Agon step grow with N, problems per step, response cap and ranks, varying one at a time.

    python benchmarks/scaling.py --model MODEL --data DATA.parquet --device cpu --prompts 8 --n 4 --response-length 128

The options are the setting from which one value at a time is varied. Every completion is as long as the cap (verl's
`ignore_eos`). Commands that were measured before are not repeated. Writes `scaling.md` and `scaling.png` to --out.
"""

import argparse
import json
import math
import shutil
import statistics
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from step_time import arguments, complete, default_arm, measured, parsed, run

VARIED = {
    "n": ("N", (2, 4, 8, 16)),
    "prompts": ("problems per step", (8, 16, 32, 64)),
    "response_length": ("response cap, tokens", (128, 256, 512, 1024)),
    "ranks": ("data-parallel ranks", (1, 2)),
}
PARTS = {"gen": "generation", "update_actor": "update", "adv": "advantages", "update_weights": "sync", "rest": "rest"}
COLOURS = ("#4477aa", "#cc6677", "#117733", "#ddaa33", "#999999", "#000000")


def with_room(model: Path, tokens: int, out: Path) -> Path:
    """The model with at least `tokens` positions: a toy may have fewer, and rotary embeddings allow any number."""
    config = json.loads((model / "config.json").read_text())
    if config["max_position_embeddings"] >= tokens:
        return model
    copy = out / "model"
    shutil.copytree(model, copy, dirs_exist_ok=True)
    (copy / "config.json").write_text(json.dumps({**config, "max_position_embeddings": tokens}))
    return copy


def measure(args: argparse.Namespace, **changed: int) -> dict[str, float]:
    """Medians of the parts of a step."""
    setting = argparse.Namespace(**{**vars(args), **changed})
    name = "_".join(f"{key}{getattr(setting, key)}" for key in VARIED)
    arm = default_arm(setting)
    if not complete(name, arm, args.out):
        run(name, arm, args.out)
    return {row: statistics.median(values) for row, values in measured(args.out, name).items()}


def draw(results: dict[str, dict[int, dict[str, float]]], picture: Path) -> None:
    figure, panels = plt.subplots(1, len(results), figsize=(13, 4), sharey=True, layout="constrained")
    for panel, (key, points) in zip(panels, results.items(), strict=True):
        values = sorted(points)
        for (part, label), colour in zip((*PARTS.items(), ("step", "step")), COLOURS, strict=True):
            seconds = [points[value][f"{part}, s"] for value in values]
            panel.plot(values, seconds, marker="o", color=colour, label=label, linewidth=2 if part == "step" else 1)
        first = points[values[0]]["step, s"]
        panel.plot(values, [first * v / values[0] for v in values], ":", color="#000000", label="linear")
        panel.set(xscale="log", yscale="log", xlabel=VARIED[key][0], xticks=values, xticklabels=map(str, values))
        panel.minorticks_off()
    panels[0].set(ylabel="seconds")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper", frameon=False, fontsize=9)
    figure.savefig(picture, dpi=110)


def table(results: dict[str, dict[int, dict[str, float]]]) -> str:
    """The exponent compares the last point with the first: 1 is linear, 0 constant."""
    lines = [f"| | {' | '.join(PARTS.values())} | **step** |", "|---|" + "---|" * (len(PARTS) + 1)]
    for key, points in results.items():
        values = sorted(points)
        for value in values:
            cells = [f"{points[value][f'{part}, s']:.2f}" for part in (*PARTS, "step")]
            lines.append(f"| {VARIED[key][0]} {value} | {' | '.join(cells)} |")
        first, last = points[values[0]], points[values[-1]]
        exponents = [
            math.log(last[f"{part}, s"] / first[f"{part}, s"]) / math.log(values[-1] / values[0])
            for part in (*PARTS, "step")
        ]
        lines.append(f"| *exponent* | {' | '.join(f'*{exponent:.2f}*' for exponent in exponents)} |")
    return "\n".join(lines)


def main() -> None:
    args = parsed(arguments(__doc__, "outputs/scaling"))
    args.model = with_room(Path(args.model), args.prompt_length + max(VARIED["response_length"][1]), args.out)
    args.overrides = [*args.overrides, "actor_rollout_ref.rollout.ignore_eos=true"]
    results = {
        key: {value: measure(args, **{key: value}) for value in values}  # type: ignore[arg-type]
        for key, (_, values) in VARIED.items()
    }
    (args.out / "scaling.md").write_text(table(results) + "\n")
    draw(results, args.out / "scaling.png")
    print(table(results))


if __name__ == "__main__":
    main()
