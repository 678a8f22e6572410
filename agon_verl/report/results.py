"""What evaluations say: the main table, who beats the reference, and accuracy against length."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from agon_verl.evaluate.markdown import number, percent
from agon_verl.evaluate.results import Results
from agon_verl.report import figures, table
from agon_verl.report.picture import BLUE, GREEN, GREY, ORANGE, Picture, Style, method_styles
from agon_verl.report.read import UNTRAINED, Method, Run
from agon_verl.report.section import Section, SectionTable, signed
from agon_verl.report.table import Answers

Found = dict[str, dict[str, dict[str, Answers]]]  # by source, method and way

_HEAD = ["method", "answers by", "pass@1 %", "95 % interval", "runs", "sd of seeds", "range of seeds"]
_HEAD += ["final tokens", "generated", "prefilled"]
_TESTED = ["method", "answers by", "difference, points", "95 % interval", "p, not corrected", "problems"]
_MISSING = "None of these runs was evaluated: python -m agon_verl.evaluate RUN --data … --out RUN/eval."
_TOKENS = "Tokens are means a problem: of the final stage, and generated and prefilled by all stages."
_ONE_SEED = (
    "One seed a method: intervals are over problems and sampled answers, and say nothing about what another training "
    f"run would give. {_TOKENS}"
)
_SEEDS = (
    "pass@1 is the mean over seeds. Intervals are over problems and sampled answers, for these very runs; what another "
    f"run would give is in the spread over seeds (sd: standard deviation of a sample). {_TOKENS}"
)
_TESTS = "Tests take these runs as they are: a small p does not say that another seed would do the same."
_POST_HOC = (
    "“Cascade” takes the direction that was chosen beforehand. “Post hoc” takes the one that was better on these very "
    "problems, as the paper does, which flatters it."
)
_LOOKS = {
    "A_to_B": Style(BLUE, "-", "o"),
    "B_to_A": Style(ORANGE, "-", "s"),
    "A_to_A": Style(BLUE, "-", "^"),
    "B_to_B": Style(ORANGE, "-", "v"),
    "A": Style(BLUE, "--", "o"),
    "B": Style(ORANGE, "--", "s"),
    "base": Style(GREY, ":", "X"),
    "moa": Style(GREY, "-", "P"),
}


def facts(methods: Sequence[Method]) -> list[str]:
    """What is reported on: runs, seeds and steps, and how they were evaluated."""
    trained = [m for m in methods if m.name != UNTRAINED] or methods
    runs = [run for m in trained for run in m.runs]
    seeds = sorted({run.seed for run in runs if run.seed is not None})
    steps = sorted({run.metrics.last_step for run in runs if run.metrics.by_step})
    said = f"{len(runs)} run{'s' if len(runs) > 1 else ''}"
    said += f" of {len(trained)} methods" if len(trained) > 1 else ""
    said += f", seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}" if seeds else ""
    said += (
        f"; {' to '.join(map(str, dict.fromkeys((steps[0], steps[-1]))))} training step{'s' if steps[-1] != 1 else ''}"
        if steps
        else ""
    )
    failed = [run.name for run in runs if run.state in ("failed", "missing")]
    lines = [f"{said}.", f"Failed or missing: {', '.join(failed)}."]
    settings = dict.fromkeys(_settings(results) for m in methods for results in m.evaluations)
    return [*lines[: 2 if failed else 1], *(f"Evaluated with {told}." for told in settings if told)]


def _settings(evaluation: Results) -> str:
    sampling, samples = evaluation.settings["sampling"], evaluation.samples
    temperature = sampling["temperature"]
    decoding = f"temperature {temperature:g}, top-p {sampling['top_p']:g}" if temperature else "greedy decoding"
    of = f"{samples} sample{'s' if samples > 1 else ''} a problem"
    return f"{of}, {decoding}, at most {sampling['max_tokens']:,} tokens a stage"


def evaluated(methods: Sequence[Method]) -> Found:
    found = {s: {m.name: f for m in methods if (f := table.answers(m, s))} for s in table.sources(methods)}
    return {source: by_method for source, by_method in found.items() if by_method}


def shown(by_method: Mapping[str, Mapping[str, Answers]]) -> list[Answers]:
    """Of one run everything, of several the main ways."""
    if len(by_method) == 1:
        return [answers for found in by_method.values() for answers in found.values()]
    return [answers for name, found in by_method.items() for answers in table.main_ways(name, found)]


def results(methods: Sequence[Method], found: Found) -> Section:
    tables, notes = [], []
    expected = {m.name: len(m.runs) for m in methods}
    for source, by_method in found.items():
        rows = shown(by_method)
        n = max(len(answers.rows) for answers in rows)
        gone = [m.name for m in methods if m.name not in by_method and any(run.seed is not None for run in m.runs)]
        told = [_row(a, expected[a.method]) for a in rows]
        told += [[m, "–", "–", "–", f"✗ 0 of {expected[m]}", *["–"] * (len(_HEAD) - 5)] for m in gone]
        tables.append(_without_blanks(SectionTable(_HEAD, told, f"{source}: {n} problems")))
        if len(by_method) > 1:
            every = [_row(a, expected[a.method]) for ways in by_method.values() for a in ways.values()]
            tables += [
                *_paired(by_method, source),
                SectionTable(_HEAD, every, f"{source}: every way of answering", True),
            ]
    runs = [run for m in methods for run in m.runs]
    if any(run.seed is not None for run in runs):
        tables.append(_cells(methods))
    if not found:
        notes.append(_MISSING)
    else:
        most = max(a.spread.runs for by_method in found.values() for ways in by_method.values() for a in ways.values())
        notes += [_SEEDS if most > 1 else _ONE_SEED]
        post_hoc = any(table.POST_HOC in ways for by_method in found.values() for ways in by_method.values())
        notes += [_POST_HOC] if post_hoc else []
        notes += [_TESTS] if any(t.head == _TESTED for t in tables) else []
    if len(methods) == 1:
        whys = [(run.name, run.results.direction) for run in runs if run.results]
        notes += [f"{name}: the direction was chosen {d.why}." for name, d in whys if d.chosen and d.why]
    notes += [f"{run.name} {run.state}: {run.error}" for run in runs if run.error]
    notes += [f"{run.name} did not keep the budget: {run.parity}" for run in runs if run.parity]
    caption = "Compare pass@1 by its interval, and read it beside the tokens that it took."
    return Section("results", "Results", caption, _MISSING, tables=tables, notes=notes)


def _without_blanks(given: SectionTable) -> SectionTable:
    """With one seed there is no spread to show."""
    kept = [i for i in range(len(given.head)) if any(row[i] != "–" for row in given.rows)]
    return replace(given, head=[given.head[i] for i in kept], rows=[[row[i] for i in kept] for row in given.rows])


def _row(a: Answers, expected: int) -> list[str]:
    runs = a.spread.runs
    return [
        named(a.method),
        a.label,
        percent(a.spread.mean),
        f"{percent(a.interval.low)} – {percent(a.interval.high)}",
        str(runs) if runs == expected else f"✗ {runs} of {expected}",
        percent(a.spread.deviation),
        f"{percent(a.spread.low)} – {percent(a.spread.high)}" if runs > 1 else "–",
        number(a.length),
        number(a.generated),
        number(a.prefilled),
    ]


def named(method: str) -> str:
    return "untrained" if method == UNTRAINED else method


def _paired(by_method: Mapping[str, Mapping[str, Answers]], source: str) -> list[SectionTable]:
    reference = table.reference(by_method)
    rows = []
    for a in [a for a in shown(by_method) if a.way != table.POST_HOC and a is not reference]:
        if reference and (told := table.against(a, reference)):
            span = told.interval
            around = f"{signed(span.low)} to {signed(span.high)}" if span else "–"
            difference, p = signed(told.difference), f"{told.p:.2g}"
            rows.append([named(a.method), a.label, difference, around, p, str(told.problems)])
    if not reference or not rows:
        return []
    return [
        SectionTable(
            _TESTED, rows, f"{source}: against {named(reference.method)}, {reference.label}, on the same problems"
        )
    ]


def _cells(methods: Sequence[Method]) -> SectionTable:
    trained = [m for m in methods if any(run.seed is not None for run in m.runs)]
    seeds = sorted({run.seed for m in trained for run in m.runs if run.seed is not None})

    def cell(run: Run | None) -> str:
        if run is None:
            return "–"
        state = {"evaluated": "✓ evaluated", "trained": "trained"}.get(run.state, f"✗ {run.state}")
        return f"{state}, ✗ parity" if run.parity else state

    rows = [[m.name, *(cell(next((r for r in m.runs if r.seed == s), None)) for s in seeds)] for m in trained]
    return SectionTable(["method", *(f"seed {seed}" for seed in seeds)], rows, "Runs")


def lengths(methods: Sequence[Method], found: Found) -> Section:
    pictures: list[Picture | None] = []
    colours = method_styles([m.name for m in methods])
    for i, (source, by_method) in enumerate(found.items()):
        several = len(by_method) > 1
        hidden = (table.POST_HOC,) if several else (table.CASCADE, table.POST_HOC, table.EITHER)
        for of, stages in (("length", "final stage"), ("generated", "all stages")):
            points = []
            for a in [a for a in shown(by_method) if a.way not in hidden]:
                look = colours[a.method] if several else _LOOKS.get(a.way, Style(GREEN, marker="D"))
                filled = "_to_" in a.way or a.way in (table.CASCADE, "moa")
                label = named(a.method) if several else a.label
                if (x := getattr(a, of)) is not None:
                    interval = a.interval
                    points.append(
                        figures.Point(label, look, filled, x, a.spread.mean, interval.low, interval.high, a.seeds)
                    )
            unit = f"mean tokens generated a problem, {stages}"
            pictures.append(figures.against_tokens(f"accuracy_{of}_{i}", f"{source}: {stages}", points, unit))
    caption = (
        "Up and to the left is better; a method that is right more often only because it writes more lies to the right "
        "as well (hollow: one adapter alone; filled: two stages; bars: 95 % over problems; ticks: single seeds)."
    )
    return Section("length", "Accuracy against length", caption, _MISSING, [picture for picture in pictures if picture])
