"""What a run did, from the metrics that verl's file logger wrote: a table of held-out accuracy and a page of curves."""

from collections.abc import Sequence
from math import sqrt
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # no display needed
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter

from agon_verl.report.figures import trailing
from agon_verl.report.read import Metrics

WAYS = {
    "A_to_B": "A drafts, B challenges",
    "B_to_A": "B drafts, A challenges",
    "A_alone": "A alone",
    "B_alone": "B alone",
}
BLUE, ORANGE, GREEN, RED = "#2563a8", "#d9730d", "#2e8b57", "#b3312c"
LINES = {"A_to_B": (BLUE, True), "B_to_A": (ORANGE, True), "A_alone": (BLUE, False), "B_alone": (ORANGE, False)}


def wilson(share: float, n: int, z: float = 1.96) -> tuple[float, float]:
    """The 95 % interval of a share of n: unlike the textbook's, it stays within 0 and 1 and is right near them."""
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * sqrt(share * (1 - share) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    return max(0.0, centre - half), min(1.0, centre + half)


def table(metrics: Metrics, data_source: str, n: int) -> str:
    """Held-out accuracy before the first step and after the last, with 95 % intervals."""
    head = f"{'held-out accuracy, n = ' + str(n):<28}{'before':>18}{'after':>18}{'change':>10}"
    lines = [head, "-" * len(head)]
    for way, label in WAYS.items():
        steps, shares = metrics.held_out(data_source, way)
        if len(steps) < 2:
            raise ValueError(f"the run logged no held-out accuracy of {way} before and after training")
        before, after = shares[0], shares[-1]
        lines.append(f"{label:<28}{_cell(before, n):>18}{_cell(after, n):>18}{100 * (after - before):>+10.1f}")
    return "\n".join(lines)


def _cell(share: float, n: int) -> str:
    low, high = wilson(share, n)
    return f"{100 * share:.1f} % [{100 * low:.0f}, {100 * high:.0f}]"


def plot(metrics: Metrics, data_source: str, n: int, title: str, path: Path) -> None:
    """Four panels: held-out accuracy, training accuracy, what reading the attempt does, length."""
    style = {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True}
    with plt.rc_context(style):
        figure, axes = plt.subplots(2, 2, figsize=(11, 7.5), layout="constrained")
        figure.suptitle(title, fontsize=13, fontweight="bold")
        streams = {"draft/acc": (BLUE, "drafts"), "challenge/acc": (ORANGE, "challenges")}
        reading = {
            "pair/conversion": (GREEN, "conversion: share right after a wrong draft"),
            "pair/damage": (RED, "damage: share wrong after a right draft"),
        }
        _shares(axes[0, 1], metrics, "Training accuracy", streams)
        _shares(axes[1, 0], metrics, "What reading the attempt does to a challenge", reading)
        _lengths(axes[1, 1], metrics)
        for ax in axes.flat:
            ax.grid(color="#e5e7eb", linewidth=0.8)
            ax.set_xlabel("step")
            ax.set_xlim(0, 1.01 * max(1, metrics.last_step))
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        _held_out(axes[0, 0], metrics, data_source, n)
        figure.savefig(path, dpi=130)
        plt.close(figure)


def _held_out(ax: Axes, metrics: Metrics, data_source: str, n: int) -> None:
    """Lines where the run validated on the way; two points are no curve, so bars where it did not."""
    ax.set_title(f"Held-out accuracy (n = {n}, with 95 % intervals)", loc="left")
    for place, (way, (color, solid)) in enumerate(LINES.items()):
        steps, shares = metrics.held_out(data_source, way)
        below, above = zip(*((s - low, high - s) for s in shares for low, high in [wilson(s, n)]), strict=True)
        look = {"color": color, "alpha": 1.0 if solid else 0.45, "label": WAYS[way]}
        if len(steps) > 2:
            ax.errorbar(steps, shares, (below, above), fmt="o-" if solid else "o:", markersize=4, capsize=2, **look)
        else:
            spots = [i + 0.2 * (place - 1.5) for i in range(len(steps))]
            error = {"ecolor": "#374151", "elinewidth": 1, "capsize": 2}
            ax.bar(spots, shares, width=0.18, yerr=(below, above), error_kw=error, **look)
            ax.set_xlim(-0.5, 1.5)
            ax.set_xticks(range(len(steps)), [f"step {step}" for step in steps])
            ax.set_xlabel("")
            ax.grid(visible=False, axis="x")
    _percent(ax)
    ax.legend(frameon=False, loc="upper left" if len(steps) <= 2 else "lower right")


def _shares(ax: Axes, metrics: Metrics, title: str, curves: dict[str, tuple[str, str]]) -> None:
    ax.set_title(title, loc="left")
    for name, (color, label) in curves.items():
        _faint_and_smooth(ax, *metrics.curve(name), color, label)
    _percent(ax)
    ax.legend(frameon=False, loc="best")


def _lengths(ax: Axes, metrics: Metrics) -> None:
    ax.set_title("Mean length of a completion (tokens)", loc="left")
    for name, color, label in (("draft/length", BLUE, "drafts"), ("challenge/length", ORANGE, "challenges")):
        _faint_and_smooth(ax, *metrics.curve(name), color, label)
    ax.set_ylim(bottom=0)
    ax.legend(frameon=False, loc="lower right")


def _faint_and_smooth(ax: Axes, steps: Sequence[int], values: Sequence[float], color: str, label: str) -> None:
    """Single steps are few problems and jump about: the line to read is the mean of the last steps."""
    ax.plot(steps, values, color=color, alpha=0.3, linewidth=1)
    ax.plot(steps, trailing(values), color=color, linewidth=2, label=label)


def _percent(ax: Axes) -> None:
    ax.set_ylim(0, 1.02)
    ax.yaxis.set_major_formatter(PercentFormatter(1.0))
