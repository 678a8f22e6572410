"""What a report says, section by section, as plain tables, pictures and sentences; `page` puts it on a page.

With one method a panel has a line for each metric. With several it has a line for each method, and metrics that belong
together (both directions of a cascade, say) are averaged: nothing is picked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agon_verl.report import figures, table
from agon_verl.report.figures import Line, Point
from agon_verl.report.pairs import Card, Reading
from agon_verl.report.picture import GREEN, RED, A, B, Look, Picture, looks
from agon_verl.report.read import Method, Run

_WAYS = {
    "A_to_B": Look(A, "-", "o"),
    "B_to_A": Look(B, "-", "s"),
    "A_to_A": Look(A, "-", "^"),
    "A_alone": Look(A, "--", "o"),
    "B_alone": Look(B, "--", "s"),
}


@dataclass(frozen=True)
class Table:
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    folded: bool = False


@dataclass(frozen=True)
class Section:
    """`caption` says in a sentence what to look for; `missing` what would have to be there."""

    key: str
    title: str
    caption: str
    pictures: Sequence[Picture | None] = ()
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()
    missing: str = ""
    cards: Sequence[Card] = field(default=())

    @property
    def drawn(self) -> list[Picture]:
        return [picture for picture in self.pictures if picture]

    @property
    def empty(self) -> bool:
        return not (self.drawn or self.tables or self.cards)


Found = dict[str, dict[str, dict[str, table.Answers]]]  # by source, method and way


def evaluated(methods: Sequence[Method]) -> Found:
    return {s: {m.name: f for m in methods if (f := table.answers(m, s))} for s in table.sources(methods)}


def percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def results(methods: Sequence[Method], found: Found) -> Section:
    tables, notes = [], []
    for source, by_method in found.items():
        several = len(by_method) > 1
        rows = [(m, a) for m, f in by_method.items() for a in (table.main_ways(m, f) if several else f.values())]
        n = max(len(answers.rows) for _, answers in rows)
        tables.append(Table(_HEAD, [_row(answers, methods) for _, answers in rows], f"{source}: {n} problems"))
        if several:
            every = [_row(answers, methods) for f in by_method.values() for answers in f.values()]
            tables += [*_paired(by_method, source), Table(_HEAD, every, f"{source}: every way of answering", True)]
    if any(run.seed is not None or run.state in ("failed", "missing") for m in methods for run in m.runs):
        tables.append(_cells(methods))
        notes += [f"{run.name} failed: {run.error}" for m in methods for run in m.runs if run.error]
        notes += [f"{run.name} broke parity: {run.parity}" for m in methods for run in m.runs if run.parity]
    most = max((a.spread.runs for f in found.values() for by in f.values() for a in by.values()), default=0)
    if found:
        notes.insert(0, _SEEDS if most > 1 else _ONE_SEED)
        if any(table.POST_HOC in by for f in found.values() for by in f.values()):
            notes.insert(1, _POST_HOC)
    caption = "Compare pass@1 by its interval, and read it beside the tokens it took."
    return Section("results", "Results", caption, tables=tables, notes=notes, missing=_NO_EVALUATION)


_HEAD = ["method", "answers by", "direction", "runs", "pass@1 %", "95 % interval", "sd of seeds", "range of seeds"]
_HEAD += ["final tokens", "generated", "prefilled"]
_NO_EVALUATION = "None of these runs was evaluated: python -m agon_verl.evaluate, with --out RUN/eval."
_ONE_SEED = (
    "One seed a method: intervals are over problems and sampled answers, and say nothing about what another training "
    "run would give. Tokens are means a problem: of the final stage, and generated and prefilled by all stages."
)
_SEEDS = (
    "pass@1 is the mean over seeds. Intervals are over problems and sampled answers, for these very runs; what another "
    "training run would give is in the spread over seeds (sd: standard deviation, n − 1). Tokens are means a problem: of "
    "the final stage, and generated and prefilled by all stages."
)
_POST_HOC = (
    "“Cascade” takes the direction that was chosen beforehand. “Post hoc” takes the one that was better on these very "
    "problems, as the paper does, which flatters it."
)


def _row(a: table.Answers, methods: Sequence[Method]) -> list[str]:
    runs = next(len(m.runs) for m in methods if m.name == a.method)
    several = a.spread.runs > 1
    return [
        a.method,
        a.label,
        a.directions,
        str(a.spread.runs) if a.spread.runs == runs else f"✗ {a.spread.runs} of {runs}",
        percent(a.spread.mean),
        f"{percent(a.interval.low)} – {percent(a.interval.high)}",
        percent(a.spread.deviation),
        f"{percent(a.spread.low)} – {percent(a.spread.high)}" if several else "one run",
        number(a.length),
        number(a.generated),
        number(a.prefilled),
    ]


def _paired(by_method: Mapping[str, Mapping[str, table.Answers]], source: str) -> list[Table]:
    if (reference := table.reference(by_method)) is None:
        return []
    rows = []
    for answers in [a for m, f in by_method.items() for a in table.main_ways(m, f) if a.way != table.POST_HOC]:
        if answers is not reference and (told := table.against(answers, reference)):
            span = told.interval
            around = f"{100 * span.low:+.1f} – {100 * span.high:+.1f}" if span else "–"
            difference = f"{100 * told.difference:+.1f}"
            rows.append([answers.method, answers.label, difference, around, f"{told.p:.2g}", str(told.problems)])
    head = ["method", "answers by", "difference, points", "95 % interval", "p", "problems"]
    title = f"{source}: against {reference.method}, {reference.label} (paired over problems; p is not corrected)"
    return [Table(head, rows, title)] if rows else []


def _cells(methods: Sequence[Method]) -> Table:
    seeds = sorted({run.seed for m in methods for run in m.runs if run.seed is not None})

    def cell(run: Run | None) -> str:
        if run is None:
            return "–"
        return {"evaluated": "✓ evaluated", "trained": "trained"}.get(run.state, f"✗ {run.state}") + (
            ", ✗ parity" if run.parity else ""
        )

    trained = [m for m in methods if any(run.seed is not None for run in m.runs)]
    rows = [[m.name, *(cell(next((r for r in m.runs if r.seed == s), None)) for s in seeds)] for m in trained]
    return Table(["method", *(f"seed {seed}" for seed in seeds)], rows, "Runs")


def lengths(methods: Sequence[Method], found: Found) -> Section:
    pictures: list[Picture | None] = []
    named = looks([m.name for m in methods])
    ways = {"A": _WAYS["A_alone"], "B": _WAYS["B_alone"], **_WAYS, "base": Look("#8c8c8c", marker="X")}
    for i, (source, by_method) in enumerate(found.items()):
        if several := len(by_method) > 1:
            shown = [a for m, f in by_method.items() for a in table.main_ways(m, f) if a.way != table.POST_HOC]
        else:
            shown = [a for f in by_method.values() for a in f.values() if a.way not in (table.CASCADE, table.POST_HOC)]
        for unit, of in (("final-stage", "length"), ("generated in all stages", "generated")):
            points = []
            for a in [a for a in shown if getattr(a, of) is not None]:
                look = named[a.method] if several else ways.get(a.way, Look(GREEN, marker="D"))
                label = f"{a.method}, {a.label}" if several else a.label
                seeds = a.seeds if len(a.seeds) > 1 else ()
                points.append(
                    Point(label, look, getattr(a, of), a.spread.mean, a.interval.low, a.interval.high, seeds)
                )
            title = f"{source}: {'last stage' if of == 'length' else 'all stages'}"
            unit_text = f"mean tokens a problem, {unit}"
            pictures.append(figures.against_tokens(f"accuracy_{of}_{i}", title, points, unit_text))
    caption = (
        "Up and to the left is better: a method that is right more often only because it writes more moves to the right "
        "as well (bars: 95 % over problems; ticks: single seeds)."
    )
    return Section("length", "Accuracy against length", caption, pictures, missing=_NO_EVALUATION)


def accuracy(methods: Sequence[Method]) -> Section:
    sources: dict[str, dict[str, str]] = {}
    for run in [run for m in methods for run in m.runs]:
        for source, ways in run.metrics.validations().items():
            sources.setdefault(source, {}).update(ways)
    pictures: list[Picture | None] = []
    for i, (source, ways) in enumerate(sources.items()):
        for part, title in (("_to_", "cascade"), ("_alone", "one adapter alone")):
            metrics = {_name(w): (name, _WAYS.get(w, Look(GREEN))) for w, name in ways.items() if part in w}
            key, title = f"held_out{part.rstrip('_')}_{i}", f"{source}: {title}"
            pictures += panels(methods, key, title, metrics, together=True, unit="held-out accuracy", kind="points")
    several = " Lines are means over directions or adapters, and over seeds." if len(methods) > 1 else ""
    caption = "Look whether the cascade ends above one adapter alone, and whether either has stopped rising." + several
    missing = "These runs logged no validation (trainer.test_freq, trainer.val_before_train)."
    return Section("accuracy", "Accuracy over training", caption, pictures, missing=missing)


def _name(way: str) -> str:
    return way.replace("_to_", " → ").replace("_", " ")


def exchange(methods: Sequence[Method]) -> Section:
    metrics = {
        "conversion: right after a wrong draft": ("pair/conversion", Look(GREEN)),
        "damage: wrong after a right draft": ("pair/damage", Look(RED, "--")),
    }
    caption = "Conversion should rise and damage fall; damage that rises means that reading spoils right solutions."
    drawn = panels(methods, "exchange", "Conversion and damage", metrics, unit="share of challenges")
    missing = "No challenger of these runs read a draft."
    return Section("exchange", "Conversion and damage over training", caption, drawn, missing=missing)


_HEALTH: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("error_correlation", "Error correlation", {"share": False, "unit": "correlation", "zero": "independent errors"}),
    ("copy_of_wrong", "Copies of wrong drafts", {"unit": "share of wrong drafts"}),
    ("wrong_answer_kept", "Wrong answers kept", {"unit": "share of wrong drafts"}),
    ("distance", "Distance between the adapters", {"share": False, "unit": "relative distance", "kind": "raw"}),
    (
        "strength_gap",
        "Strength gap, A − B",
        {"share": False, "unit": "difference in accuracy", "zero": "equal", "kind": "raw"},
    ),
)


def health(methods: Sequence[Method]) -> Section:
    drawn: list[Picture | None] = []
    if len(methods) == 1:
        overlap = "health/error_overlap"
        both = {"measured": (overlap, Look(RED)), "if independent": (f"{overlap}_if_independent", Look(A, "--"))}
        drawn += panels(methods, "error_overlap", "Both wrong", both, unit="share of pairs")
    for name, title, style in _HEALTH:
        metric = f"health/{name}"
        drawn += panels(methods, name, title, {title: (metric, Look(GREEN))}, watched=metric, **style)
    trends = {x: (f"health/{x}/entropy_trend", Look(c, d)) for x, c, d in (("A", A, "-"), ("B", B, "--"))}
    style = {"share": False, "unit": "entropy / its start", "kind": "raw", "watched": trends["A"][0]}
    drawn += panels(methods, "entropy", "Entropy relative to the start", trends, **style)
    sounded = []
    for run in [run for m in methods for run in m.runs]:
        at = [str(step) for step, n in zip(*run.metrics.curve("health/alarms"), strict=True) if n > 0]
        sounded += [f"{run.name}: alarms sounded at step {', '.join(at)}."] if at else []
    logged = any("health/alarms" in step for m in methods for run in m.runs for step in run.metrics.by_step.values())
    notes = sounded or (["No alarm sounded in these runs."] if logged else [])
    notes.append(
        "The limits drawn are the defaults. Alarms compare shares averaged over steps and wait for several updates in a "
        "row, so a line may cross a limit in silence."
    )
    caption = (
        "One policy instead of two shows as an error correlation that rises towards 1, wrong drafts that are copied, and "
        "a distance that falls towards 0."
    )
    missing = "These runs logged no health/… metrics."
    return Section("health", "Pair health", caption, drawn, notes=notes, missing=missing)


def ladder(readings: Mapping[str, Reading]) -> Section:
    drawn, notes = [], []
    for i, (name, reading) in enumerate(readings.items()):
        drawn.append(figures.ladder(f"ladder_{i}", name, reading.ladder()))
        notes += [f"{name}: {reading.unreadable:,} lines could not be read."] if reading.unreadable else []
    weights = sorted({f"{r.format_weight:g}" for r in readings.values() if r.pairs})
    notes += [f"λ = {', '.join(weights)}, as the drafts' rewards show."] if weights else []
    caption = (
        "Without the format term λφ, a challenge earns 0 (wrong), 2 (right) or, where the method pays for it, 3 (right "
        "after a wrong draft): 3 should grow at the cost of 0, and fades once few drafts are wrong."
    )
    return Section("ladder", "Reward ladder", caption, drawn, notes=notes, missing=_NO_PAIRS)


_NO_PAIRS = "These runs kept no pairs (trainer.rollout_data_dir=RUN/pairs)."


def tokens(methods: Sequence[Method]) -> Section:
    ledger = {m.name: [run.metrics for run in m.runs if run.metrics.curve("ledger/draft_generated")[0]] for m in methods}
    ledger = {name: runs for name, runs in ledger.items() if runs}
    counted = bool(ledger) and all(run.curve("ledger/problems")[0] for runs in ledger.values() for run in runs)
    unit = "problem" if counted else "step"
    rows = {}
    for name, runs in ledger.items():
        over = sum(sum(run.curve("ledger/problems")[1]) if counted else len(run.curve(STEPS)[0]) for run in runs)
        rows[name] = {metric: sum(sum(run.curve(metric)[1]) for run in runs) / over for metric in [*figures.STAGES, _READ]}
    told = [
        [name, *(number(row[metric]) for metric in [*figures.STAGES, _READ]), number(sum(row.values()) - row[_READ])]
        for name, row in rows.items()
    ]
    head = ["method", *(label for label, _ in figures.STAGES.values()), "of it the rival's text", "in all"]
    made = {"drafts": ("draft/length", Look(A)), "challenges": ("challenge/length", Look(B, "--"))}
    drawn = [figures.token_bars("tokens", f"Tokens of training a {unit}", rows, f"tokens a {unit}, mean over training")]
    style = {"share": False, "unit": "tokens", "together": True}
    drawn += panels(methods, "completion_length", "Mean length of a completion", made, **style)
    caption = "What a step costs: a challenger's prompt holds the draft's summary, which is prefilled and trained on too."
    table_ = Table(head, told, f"Tokens a {unit}, mean over training")
    missing = "These runs logged no ledger/… metrics."
    return Section("tokens", "Token cost", caption, drawn, [table_] if told else (), missing=missing)


STEPS, _READ = "ledger/draft_generated", "ledger/opponent_prefilled"


def reading(readings: Mapping[str, Reading]) -> Section:
    cards = [card for reading in readings.values() for card in reading.cards]
    total = sum(r.pairs for r in readings.values())
    caption = (
        f"{len(cards)} of {total:,} pairs, drawn with a fixed seed from all of a kind; read whether a conversion follows "
        "from the challenger's own work, and what led it astray in a damage."
    )
    return Section("pairs", "Pairs to read", caption, cards=cards, missing=_NO_PAIRS)


def panels(
    methods: Sequence[Method],
    key: str,
    title: str,
    metrics: Mapping[str, tuple[str, Look]],
    *,
    together: bool = False,
    **style: Any,
) -> list[Picture | None]:
    """`metrics` are names and looks by label; `together`: with several methods, their mean and not a panel each."""
    if len(methods) == 1:
        runs = [run.metrics for run in methods[0].runs]
        lines = [Line(label, look, [r.mean_curve([name]) for r in runs]) for label, (name, look) in metrics.items()]
        return [figures.over_training(key, title, lines, **style)]
    named = looks([m.name for m in methods])
    whole = {title: [name for name, _ in metrics.values()]}
    parts = whole if together else {label: [name] for label, (name, _) in metrics.items()}
    drawn = []
    for i, (label, names) in enumerate(parts.items()):
        lines = [Line(m.name, named[m.name], [r.metrics.mean_curve(names) for r in m.runs]) for m in methods]
        titled = title if label == title else f"{title}: {label}" if len(label) < 3 else label[:1].upper() + label[1:]
        drawn.append(figures.over_training(f"{key}_{i}" if i else key, titled, lines, **style))
    return drawn
