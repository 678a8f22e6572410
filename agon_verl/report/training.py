"""The sections about training: logged metrics and pair records.

With one method, a panel has one line per metric. With several, it has one line per method, and related metrics (such as
both directions of a cascade) are averaged, so that none is selected by its result.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agon_verl.evaluate.markdown import number, percent, signed
from agon_verl.report import figures
from agon_verl.report.figures import STAGES, Line
from agon_verl.report.page import Section, SectionTable
from agon_verl.report.pairs import PairView
from agon_verl.report.picture import BLUE, GREEN, MODES, ORANGE, RED, Picture, Style, method_styles
from agon_verl.report.runs import Method

_NO_PAIRS = "These runs have no pair records (trainer.rollout_data_dir=RUN/pairs)."


@dataclass(frozen=True)
class PlottedMetric:
    """A metric, and how it is drawn for a single method."""

    label: str
    name: str
    style: Style


def _both_stages(metric: str) -> list[PlottedMetric]:
    return [
        PlottedMetric("drafts", f"draft/{metric}", Style(BLUE)),
        PlottedMetric("challenges", f"challenge/{metric}", Style(ORANGE, "--")),
    ]


def panels(
    methods: Sequence[Method],
    key: str,
    title: str,
    metrics: Sequence[PlottedMetric],
    together: bool = False,
    **style: Any,
) -> list[Picture]:
    """`together`: with several methods, one panel with the mean of all metrics instead of one panel per metric."""
    lines = {}
    if len(methods) == 1:
        runs = [run.metrics for run in methods[0].runs]
        lines[title] = [Line(m.label, m.style, [run.mean_curve([m.name]) for run in runs]) for m in metrics]
    else:
        styles = method_styles([m.name for m in methods])
        names = {title: [m.name for m in metrics]} if together else {m.label: [m.name] for m in metrics}
        for label, means in names.items():
            curves = {m.name: [run.metrics.mean_curve(means) for run in m.runs] for m in methods}
            lines[label] = [Line(method, styles[method], each) for method, each in curves.items()]
    drawn = [figures.over_training(f"{key}_{i}", label, each, **style) for i, (label, each) in enumerate(lines.items())]
    return [picture for picture in drawn if picture]


def accuracy(methods: Sequence[Method]) -> Section:
    sources: dict[str, dict[str, str]] = {}
    for run in [run for m in methods for run in m.runs]:
        for source, ways in run.metrics.validations().items():
            sources.setdefault(source, {}).update(ways)
    drawn: list[Picture] = []
    rows = []
    for i, (source, ways) in enumerate(sources.items()):
        for part, title in (("_to_", "cascade"), ("alone", "one adapter alone")):
            labels = {way: way.replace("_to_", " → ").replace("_", " ") for way in ways if part in way}
            styles = {way: MODES.get(way.removesuffix("_alone"), Style(GREEN)) for way in labels}
            metrics = [PlottedMetric(label, ways[way], styles[way]) for way, label in labels.items()]
            rows += [row for m in methods for metric in metrics if (row := _change(m, source, metric))]
            key, title = f"held_out_{part.strip('_')}_{i}", f"{source}: {title}"
            drawn += panels(methods, key, title, metrics, together=True, unit="held-out accuracy", kind="points")
    drawn += panels(methods, "training", "Training accuracy", _both_stages("acc"), unit="share right", together=True)
    caption = "Check whether the cascade ends above one adapter alone, and whether either has stopped rising"
    caption += "; a line is the mean over directions or adapters, and over seeds." if len(methods) > 1 else "."
    missing = "These runs logged no accuracy (trainer.test_freq, trainer.val_before_train)."
    head = ["method", "answers by", "data", "runs", "first %", "last %", "change, points", "steps"]
    tables = [SectionTable(head, rows, "First and last validation", folded=len(methods) > 1)] if rows else []
    notes = ["There are no intervals here, because metrics.jsonl does not have the number of validation problems."]
    return Section("accuracy", "Accuracy over training", caption, missing, drawn, tables, notes if rows else [])


def _change(method: Method, source: str, metric: PlottedMetric) -> list[str] | None:
    """The mean over the runs that validated more than once."""
    curves = [run.metrics.curve(metric.name) for run in method.runs]
    ends = [(values[0], values[-1]) for _, values in curves if len(values) > 1]
    if not ends:
        return None
    first, last = (sum(side) / len(ends) for side in zip(*ends, strict=True))
    steps = sorted({f"{steps[0]} to {steps[-1]}" for steps, _ in curves if len(steps) > 1})
    shares = [percent(first), percent(last), signed(last - first)]
    return [method.name, metric.label, source, str(len(ends)), *shares, ", ".join(steps)]


def exchange(methods: Sequence[Method]) -> Section:
    metrics = [
        PlottedMetric("Conversion: right after a wrong draft", "pair/conversion", Style(GREEN)),
        PlottedMetric("Damage: wrong after a right draft", "pair/damage", Style(RED, "--")),
    ]
    caption = "Conversion should rise and damage should fall; rising damage means that reading a draft hurts."
    drawn = panels(methods, "exchange", "Conversion and damage", metrics, unit="share of such drafts")
    missing = "These runs logged no pair/conversion: no challenger read a draft."
    return Section("exchange", "Conversion and damage", caption, missing, drawn)


_HEALTH: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("error_correlation", "Error correlation", {"share": False, "unit": "0: independent errors"}),
    ("copy_of_wrong", "Wrong drafts copied", {"unit": "share of wrong drafts"}),
    ("wrong_answer_kept", "Wrong answers kept", {"unit": "share of wrong drafts"}),
    ("distance", "Distance between the adapters' weights", {"share": False, "unit": "relative to both", "kind": "raw"}),
    ("strength_gap", "Strength gap", {"share": False, "unit": "accuracy of A − of B", "kind": "raw"}),
)


def health(methods: Sequence[Method]) -> Section:
    drawn: list[Picture] = []
    if len(methods) == 1:
        both = [
            PlottedMetric("measured", "health/error_overlap", Style(RED)),
            PlottedMetric("if independent", "health/error_overlap_if_independent", Style(BLUE, "--")),
        ]
        drawn += panels(methods, "error_overlap", "Both wrong", both, unit="share of pairs")
    for name, title, options in _HEALTH:
        metric = f"health/{name}"
        drawn += panels(methods, name, title, [PlottedMetric(title, metric, Style(GREEN))], watched=metric, **options)
    entropies = [
        PlottedMetric("Entropy of A", "health/A/entropy_trend", Style(BLUE)),
        PlottedMetric("Entropy of B", "health/B/entropy_trend", Style(ORANGE, "--")),
    ]
    options = {"share": False, "unit": "relative to the start", "kind": "raw", "watched": entropies[0].name}
    drawn += panels(methods, "entropy", "Entropy", entropies, **options)
    alarms = {run.name: run.metrics.curve("health/alarms") for m in methods for run in m.runs}
    raised = {name: [str(step) for step, n in zip(*curve, strict=True) if n > 0] for name, curve in alarms.items()}
    notes = [f"{name}: alarms at step {', '.join(steps)}." for name, steps in raised.items() if steps]
    if not notes and any(steps for steps, _ in alarms.values()):
        notes = ["No alarms."]
    notes.append(
        "Limits are the defaults. An alarm needs several updates in a row beyond the limit, and most metrics are "
        "averaged over steps first, so a line may cross a limit without an alarm."
    )
    caption = (
        "When the two adapters become alike, the error correlation rises towards 1, wrong drafts are copied, and the "
        "distance falls towards 0."
    )
    return Section("health", "Pair health", caption, "These runs logged no health/… metrics.", drawn, notes=notes)


def ladder(views: Mapping[str, PairView]) -> Section:
    drawn = [figures.ladder(f"ladder_{i}", method, view.rewards) for i, (method, view) in enumerate(views.items())]
    notes = [f"{m}: {view.unreadable:,} lines could not be read." for m, view in views.items() if view.unreadable]
    weights = sorted({weight for view in views.values() for weight in view.format_weights})
    notes += [f"λ = {', '.join(f'{weight:g}' for weight in weights)}."] if weights else []
    caption = (
        "Without the format term λφ, a challenge earns 0 (wrong), 2 (right) or, in methods that reward conversions, 3 "
        "(right after a wrong draft); margin also gives −1 (wrong after a right draft). The share of 0 should shrink, "
        "and 3 becomes rare once few drafts are wrong. All seeds together."
    )
    return Section(
        "ladder", "Reward ladder", caption, _NO_PAIRS, [picture for picture in drawn if picture], notes=notes
    )


def tokens(methods: Sequence[Method]) -> Section:
    read, problems = "ledger/opponent_prefilled", "ledger/problems"
    runs = {m.name: [r.metrics for r in m.runs if r.metrics.curve(read)[0]] for m in methods}
    per_problem = all(run.curve(problems)[0] for logged in runs.values() for run in logged)
    unit = "problem" if per_problem else "step"
    means = {}
    for name, logged in runs.items():
        count = sum(sum(run.curve(problems)[1]) if per_problem else len(run.curve(read)[0]) for run in logged)
        if count:
            means[name] = {
                metric: sum(sum(run.curve(metric)[1]) for run in logged) / count for metric in [*STAGES, read]
            }
    rows = [
        [name, *map(number, row.values()), number(sum(row[stage] for stage in STAGES))] for name, row in means.items()
    ]
    head = ["method", *(label for label, _ in STAGES.values()), "of which the draft's text", "total"]
    title = f"Tokens per {unit}, mean over training"
    bars = figures.token_bars("tokens", f"Training tokens per {unit}", means, f"tokens per {unit}, mean over training")
    options: dict[str, Any] = {"share": False, "unit": "tokens", "together": True}
    lengths = panels(methods, "length", "Mean length of a completion", _both_stages("length"), **options)
    caption = "Tokens that training generates and prefills. A challenge's prompt contains the draft's summary."
    tables = [SectionTable(head, rows, title)] if rows else []
    missing = "These runs logged no ledger/… metrics."
    return Section("tokens", "Token cost", caption, missing, [*([bars] if bars else []), *lengths], tables)


def pairs(views: Mapping[str, PairView]) -> Section:
    cards = [card for view in views.values() for card in view.cards]
    unread = [method for method, view in views.items() if not view.read]
    total = sum(view.read for view in views.values())
    caption = (
        f"{len(cards)} of {total:,} pairs, drawn with a fixed seed from all pairs of each kind. Check whether a "
        "conversion comes from the challenger's own work, and what misled the challenger where it did damage."
    )
    nothing = f"No challenger reads a draft in {', '.join(unread)}, so there are no pairs to show."
    missing = nothing if unread else _NO_PAIRS
    return Section("pairs", "Pairs to read", caption, missing, notes=[nothing] if unread else [], cards=cards)
