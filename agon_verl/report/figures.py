"""The panels of a report."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, MaxNLocator, PercentFormatter

from agon_verl.game.watches import WATCHES
from agon_verl.report.picture import GREEN, INK, RED, A, B, Look, Picture, picture, plain
from agon_verl.report.read import Curve

RUNGS = {-1.0: "#c0649a", 0.0: "#b8b8b8", 2.0: A, 2.5: "#4fb0e0", 3.0: GREEN}


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
    zero: str = "",
) -> Picture | None:
    """Lines over steps: "smooth" over steps, "raw", or "points" few and apart.

    `watched` is a metric whose alarm limits are drawn, `zero` says what 0 means.
    """
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
                    ax.plot(list(curve), list(curve.values()), color=line.look.colour, alpha=0.3, linewidth=0.8)
            values = trailing(list(mean.values())) if kind == "smooth" else list(mean.values())
            points = {"marker": line.look.marker, "markersize": 4} if kind == "points" else {}
            style = {"color": line.look.colour, "linestyle": line.look.dashes, "linewidth": 1.8, **points}
            ax.plot(list(mean), values, label=plain(line.label), **style)
        if share:
            ax.set_ylim(0, 1.02)
        if watched:
            _limits(ax, watched)
        if zero:
            ax.axhline(0, color=INK, linewidth=0.8)
            ax.text(0.01, 0, f"0: {zero}", va="bottom", fontsize=7.5, transform=ax.get_yaxis_transform())
        ax.yaxis.set_major_formatter(PercentFormatter(1.0) if share else ax.yaxis.get_major_formatter())
        ax.set_ylabel(unit)
        ax.set_xlabel("training step")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))

    return picture(name, title, draw, 2.7 + 0.16 * ceil(len(lines) / 3))


def _limits(ax: Axes, metric: str) -> None:
    low, high = ax.get_ylim()
    for watch in WATCHES:
        if metric in watch.metrics and watch.limit is not None:
            both = watch.side.startswith("further")
            for limit in (watch.limit, -watch.limit) if both else (watch.limit,):
                ax.axhline(limit, color=RED, linewidth=1, linestyle=(0, (2, 2)))
                word = "below" if watch.side == "below" or limit < 0 and both else "above"
                where = {"va": "top" if word == "below" else "bottom", "ha": "right", "fontsize": 7.5, "color": RED}
                ax.text(0.995, limit, f"alarm {word} {limit:g}", transform=ax.get_yaxis_transform(), **where)
                low, high = min(low, limit - 0.12 * abs(high - low)), max(high, limit + 0.12 * abs(high - low))
    ax.set_ylim(max(low, -1.0), high)  # an error correlation has no bound below


def mean_of(curves: Iterable[Curve]) -> Curve:
    found: dict[int, list[float]] = {}
    for curve in curves:
        for step, value in curve.items():
            found.setdefault(step, []).append(value)
    return {step: sum(values) / len(values) for step, values in sorted(found.items())}


def trailing(values: Sequence[float]) -> list[float]:
    """The mean of the last eighth of the run: single steps are few problems and jump about."""
    window = max(1, len(values) // 8)
    return [sum(part) / len(part) for part in (values[max(0, i - window + 1) : i + 1] for i in range(len(values)))]


@dataclass(frozen=True)
class Point:
    label: str
    look: Look
    x: float
    y: float
    low: float
    high: float
    seeds: Sequence[float] = ()


def against_tokens(name: str, title: str, points: Sequence[Point], unit: str) -> Picture | None:
    if not points:
        return None

    def draw(ax: Axes) -> None:
        for p in points:
            bars = ([max(0.0, p.y - p.low)], [max(0.0, p.high - p.y)])
            look = {"color": p.look.colour, "marker": p.look.marker, "markersize": 6}
            ax.errorbar([p.x], [p.y], bars, linestyle="none", capsize=2, label=plain(p.label), **look)
            ax.plot([p.x] * len(p.seeds), p.seeds, "_", color=p.look.colour, markersize=9)
        ax.margins(x=0.15)
        ax.set_xlim(left=0)
        ax.set_ylim(0, 1.02)
        ax.yaxis.set_major_formatter(PercentFormatter(1.0))
        ax.xaxis.set_major_locator(MaxNLocator(5))
        ax.set_ylabel("pass@1")
        ax.set_xlabel(unit)

    return picture(name, title, draw, 2.9 + 0.17 * ceil(len(points) / 3))


def ladder(name: str, title: str, counts: Mapping[int, Counter[float]]) -> Picture | None:
    """Stacked shares of each reward over the steps, at most 30 bars."""
    if not counts:
        return None
    steps = sorted(counts)
    wide = ceil(len(steps) / 30)
    parts = [steps[i : i + wide] for i in range(0, len(steps), wide)]
    sums = [sum((counts[step] for step in part), Counter()) for part in parts]
    values = sorted(v for v in set().union(*sums) if v in RUNGS)

    def draw(ax: Axes) -> None:
        left, widths = [part[0] - 0.5 for part in parts], [part[-1] - part[0] + 1 for part in parts]
        floor = [0.0] * len(parts)
        for value in [*values, None]:
            of = [s[value] if value is not None else sum(n for v, n in s.items() if v not in RUNGS) for s in sums]
            if any(of):
                shares = [n / s.total() for n, s in zip(of, sums, strict=True)]
                look = {"color": "#5c5c5c" if value is None else RUNGS[value], "linewidth": 0}
                label = "other (partial credit)" if value is None else f"{value:g}".replace("-", "−")
                ax.bar(left, shares, widths, bottom=floor, align="edge", label=label, **look)
                floor = [a + b for a, b in zip(floor, shares, strict=True)]
        ax.set_ylim(0, 1)
        ax.set_xlim(left[0], left[-1] + widths[-1])
        ax.yaxis.set_major_formatter(PercentFormatter(1.0))
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.set_ylabel("share of challenges")
        ax.set_xlabel("training step")

    return picture(name, title, draw, 2.6)


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

    return picture(name, title, draw, 1.7 + 0.24 * len(rows))
