"""The sections about evaluations: the main table, differences from the reference, and accuracy against length.

The matrix fixes which ways of answering represent a method in the main table.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from agon_verl.evaluate.markdown import decimal, number, percent, sampling_of, signed
from agon_verl.evaluate.results import Results
from agon_verl.evaluate.statistics import exact_interval, paired
from agon_verl.evaluate.summary import CASCADE, EITHER, POST_HOC, Summary, sources, summaries
from agon_verl.matrix import rows as matrix
from agon_verl.report import figures
from agon_verl.report.page import Section, SectionTable
from agon_verl.report.picture import GREEN, MODES, Style, method_styles
from agon_verl.report.runs import UNTRAINED, Method, Run

_HEAD = ["method", "answers by", "pass@1 %", "95 % interval", "runs", "sd of seeds", "range of seeds"]
_HEAD += ["final tokens", "generated", "prefilled", "errors A, B"]
_DIFFERENCES_HEAD = ["method", "answers by", "difference, points", "95 % interval", "p, not corrected", "problems"]
_MISSING = "None of these runs was evaluated: python -m agon_verl.evaluate RUN --data … --out RUN/eval."
_TOKENS = (
    "Tokens are means per problem: of the final stage, and generated and prefilled by all stages. “Errors A, B” is the "
    "correlation of the errors of both adapters, each alone."
)
_ONE_SEED = (
    "One seed per method: intervals are over problems and sampled answers. They do not cover the randomness of "
    f"training. {_TOKENS}"
)
_SEEDS = (
    "pass@1 is the mean over seeds. Intervals are over problems and sampled answers, for these runs. The spread over "
    f"seeds (sd: sample standard deviation) shows how much another training run may differ. {_TOKENS}"
)
_TESTS = "The tests compare these runs: a small p does not mean that other seeds would differ in the same way."
_POST_HOC_NOTE = (
    "“Cascade” uses the direction that was chosen beforehand. “Post hoc” uses the one that was better on the same "
    "problems, as in the paper; this overestimates its accuracy."
)
_LABELS = {"A": "A alone", "B": "B alone", "base": "zero-shot", "moa": "Mixture-of-Agents"}
_UNFINISHED = ("waiting", "unfinished", "trained")


@dataclass(frozen=True)
class Entry:
    """One way in which a method answers, over its seeds."""

    method: str
    kind: str
    summary: Summary

    @property
    def way(self) -> str:
        return self.summary.way

    @property
    def name(self) -> str:
        return "untrained" if self.method == UNTRAINED else self.method

    @property
    def style(self) -> Style:
        return MODES.get(self.way, Style(GREEN, marker="D"))

    @property
    def label(self) -> str:
        if self.way not in (CASCADE, POST_HOC):
            return _mode_label(self.way)
        runs = len(self.summary.modes)
        played = Counter(mode for modes in self.summary.modes for mode in modes)
        directions = [_mode_label(mode) + (f" ×{n}" if runs > 1 else "") for mode, n in sorted(played.items())]
        unbroken = ", ".join(each.replace(" ", "\u00a0") for each in directions)
        return f"{self.way}: {unbroken}"


def _mode_label(mode: str) -> str:
    return _LABELS.get(mode, mode.replace("_to_", " → "))


Entries = Mapping[str, Sequence[Entry]]  # by data source


def evaluated(methods: Sequence[Method]) -> Entries:
    """All ways of answering of all methods: first those that are chosen per run, then the modes."""
    entries: dict[str, list[Entry]] = {}
    for source in sources([results for m in methods for results in m.evaluations]):
        for m in methods:
            every = summaries(m.evaluations, source).values()
            in_order = sorted(every, key=lambda summary: summary.way not in (CASCADE, POST_HOC, EITHER))
            entries.setdefault(source, []).extend(Entry(m.name, m.kind, summary) for summary in in_order)
    return {source: each for source, each in entries.items() if each}


def main_entries(entries: Sequence[Entry]) -> list[Entry]:
    """Of one method everything; of several, those that represent each, or everything if it was not evaluated so."""
    by_method = {method: list(each) for method, each in groupby(entries, key=lambda entry: entry.method)}
    if len(by_method) == 1:
        return list(entries)
    shown: list[Entry] = []
    for each in by_method.values():
        ways = [way for _, way in matrix.rows(each[0].kind)]
        shown += [entry for way in ways for entry in each if entry.way == way] or each
    return shown


def facts(methods: Sequence[Method]) -> list[str]:
    """Runs, seeds and steps, and the settings of the evaluations."""
    trained = [m for m in methods if m.name != UNTRAINED] or methods
    runs = [run for m in trained for run in m.runs]
    seeds = sorted({run.seed for run in runs if run.seed is not None})
    steps = sorted({run.metrics.last_step for run in runs if run.metrics.by_step})
    begun = sum(run.state != "waiting" for run in runs)
    text = f"{begun} of " if begun < len(runs) else ""
    text += f"{len(runs)} run{'s' if len(runs) > 1 else ''}"
    text += f" of {len(trained)} methods" if len(trained) > 1 else ""
    text += f", seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}" if seeds else ""
    if steps:
        span = " to ".join(map(str, dict.fromkeys((steps[0], steps[-1]))))
        text += f"; {span} training step{'s' if steps[-1] != 1 else ''}"
    failed = [run.name for run in runs if run.state in ("failed", "missing")]
    settings: dict[tuple[int, str], list[str]] = {}
    for run in [run for m in methods for run in m.runs]:
        if run.results:
            settings.setdefault((run.results.samples, sampling_of(run.results)), []).append(run.name)
    lines = [f"{text}.", *([f"Failed or missing: {', '.join(failed)}."] if failed else [])]
    for (n, text), names in settings.items():
        which = f": {', '.join(names)}" if len(settings) > 1 else ""
        lines.append(f"Evaluated with {n} sample{'s' if n > 1 else ''} per problem, {text}{which}.")
    return lines


def results(methods: Sequence[Method], evaluations: Entries) -> Section:
    tables: list[SectionTable] = []
    notes = [] if evaluations else [_MISSING]
    by_name = {m.name: m for m in methods}
    runs = [run for m in methods for run in m.runs]
    for source, entries in evaluations.items():
        shown = main_entries(entries)
        rows = [_row(entry, by_name[entry.method]) for entry in shown]
        absent = [m for m in methods if m.name not in {entry.method for entry in entries}]
        for m in [m for m in absent if any(run.seed is not None for run in m.runs)]:
            rows.append([m.name, "–", "–", "–", _evaluated(0, m), *["–"] * (len(_HEAD) - 5)])
        problems = max(len(entry.summary.outcomes) for entry in shown)
        kept = [i for i in range(len(_HEAD)) if any(row[i] != "–" for row in rows)]  # with one seed there is no spread
        head, *body = ([row[i] for i in kept] for row in [_HEAD, *rows])
        tables.append(SectionTable(head, body, f"{source}: {problems} problems"))
        if len({entry.method for entry in entries}) > 1:
            all_rows = [_row(entry, by_name[entry.method]) for entry in entries]
            tables += _differences(methods, shown, entries, source)
            tables += _every_seed(methods, shown, source)
            tables.append(SectionTable(_HEAD, all_rows, f"{source}: every way of answering", folded=True))
    if any(run.seed is not None for run in runs):
        tables.append(_runs_table(methods))
        origins = [[run.name, *run.origin] for run in runs if any(run.origin)]
        head = ["run", "command", "commit", "log"]
        tables += [SectionTable(head, origins, "Commands", folded=True)] if origins else []
    every = [entry.summary for entries in evaluations.values() for entry in entries]
    if every:
        notes.append(_SEEDS if max(len(summary.shares) for summary in every) > 1 else _ONE_SEED)
        notes += [_POST_HOC_NOTE] if any(summary.way == POST_HOC for summary in every) else []
        notes += [_TESTS] if any(table.head == _DIFFERENCES_HEAD for table in tables) else []
    if len(methods) == 1:
        directions = [(run.name, run.results.direction) for run in runs if run.results]
        notes += [f"{name}: the direction was chosen {d.why}." for name, d in directions if d.chosen and d.why]
    notes += [f"{run.name} {run.state}: {run.error}" for run in runs if run.error]
    notes += [f"{run.name} failed the parity check and is not compared: {run.parity}" for run in runs if run.parity]
    caption = "Compare pass@1 by its interval, and together with the tokens that it costs."
    return Section("results", "Results", caption, _MISSING, tables=tables, notes=notes)


def _evaluated(runs: int, method: Method) -> str:
    """How many of a method's runs, with a mark where one is lost and not merely still to be done."""
    expected, to_do = len(method.runs), sum(run.state in _UNFINISHED for run in method.runs)
    if runs == expected:
        return str(runs)
    return f"{'' if runs + to_do == expected else '✗ '}{runs} of {expected}"


def _row(entry: Entry, method: Method) -> list[str]:
    summary, spread, runs = entry.summary, entry.summary.spread, len(entry.summary.shares)
    return [
        entry.name,
        entry.label,
        percent(spread.mean),
        f"{percent(summary.interval.low)} – {percent(summary.interval.high)}",
        _evaluated(runs, method),
        percent(spread.deviation),
        f"{percent(spread.low)} – {percent(spread.high)}" if runs > 1 else "–",
        number(summary.length),
        number(summary.generated),
        number(summary.prefilled),
        decimal(summary.correlation),
    ]


def _differences(
    methods: Sequence[Method], shown: Sequence[Entry], entries: Sequence[Entry], source: str
) -> list[SectionTable]:
    """From each reference, on the problems and seeds that both have, all seeds together."""
    by_method = {m.name: m for m in methods}
    by_name = {(entry.kind, entry.way): entry for entry in reversed(entries)}  # of several arms of a method, the first
    references = [by_name[name] for name in matrix.REFERENCES if name in by_name]
    if not references:
        references = [by_name[name] for name in [(UNTRAINED, "base")] if name in by_name]
    tables = []
    for reference in references:
        rows = []
        for entry in [entry for entry in shown if entry.way != POST_HOC and entry is not reference]:
            runs = _comparable(by_method[entry.method], by_method[reference.method])
            own, other = (summaries(each, source) for each in runs)
            if not (entry.way in own and reference.way in other):
                continue
            if test := paired(own[entry.way].outcomes, other[reference.way].outcomes):
                interval = f"{signed(test.interval.low)} to {signed(test.interval.high)}" if test.interval else "–"
                difference, p = signed(test.difference), f"{test.p:.2g}"
                rows.append([entry.name, entry.label, difference, interval, p, str(test.problems)])
        title = f"{source}: against {reference.name}, {reference.label}, on the same problems"
        tables += [SectionTable(_DIFFERENCES_HEAD, rows, title)] if rows else []
    return tables


def _comparable(first: Method, second: Method) -> tuple[list[Results], list[Results]]:
    """The runs of both that passed the parity check, of the seeds that both have; a run without a seed, with all."""
    runs = [[(run.seed, run.results) for run in m.runs if run.results and not run.parity] for m in (first, second)]
    seeds = [{seed for seed, _ in each} for each in runs]
    shared = seeds[0] | seeds[1] if None in seeds[0] | seeds[1] else seeds[0] & seeds[1]
    own, other = ([results for seed, results in each if seed in shared] for each in runs)
    return own, other


def _every_seed(methods: Sequence[Method], shown: Sequence[Entry], source: str) -> list[SectionTable]:
    """pass@1 of each run, and that of the first samples with its exact interval over problems."""
    runs = {(m.name, run.seed): run for m in methods for run in m.runs if run.seed is not None and run.results}
    seeds = sorted({seed for _, seed in runs if seed is not None})

    def cell(entry: Entry, seed: int) -> str:
        run = runs.get((entry.method, seed))
        one = summaries([run.results], source).get(entry.way) if run and run.results else None
        if one is None:
            return "–"
        first = [samples[0] for samples in one.outcomes.values()]
        exact = exact_interval(sum(first), len(first))
        return f"{percent(one.shares[0])}; {percent(exact.low)} – {percent(exact.high)}"

    rows = [[e.name, e.label, *(cell(e, seed) for seed in seeds)] for e in shown if e.method != UNTRAINED]
    title = f"{source}: every seed; exact 95 % interval of its first samples"
    head = ["method", "answers by", *(f"seed {seed}" for seed in seeds)]
    return [SectionTable(head, rows, title, folded=True)] if seeds else []


def _runs_table(methods: Sequence[Method]) -> SectionTable:
    trained = [m for m in methods if any(run.seed is not None for run in m.runs)]
    seeds = sorted({run.seed for m in trained for run in m.runs if run.seed is not None})

    def cell(run: Run | None) -> str:
        if run is None:
            return "–"
        state = "✓ evaluated" if run.state == "evaluated" else run.state
        state = state if run.state in ("evaluated", *_UNFINISHED) else f"✗ {run.state}"
        return f"{state}, ✗ parity" if run.parity else state

    rows = [[m.name, *(cell(next((r for r in m.runs if r.seed == s), None)) for s in seeds)] for m in trained]
    return SectionTable(["method", *(f"seed {seed}" for seed in seeds)], rows, "Runs")


def lengths(methods: Sequence[Method], evaluations: Entries) -> Section:
    pictures = []
    styles = method_styles([m.name for m in methods])
    for i, (source, entries) in enumerate(evaluations.items()):
        several = len({entry.method for entry in entries}) > 1
        hidden = (POST_HOC,) if several else (CASCADE, POST_HOC, EITHER)
        shown = [entry for entry in main_entries(entries) if entry.way not in hidden]
        for field, stages in (("length", "final stage"), ("generated", "all stages")):
            points = []
            for entry in shown:
                label, style = (entry.name, styles[entry.method]) if several else (entry.label, entry.style)
                two_stages = "_to_" in entry.way or entry.way in (CASCADE, "moa")
                if (tokens := getattr(entry.summary, field)) is not None:
                    points.append(figures.Point(label, style, two_stages, tokens, entry.summary))
            unit = f"mean tokens generated per problem, {stages}"
            pictures.append(figures.against_tokens(f"accuracy_{field}_{i}", f"{source}: {stages}", points, unit))
    caption = (
        "Up and to the left is better. A method whose accuracy comes from longer answers is further to the right "
        "(hollow: one adapter alone; filled: two stages; bars: 95 % over problems; ticks: single seeds)."
    )
    return Section("length", "Accuracy against length", caption, _MISSING, [p for p in pictures if p])
