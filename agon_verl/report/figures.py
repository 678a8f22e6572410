"""The panels of a report."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, MaxNLocator, PercentFormatter

from agon_verl.health.rules import RULES
from agon_verl.pair.run_folder import Curve, mean_of
from agon_verl.report.picture import GREEN, INK, RED, A, B, Look, Picture, picture, plain

RUNGS = {-1.0: "#c0649a", 0.0: "#b8b8b8", 2.0: A, 2.5: "#4fb0e0", 3.0: GREEN}
OTHER = float("inf")


@dataclass(frozen=True)
class Line:
    """`curves` has one for each seed: thin ones, and their mean to read."""

    label: str
    look: Look
    curves: Sequence[Curve]


def over_training(
    name: str,
    title: str,
    lines: Sequence[Line],
    *,
    unit: str,
    share: bool = True,
    kind: str = "smooth",
    watched: str = "",
) -> Picture | None:
    """Lines over steps: "smooth", "raw", or "points" where there are few. `watched` is a metric with alarm limits."""
    lines = [line for line in lines if any(line.curves)]
    if not lines:
        return None
    few = sum(len(line.curves) for line in lines) <= 6

    def draw(ax: Axes) -> None:
        for line in lines:
            each = [curve for curve in line.curves if curve]
            mean = mean_of(each)
            if few and (kind == "smooth" or len(each) > 1):
                for curve in each:
                    ax.plot(list(curve), list(curve.values()), color=line.look.colour, alpha=0.4, linewidth=0.8)
            values = trailing(list(mean.values())) if kind == "smooth" else list(mean.values())
            (drawn,) = ax.plot(list(mean), values, color=line.look.colour, linewidth=1.8, label=plain(line.label))
            drawn.set(linestyle=line.look.dashes, marker=line.look.marker if kind == "points" else "", markersize=4)
        low, high = ax.get_ylim()
        limits = _limits(watched)
        for limit, word in limits:
            ax.axhline(limit, color=RED, linewidth=1, linestyle=(0, (2, 2)))
            told = ax.text(0.995, limit, f"alarm {word} {limit:g}".replace("-", "−"), va="bottom", ha="right")
            told.set(fontsize=7.5, color=RED, transform=ax.get_yaxis_transform())
        low, high = min(0.0, low, *(limit for limit, _ in limits)), max(0.0, high, *(limit for limit, _ in limits))
        if low < 0:
            ax.axhline(0, color=INK, linewidth=0.8)
        # An error correlation has no bound below.
        ax.set_ylim(*((0, 1.02) if share else (max(-1.0, low * 1.1), high + 0.08 * (high - low))))
        if share:
            ax.yaxis.set_major_formatter(PercentFormatter(1.0))
        _steps(ax, unit)

    means = " ".join(rule.meaning for rule in RULES if rule.covers(watched))
    return picture(name, title, draw, 2.6, f"Beyond the limit: {means}" if means else "")


def _steps(ax: Axes, unit: str) -> None:
    ax.set_ylabel(unit)
    ax.set_xlabel("training step")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))


def _limits(metric: str) -> list[tuple[float, str]]:
    found = []
    for rule in [r for r in RULES if r.covers(metric) and r.limit is not None]:
        limit = rule.limit or 0.0
        further = rule.side not in ("above", "below")
        found += [(limit, "above"), (-limit, "below")] if further else [(limit, rule.side)]
    return found


def trailing(values: Sequence[float]) -> list[float]:
    """The mean of the last eighth of the run: single steps are few problems and jump about."""
    window = max(1, len(values) // 8)
    return [sum(part) / len(part) for part in (values[max(0, i - window + 1) : i + 1] for i in range(len(values)))]


@dataclass(frozen=True)
class Point:
    """Hollow: one completion; filled: a second stage read the first."""

    label: str
    look: Look
    filled: bool
    x: float
    y: float
    low: float
    high: float
    seeds: Sequence[float]


def against_tokens(name: str, title: str, points: Sequence[Point], unit: str) -> Picture | None:
    if not points:
        return None
    labels = list(dict.fromkeys(p.label for p in points))

    def draw(ax: Axes) -> None:
        for label in labels:  # a label once, with the filled point where there is one
            for i, p in enumerate(sorted((p for p in points if p.label == label), key=lambda p: not p.filled)):
                bars = ([max(0.0, p.y - p.low)], [max(0.0, p.high - p.y)])
                fmt, fill = p.look.marker, p.look.colour if p.filled else "none"
                named = None if i else plain(label)
                ax.errorbar([p.x], [p.y], bars, fmt=fmt, color=p.look.colour, mfc=fill, elinewidth=1, label=named)
                if len(p.seeds) > 1:
                    ax.plot([p.x] * len(p.seeds), p.seeds, "_", color=p.look.colour, markersize=8)
        ax.margins(x=0.12, y=0.08)
        low, high = ax.get_ylim()
        ax.set_ylim(max(0.0, low), min(1.02, high))
        ax.yaxis.set_major_formatter(PercentFormatter(1.0))
        ax.xaxis.set_major_locator(MaxNLocator(5))
        ax.set_ylabel("pass@1")
        ax.set_xlabel(unit)

    return picture(name, title, draw, 2.8)


def ladder(name: str, title: str, counts: Mapping[int, Counter[float]]) -> Picture | None:
    """Stacked shares of each reward over the steps, in at most 30 parts."""
    if not counts:
        return None
    steps = sorted(counts)
    wide = ceil(len(steps) / 30)
    parts = [steps[i : i + wide] for i in range(0, len(steps), wide)]
    sums = [_named(sum((counts[step] for step in part), Counter())) for part in parts]
    edges = [part[0] - 0.5 for part in parts] + [parts[-1][-1] + 0.5]

    def draw(ax: Axes) -> None:
        floor = [0.0] * len(edges)
        for value in sorted(set().union(*sums)):
            shares = [s[value] / s.total() for s in sums]
            top = [a + b for a, b in zip(floor, [*shares, shares[-1]], strict=True)]
            label = "other (partial credit)" if value == OTHER else f"{value:g}".replace("-", "−")
            ax.fill_between(edges, floor, top, step="post", color=RUNGS.get(value, "#5c5c5c"), linewidth=0, label=label)
            floor = top
        ax.set_ylim(0, 1)
        ax.set_xlim(edges[0], edges[-1])
        ax.yaxis.set_major_formatter(PercentFormatter(1.0))
        _steps(ax, "share of challenges")

    return picture(name, title, draw, 2.4)


def _named(counts: Counter[float]) -> Counter[float]:
    """Values off the ladder in one."""
    found: Counter[float] = Counter()
    for value, n in counts.items():
        found[value if value in RUNGS else OTHER] += n
    return found


STAGES = {
    "ledger/draft_generated": ("drafts, generated", A),
    "ledger/challenge_generated": ("challenges, generated", B),
    "ledger/draft_prefilled": ("drafts, prefilled", "#9cc3e4"),
    "ledger/challenge_prefilled": ("challenges, prefilled", "#f3c08a"),
}


def token_bars(name: str, title: str, rows: Mapping[str, Mapping[str, float]], unit: str) -> Picture | None:
    """Rows are methods; `STAGES` says what is in one."""
    rows = {label: row for label, row in rows.items() if row}
    if not rows:
        return None

    def draw(ax: Axes) -> None:
        places, floor = list(range(len(rows))), [0.0] * len(rows)
        for metric, (label, colour) in STAGES.items():
            widths = [row.get(metric, 0.0) for row in rows.values()]
            ax.barh(places, widths, left=floor, color=colour, label=label, height=0.65)
            floor = [a + b for a, b in zip(floor, widths, strict=True)]
        ax.set_yticks(places, [plain(label) for label in rows])
        ax.invert_yaxis()
        ax.grid(visible=False, axis="y")
        ax.xaxis.set_major_formatter(EngFormatter(sep=""))
        ax.xaxis.set_major_locator(MaxNLocator(5))
        ax.set_xlabel(unit)

    return picture(name, title, draw, 1.3 + 0.24 * len(rows))
