"""What training logged, and the pairs that it kept.

With one method a panel has a line for each metric. With several it has a line for each method, and metrics that belong
together (both directions of a cascade, say) are averaged: nothing is picked.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from agon_verl.evaluate.markdown import number, percent
from agon_verl.report import figures
from agon_verl.report.figures import STAGES, Line
from agon_verl.report.pairs import Reading
from agon_verl.report.picture import GREEN, RED, A, B, Look, Picture, looks
from agon_verl.report.read import Method
from agon_verl.report.section import Section, Table, signed

_WAYS = {
    "A_to_B": Look(A, "-", "o"),
    "B_to_A": Look(B, "-", "s"),
    "A_to_A": Look(A, "-", "^"),
    "A_alone": Look(A, "--", "o"),
    "B_alone": Look(B, "--", "s"),
}
_NO_PAIRS = "These runs kept no pairs (trainer.rollout_data_dir=RUN/pairs)."


def panels(
    methods: Sequence[Method],
    key: str,
    title: str,
    metrics: Mapping[str, tuple[str, Look]],
    *,
    together: bool = False,
    **style: Any,
) -> list[Picture | None]:
    """`metrics` are names and looks by label. `together`: of several methods, one panel of their mean."""
    if len(methods) == 1:
        runs = [run.metrics for run in methods[0].runs]
        lines = [Line(label, look, [r.mean_curve([name]) for r in runs]) for label, (name, look) in metrics.items()]
        return [figures.over_training(key, title, lines, **style)]
    colours = looks([m.name for m in methods])
    parts = {title: [name for name, _ in metrics.values()]}
    parts = parts if together else {label: [name] for label, (name, _) in metrics.items()}
    drawn = []
    for i, (label, names) in enumerate(parts.items()):
        lines = [Line(m.name, colours[m.name], [r.metrics.mean_curve(names) for r in m.runs]) for m in methods]
        drawn.append(figures.over_training(f"{key}_{i}" if i else key, label, lines, **style))
    return drawn


def accuracy(methods: Sequence[Method]) -> Section:
    sources: dict[str, dict[str, str]] = {}
    for run in [run for m in methods for run in m.runs]:
        for source, ways in run.metrics.validations().items():
            sources.setdefault(source, {}).update(ways)
    drawn: list[Picture | None] = []
    rows = []
    for i, (source, ways) in enumerate(sources.items()):
        for part, title in (("_to_", "cascade"), ("alone", "one adapter alone")):
            found = {_said(w): (metric, _WAYS.get(w, Look(GREEN))) for w, metric in ways.items() if part in w}
            rows += [row for m in methods for way, (name, _) in found.items() if (row := _change(m, source, way, name))]
            style: dict[str, Any] = {"unit": "held-out accuracy", "kind": "points", "together": True}
            drawn += panels(methods, f"held_out_{part.strip('_')}_{i}", f"{source}: {title}", found, **style)
    streams = {"drafts": ("draft/acc", Look(A)), "challenges": ("challenge/acc", Look(B, "--"))}
    drawn += panels(methods, "training_accuracy", "Training accuracy", streams, unit="share right")
    caption = "Look whether the cascade ends above one adapter alone, and whether either has stopped rising"
    caption += "; a line is the mean over directions or adapters, and over seeds." if len(methods) > 1 else "."
    missing = "These runs logged no validation (trainer.test_freq, trainer.val_before_train)."
    head = ["method", "answers by", "data", "runs", "first %", "last %", "change, points", "steps"]
    tables = [Table(head, rows, "First and last validation", folded=len(methods) > 1)] if rows else []
    notes = [
        "Metrics do not say how many problems a validation had, so there are no intervals here; means are over runs."
    ]
    return Section("accuracy", "Accuracy over training", caption, missing, drawn, tables, notes)


def _said(way: str) -> str:
    return way.replace("_to_", " → ").replace("_", " ")


def _change(method: Method, source: str, way: str, metric: str) -> list[str] | None:
    """Of the runs that validated more than once."""
    curves = [run.metrics.curve(metric) for run in method.runs]
    ends = [(values[0], values[-1]) for _, values in curves if len(values) > 1]
    if not ends:
        return None
    first, last = (sum(side) / len(ends) for side in zip(*ends, strict=True))
    steps = sorted({f"{steps[0]} to {steps[-1]}" for steps, _ in curves if len(steps) > 1})
    shares = [percent(first), percent(last), signed(last - first)]
    return [method.name, way, source, str(len(ends)), *shares, ", ".join(steps)]


def exchange(methods: Sequence[Method]) -> Section:
    metrics = {
        "Conversion: right after a wrong draft": ("pair/conversion", Look(GREEN)),
        "Damage: wrong after a right draft": ("pair/damage", Look(RED, "--")),
    }
    caption = "Conversion should rise and damage fall; damage that rises means that reading spoils right solutions."
    drawn = panels(methods, "exchange", "Conversion and damage", metrics, unit="share of such drafts")
    missing = "These runs logged no pair/conversion: their challengers read nothing, or this is no pair's run."
    return Section("exchange", "Conversion and damage", caption, missing, drawn)


_HEALTH: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("error_correlation", "Error correlation", {"share": False, "unit": "0: independent errors"}),
    ("copy_of_wrong", "Wrong drafts copied", {"unit": "share of wrong drafts"}),
    ("wrong_answer_kept", "Wrong answers kept", {"unit": "share of wrong drafts"}),
    ("distance", "Distance between the adapters' weights", {"share": False, "unit": "relative to both", "kind": "raw"}),
    ("strength_gap", "Strength gap", {"share": False, "unit": "accuracy of A − of B", "kind": "raw"}),
)


def health(methods: Sequence[Method]) -> Section:
    drawn: list[Picture | None] = []
    if len(methods) == 1:
        overlap = "health/error_overlap"
        both = {"measured": (overlap, Look(RED)), "if independent": (f"{overlap}_if_independent", Look(A, "--"))}
        drawn += panels(methods, "error_overlap", "Both wrong", both, unit="share of pairs")
    for name, title, given in _HEALTH:
        metric = f"health/{name}"
        drawn += panels(methods, name, title, {title: (metric, Look(GREEN))}, watched=metric, **given)
    trends = {
        f"Entropy of {x}": (f"health/{x}/entropy_trend", Look(c, d)) for x, c, d in (("A", A, "-"), ("B", B, "--"))
    }
    style: dict[str, Any] = {
        "share": False,
        "unit": "relative to the start",
        "kind": "raw",
        "watched": "health/A/entropy_trend",
    }
    drawn += panels(methods, "entropy", "Entropy", trends, **style)
    notes = []
    for run in [run for m in methods for run in m.runs]:
        at = [str(step) for step, alarms in zip(*run.metrics.curve("health/alarms"), strict=True) if alarms > 0]
        notes += [f"{run.name}: alarms sounded at step {', '.join(at)}."] if at else []
    logged = any(run.metrics.curve("health/alarms")[0] for m in methods for run in m.runs)
    notes += ["No alarm sounded."] if logged and not notes else []
    notes.append(
        "Limits are the defaults. Alarms compare shares averaged over steps, and only after several updates beyond the "
        "limit, so a line may cross one in silence."
    )
    caption = (
        "Two that become one show as an error correlation that rises towards 1, wrong drafts that are copied, and a "
        "distance that falls towards 0."
    )
    return Section("health", "Pair health", caption, "These runs logged no health/… metrics.", drawn, notes=notes)


def ladder(readings: Mapping[str, Reading]) -> Section:
    drawn = [figures.ladder(f"ladder_{i}", m, reading.ladder()) for i, (m, reading) in enumerate(readings.items())]
    notes = [f"{m}: {r.unreadable:,} lines could not be read." for m, r in readings.items() if r.unreadable]
    weights = sorted({f"{r.format_weight:g}" for r in readings.values() if r.pairs})
    notes += [f"λ = {', '.join(weights)}, by the rewards of the drafts."] if weights else []
    caption = (
        "Apart from the format term λφ a challenge earns 0 (wrong), 2 (right) or, where conversions are paid for, 3 "
        "(right against a wrong draft; under margin also −1, wrong against a right one): 0 should shrink, and 3 fades "
        "once few drafts are wrong. All seeds together."
    )
    return Section("ladder", "Reward ladder", caption, _NO_PAIRS, drawn, notes=notes)


def tokens(methods: Sequence[Method]) -> Section:
    read, problems = "ledger/opponent_prefilled", "ledger/problems"
    runs = {m.name: [r.metrics for r in m.runs if r.metrics.curve(read)[0]] for m in methods}
    counted = all(run.curve(problems)[0] for given in runs.values() for run in given)
    unit = "problem" if counted else "step"
    rows = {}
    for name, given in runs.items():
        of = sum(sum(run.curve(problems)[1]) if counted else len(run.curve(read)[0]) for run in given)
        if of:
            rows[name] = {metric: sum(sum(run.curve(metric)[1]) for run in given) / of for metric in [*STAGES, read]}
    told = [
        [name, *map(number, row.values()), number(sum(row[stage] for stage in STAGES))] for name, row in rows.items()
    ]
    head = ["method", *(label for label, _ in STAGES.values()), "of these the draft's text", "in all"]
    made = {"drafts": ("draft/length", Look(A)), "challenges": ("challenge/length", Look(B, "--"))}
    drawn = [figures.token_bars("tokens", f"Tokens of training a {unit}", rows, f"tokens a {unit}, mean over training")]
    style: dict[str, Any] = {"share": False, "unit": "tokens", "together": True}
    drawn += panels(methods, "completion_length", "Mean length of a completion", made, **style)
    caption = "What training generates and reads: a challenge's prompt holds the draft's summary, which costs prefill."
    tables = [Table(head, told, f"Tokens a {unit}, mean over training")] if told else []
    return Section("tokens", "Token cost", caption, "These runs logged no ledger/… metrics.", drawn, tables)


def reading(readings: Mapping[str, Reading]) -> Section:
    cards = [card for reading in readings.values() for card in reading.cards]
    unread = [name for name, reading in readings.items() if not reading.read]
    total = sum(r.read for r in readings.values())
    caption = (
        f"{len(cards)} of {total:,} pairs, drawn with a fixed seed from all of a kind; see whether a conversion comes "
        "from the challenger's own work, and what led it astray in a damage."
    )
    nothing = f"In {', '.join(unread)} nobody reads a draft, so there are no pairs to read side by side."
    missing = nothing if unread else _NO_PAIRS
    return Section("pairs", "Pairs to read", caption, missing, notes=[nothing] if unread else [], cards=cards)
