"""Pictures as SVG, one panel each, so that a page can lay them out side by side or in one column.

The same input gives the same bytes. Text, axes and grid are drawn in placeholder colours, which are replaced by those
of the page's light or dark theme. Line colours are safe for colour-blind readers and have contrast
on white and on black; every line also has its own dashes and marker.
"""

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import matplotlib

matplotlib.use("Agg")  # no display needed
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

BLUE, ORANGE, GREEN, RED, GREY = "#3b82c4", "#e07b1a", "#009e73", "#d55e00", "#8c8c8c"
PINK, SKY, AMBER, OLIVE = "#c0649a", "#4fb0e0", "#e69f00", "#b3a42e"
TEXT, _GRID = "#010203", "#040506"  # placeholders
_RC_PARAMS: Any = {
    "text.parse_math": False,  # a name with $ is not a formula
    "svg.fonttype": "none",  # text stays text: small, sharp, and available to screen readers
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": _GRID,
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 8,
    **dict.fromkeys(["text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"], TEXT),
}


@dataclass(frozen=True)
class Style:
    colour: str
    dashes: str = "-"
    marker: str = "o"


_METHODS = {
    "base": Style(GREY, ":", "X"),
    "grpo": Style(GREY, "-", "s"),
    "self_refine": Style(OLIVE, "--", "P"),
    "coop": Style(BLUE, "-", "^"),
    "adv": Style(RED, "-", "o"),
    "margin": Style(PINK, "--", "v"),
    "shared_hidden": Style(GREEN, ":", "<"),
    "hidden": Style(GREEN, "-", ">"),
    "fixed": Style(SKY, "--", "D"),
    "tiebreak": Style(AMBER, "-.", "p"),
}
MODES = {
    "A_to_B": Style(BLUE, "-", "o"),
    "B_to_A": Style(ORANGE, "-", "s"),
    "A_to_A": Style(BLUE, "-", "^"),
    "B_to_B": Style(ORANGE, "-", "v"),
    "A": Style(BLUE, "--", "o"),
    "B": Style(ORANGE, "--", "s"),
    "base": Style(GREY, ":", "X"),
    "moa": Style(GREY, "-", "P"),
}
_OTHERS = [Style(RED), Style(BLUE, "--", "s"), Style(GREEN, "-.", "^"), Style(PINK, ":", "D"), Style(AMBER, "--", "v")]


def method_styles(names: Sequence[str]) -> dict[str, Style]:
    """Methods that are not in the paper take the other styles in turn."""
    others = [name for name in names if name not in _METHODS]
    return {n: _METHODS.get(n) or _OTHERS[others.index(n) % len(_OTHERS)] for n in names}


@dataclass(frozen=True)
class Picture:
    title: str
    svg: str
    caption: str


def picture(key: str, title: str, draw: Callable[[Axes], None], height: float, caption: str = "") -> Picture:
    """One panel; `height` in inches, without the legend below it. `key` makes the ids inside the SVG unique."""
    with plt.rc_context({**_RC_PARAMS, "svg.hashsalt": key}):
        figure, ax = plt.subplots(figsize=(4.5, height), layout="constrained")
        try:
            ax.set_title(printable(title), loc="left", fontweight="bold")
            draw(ax)
            handles, labels = ax.get_legend_handles_labels()
            if len(labels) > 1:
                longest = max(map(len, labels))
                columns = next(n for n, fits in ((len(labels), 3), (3, 14), (2, 24), (1, 99)) if longest <= fits)
                figure.set_figheight(height + 0.17 * ceil(len(labels) / columns))
                figure.legend(handles, labels, loc="outside lower center", ncols=columns, handlelength=2.6)
            out = io.StringIO()
            figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        finally:
            plt.close(figure)
    return Picture(title, _inline(out.getvalue()), caption)


def _inline(svg: str) -> str:
    """For use inside a page: as wide as its container, in the colours of the theme.

    Drops what a page does not need: prolog, metadata, ids of groups, decimals of coordinates.
    """
    svg = svg[svg.index("<svg") :].strip()
    svg = re.sub(r"<(metadata)>.*?</\1>\s*|<defs>\s*<style.*?</style>\s*</defs>\s*", "", svg, flags=re.S)
    svg = svg.replace("<svg ", '<svg stroke-linejoin="round" ', 1)  # replaces a <style> that would apply to the page
    svg = re.sub(r' (?:width|height)="[\d.]+pt"', "", svg, count=2)
    svg = svg.replace(TEXT, "currentColor").replace(_GRID, "var(--grid)")
    svg = re.sub(r' id="(?![mp][0-9a-f]{10}\b)[^"]*"', "", svg)
    return re.sub(r' d="[^"]*"', lambda d: re.sub(r"\d+\.\d{2,}", lambda n: f"{float(n[0]):.1f}", d[0]), svg)


def printable(text: str) -> str:
    """At most 60 characters, with spaces for unprintable ones."""
    text = "".join(c if c.isprintable() else " " for c in text)
    return text if len(text) <= 60 else f"{text[:59]}…"
