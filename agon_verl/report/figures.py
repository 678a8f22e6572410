"""The panels of a report."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, FuncFormatter, MaxNLocator

from agon_verl.evaluate.summary import Summary
from agon_verl.health.rules import RULES
from agon_verl.pair.run_folder import Curve, mean_of
from agon_verl.report.picture import BLUE, GREEN, ORANGE, PINK, RED, SKY, TEXT, Picture, Style, picture, printable

_REWARD_COLOURS = {-1.0: PINK, 0.0: "#b8b8b8", 2.0: BLUE, 2.5: SKY, 3.0: GREEN}
_PERCENT = FuncFormatter(lambda share, _: f"{round(100 * share, 1):g}%")
_OTHER = float("inf")  # stands for rewards that are not in the table


@dataclass(frozen=True)
class Line:
    """One line of a panel: the mean of `curves`, which has one curve per seed."""

    label: str
    style: Style
    curves: Sequence[Curve]


def over_training(
    key: str,
    title: str,
    lines: Sequence[Line],
    *,
    unit: str,
    share: bool = True,
    kind: str = "smooth",
    watched: str = "",
) -> Picture | None:
    """Lines over training steps: "smooth", "raw", or "points". `watched` is a metric whose alarm limits are drawn.

    With few lines, the single steps (of a smooth line) and the single seeds are drawn thin.
    """
    lines = [line for line in lines if any(line.curves)]
    if not lines:
        return None
    few = sum(len(line.curves) for line in lines) <= 6
    limits = _limits(watched)

    def draw(ax: Axes) -> None:
        for line in lines:
            curves = [curve for curve in line.curves if curve]
            mean = mean_of(curves)
            if few and (kind == "smooth" or len(curves) > 1):
                for curve in curves:
                    ax.plot(list(curve), list(curve.values()), color=line.style.colour, alpha=0.4, linewidth=0.8)
            values = trailing_mean(list(mean.values())) if kind == "smooth" else list(mean.values())
            (drawn,) = ax.plot(list(mean), values, color=line.style.colour, linewidth=1.8, label=printable(line.label))
            drawn.set(linestyle=line.style.dashes, marker=line.style.marker if kind == "points" else "", markersize=4)
        low, high = ax.get_ylim()
        for limit, side in limits:
            ax.axhline(limit, color=RED, linewidth=1, linestyle=(0, (2, 2)))
            label = ax.annotate(f"alarm {side} {limit:g}".replace("-", "−"), (0.995, limit), (0, 1.5), color=RED)
            label.set(fontsize=7.5, ha="right", va="bottom", anncoords="offset points")
            label.xycoords = ax.get_yaxis_transform()
        low, high = min(0.0, low, *(limit for limit, _ in limits)), max(0.0, high, *(limit for limit, _ in limits))
        if low < 0:
            ax.axhline(0, color=TEXT, linewidth=0.8)
        # An error correlation can be far below -1.
        ax.set_ylim(*((0, 1.02) if share else (max(-1.0, low * 1.1), high + 0.08 * (high - low))))
        if share:
            ax.yaxis.set_major_formatter(_PERCENT)
        _label_steps(ax, unit)

    means = " ".join(rule.meaning for rule in RULES if rule.covers(watched))
    return picture(key, title, draw, 2.6, f"Beyond the limit: {means}" if means else "")


def _label_steps(ax: Axes, unit: str) -> None:
    ax.set_ylabel(unit)
    ax.set_xlabel("training step")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))


def _limits(metric: str) -> list[tuple[float, str]]:
    limits: list[tuple[float, str]] = []
    for rule in RULES:
        if rule.covers(metric) and rule.limit is not None:
            one_sided = rule.side in ("above", "below")
            limits += [(rule.limit, rule.side)] if one_sided else [(rule.limit, "above"), (-rule.limit, "below")]
    return limits


def trailing_mean(values: Sequence[float]) -> list[float]:
    """The mean over the last eighth of the run, because a single step has few problems."""
    window = max(1, len(values) // 8)
    return [sum(part) / len(part) for part in (values[max(0, i - window + 1) : i + 1] for i in range(len(values)))]


@dataclass(frozen=True)
class Point:
    """One way of answering. `filled`: a second stage read the first; hollow: one completion."""

    label: str
    style: Style
    filled: bool
    tokens: float
    summary: Summary


def against_tokens(key: str, title: str, points: Sequence[Point], unit: str) -> Picture | None:
    if not points:
        return None
    labels = list(dict.fromkeys(p.label for p in points))

    def draw(ax: Axes) -> None:
        labelled: set[str] = set()  # a label is drawn once, with the filled point if there is one
        for p in sorted(points, key=lambda p: (labels.index(p.label), not p.filled)):
            share, interval, seeds = p.summary.spread.mean, p.summary.interval, p.summary.shares
            bars = ([max(0.0, share - interval.low)], [max(0.0, interval.high - share)])
            marker = ax.errorbar([p.tokens], [share], bars, fmt=p.style.marker, color=p.style.colour, elinewidth=1)
            marker[0].set_markerfacecolor(p.style.colour if p.filled else "none")
            if p.label not in labelled:
                marker.set_label(printable(p.label))
            labelled.add(p.label)
            if len(seeds) > 1:
                ax.plot([p.tokens] * len(seeds), seeds, "_", color=p.style.colour, markersize=8)
        ax.margins(x=0.12, y=0.08)
        low, high = ax.get_ylim()
        ax.set_ylim(max(0.0, low), min(1.02, high))
        ax.yaxis.set_major_formatter(_PERCENT)
        ax.xaxis.set_major_locator(MaxNLocator(5))
        ax.set_ylabel("pass@1")
        ax.set_xlabel(unit)

    return picture(key, title, draw, 2.8)


def ladder(key: str, title: str, counts: Mapping[int, Counter[float]]) -> Picture | None:
    """Stacked shares of each reward over the steps, in at most 30 bins."""
    if not counts:
        return None
    steps = sorted(counts)
    width = ceil(len(steps) / 30)
    bins = [steps[i : i + width] for i in range(0, len(steps), width)]
    totals: list[Counter[float]] = [Counter() for _ in bins]
    for total, bin_steps in zip(totals, bins, strict=True):
        for reward, n in [item for step in bin_steps for item in counts[step].items()]:
            total[reward if reward in _REWARD_COLOURS else _OTHER] += n
    edges = [bin_steps[0] - 0.5 for bin_steps in bins] + [bins[-1][-1] + 0.5]

    def draw(ax: Axes) -> None:
        bottom = [0.0] * len(edges)
        for reward in sorted(set().union(*totals)):
            shares = [total[reward] / total.total() for total in totals]
            top = [a + b for a, b in zip(bottom, [*shares, shares[-1]], strict=True)]
            label = "other (partial credit)" if reward == _OTHER else f"{reward:g}".replace("-", "−")
            colour = _REWARD_COLOURS.get(reward, "#5c5c5c")
            ax.fill_between(edges, bottom, top, step="post", color=colour, linewidth=0, label=label)
            bottom = top
        ax.set_ylim(0, 1)
        ax.set_xlim(edges[0], edges[-1])
        ax.yaxis.set_major_formatter(_PERCENT)
        _label_steps(ax, "share of challenges")

    return picture(key, title, draw, 2.4)


STAGES = {
    "ledger/draft_generated": ("drafts, generated", BLUE),
    "ledger/challenge_generated": ("challenges, generated", ORANGE),
    "ledger/draft_prefilled": ("drafts, prefilled", "#9cc3e4"),
    "ledger/challenge_prefilled": ("challenges, prefilled", "#f3c08a"),
}


def token_bars(key: str, title: str, rows: Mapping[str, Mapping[str, float]], unit: str) -> Picture | None:
    """One bar per method; `rows` has the tokens of each of the `STAGES`."""
    if not rows:
        return None

    def draw(ax: Axes) -> None:
        places, left = list(range(len(rows))), [0.0] * len(rows)
        for metric, (label, colour) in STAGES.items():
            widths = [row[metric] for row in rows.values()]
            ax.barh(places, widths, left=left, color=colour, label=label, height=0.65)
            left = [a + b for a, b in zip(left, widths, strict=True)]
        ax.set_yticks(places, [printable(label) for label in rows])
        ax.invert_yaxis()
        ax.grid(visible=False, axis="y")
        ax.xaxis.set_major_formatter(EngFormatter(sep=""))
        ax.xaxis.set_major_locator(MaxNLocator(5))
        ax.set_xlabel(unit)

    return picture(key, title, draw, 1.3 + 0.24 * len(rows))
