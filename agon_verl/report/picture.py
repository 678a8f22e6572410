"""Pictures as SVG, one panel each, so that a page can lay them out side by side or in one column.

The same input gives the same bytes. Text, axes and grid are drawn in placeholder colours, which `Picture.inline`
replaces by those of the page's light or dark theme. Line colours are safe for colour-blind readers and have contrast
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

A, B, GREEN, RED, GREY = "#3b82c4", "#e07b1a", "#009e73", "#d55e00", "#8c8c8c"
INK, _GRID = "#010203", "#040506"
_STYLE: Any = {
    "text.parse_math": False,  # names are not formulas
    "svg.fonttype": "none",  # text stays text: small, sharp, and read aloud
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
    **dict.fromkeys(["text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"], INK),
}


@dataclass(frozen=True)
class Look:
    colour: str
    dashes: str = "-"
    marker: str = "o"


METHODS = {
    "base": Look(GREY, ":", "X"),
    "grpo": Look(GREY, "-", "s"),
    "self_refine": Look("#b3a42e", "--", "P"),
    "coop": Look(A, "-", "^"),
    "adv": Look(RED, "-", "o"),
    "margin": Look("#c0649a", "--", "v"),
    "shared_hidden": Look(GREEN, ":", "<"),
    "hidden": Look(GREEN, "-", ">"),
    "fixed": Look("#4fb0e0", "--", "D"),
    "tiebreak": Look("#e69f00", "-.", "p"),
}
_OTHERS = [Look(RED), Look(A, "--", "s"), Look(GREEN, "-.", "^"), Look("#c0649a", ":", "D"), Look("#e69f00", "--", "v")]


def looks(names: Sequence[str]) -> dict[str, Look]:
    """The looks of methods; those that are not the paper's take the others in turn."""
    others = [name for name in names if name not in METHODS]
    return {n: METHODS.get(n) or _OTHERS[others.index(n) % len(_OTHERS)] for n in names}


@dataclass(frozen=True)
class Picture:
    name: str
    title: str
    svg: str
    caption: str

    def inline(self) -> str:
        fluid = re.sub(r' (?:width|height)="[\d.]+pt"', "", self.svg, count=2)
        return fluid.replace(INK, "currentColor").replace(_GRID, "var(--grid)")


def picture(name: str, title: str, draw: Callable[[Axes], None], height: float, caption: str = "") -> Picture:
    """One panel; `height` in inches, without the legend below it."""
    with plt.rc_context({**_STYLE, "svg.hashsalt": name}):
        figure, ax = plt.subplots(figsize=(4.5, height), layout="constrained")
        try:
            ax.set_title(plain(title), loc="left", fontweight="bold")
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
    return Picture(name, title, _slim(out.getvalue()), caption)


def _slim(svg: str) -> str:
    """Without what a page does not need: prolog, metadata, names of groups, the sixth decimal."""
    svg = svg[svg.index("<svg") :].strip()
    svg = re.sub(r"<(metadata)>.*?</\1>\s*|<defs>\s*<style.*?</style>\s*</defs>\s*", "", svg, flags=re.S)
    svg = svg.replace("<svg ", '<svg stroke-linejoin="round" ', 1)  # in place of a style that would be the page's
    svg = re.sub(r' id="(?![mp][0-9a-f]{10}\b)[^"]*"', "", svg)
    return re.sub(r' d="[^"]*"', lambda d: re.sub(r"\d+\.\d{2,}", lambda n: f"{float(n[0]):.1f}", d[0]), svg)


def plain(text: str) -> str:
    """A name as it is drawn: nothing unprintable, not too long."""
    text = "".join(c if c.isprintable() else " " for c in text)
    return text if len(text) <= 60 else f"{text[:59]}…"
