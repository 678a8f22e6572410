"""Results to read, in Markdown."""

from collections.abc import Iterator, Sequence

from agon_verl.evaluate.results import Direction, Interval, Results, SetResults


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f}"


def signed(difference: float) -> str:
    return f"{100 * difference:+.1f}".replace("-", "−")


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def decimal(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}".replace("-", "−")


def span(interval: Interval | None, sign: int = 1) -> str:
    """With `sign=-1`, the interval of the negative difference."""
    if interval is None:
        return "–"
    low, high = sorted((sign * interval.low, sign * interval.high))
    return f"[{percent(low)}, {percent(high)}]"


def report(results: Results) -> str:
    parts = [f"# {results.target}", _about(results)]
    for source, measured in results.sets.items():
        parts += [f"## {source}: {measured.problems} problems", _modes(measured, results.samples)]
        parts += [_direction(measured, results.direction)] if measured.post_hoc else []
        parts += [_tests(measured, results.direction.chosen)] if measured.tests else []
    return "\n\n".join(parts) + "\n"


def sampling_of(results: Results) -> str:
    sampling = results.settings["sampling"]
    random = f"temperature {sampling['temperature']:g}, top-p {sampling['top_p']:g}"
    decoding = random if sampling["temperature"] else "greedy"
    return f"{decoding}, at most {sampling['max_tokens']:,} tokens per stage"


def _about(results: Results) -> str:
    ledger, failed = results.ledger, results.left_out
    return (
        f"Samples per problem: {results.samples}, {sampling_of(results)}, seed {results.settings['seed']}. In total "
        f"{ledger.generated:,} tokens were generated and {ledger.prefilled:,} prefilled."
        + (f" **Left out because the judge failed: {failed}.**" if failed else "")
    )


def _modes(measured: SetResults, samples: int) -> str:
    several = samples > 1
    head = ["mode", "pass@1 %", "95 % interval"]
    head += [f"pass@{samples} %", "majority %"] if several else []
    head += ["final length", "generated", "prefilled", "cut off %", "format %", "converted", "damaged"]
    rows = []
    for name, mode in measured.modes.items():
        row = [name, percent(mode.pass_at_1), span(mode.interval)]
        row += [percent(mode.pass_at_k.get(samples)), percent(mode.majority)] if several else []
        cost, exchange = mode.ledger.per_pass, mode.exchange
        row += [number(mode.length), number(cost.generated), number(cost.prefilled)]
        row += [percent(mode.truncated), percent(mode.format)]
        row += [f"{exchange.converted} of {exchange.wrong_drafts}" if exchange else "–"]
        row += [f"{exchange.damaged} of {exchange.right_drafts}" if exchange else "–"]
        rows.append(row)
    methods = dict.fromkeys(mode.interval.method for mode in measured.modes.values() if mode.interval)
    notes = "Lengths are mean tokens; generated and prefilled are those of all stages of one pass over one problem."
    return "\n\n".join([f"{table(head, rows)}\n\n{notes} Intervals: {'; '.join(methods)}.", *_missing_parts(measured)])


def _missing_parts(measured: SetResults) -> Iterator[str]:
    """A note for each mode of which most drafts lack a summary or private reasoning."""
    for name, mode in measured.modes.items():
        if mode.exchange is None:
            continue
        lacks = {
            "summary, so nothing of them was read": mode.exchange.no_summary,
            "private reasoning, so everything was read": mode.exchange.no_reasoning,
        }
        for part, drafts in lacks.items():
            if drafts > mode.answers / 2:
                fix = "`agon data … --reasoning-tags` asks for both"
                yield f"**{name}: {drafts} of {mode.answers} drafts have no {part}; {fix}.**"


def _direction(measured: SetResults, direction: Direction) -> str:
    def cell(name: str) -> str:
        mode = measured.modes[name]
        return f"{name}, {percent(mode.pass_at_1)} % {span(mode.interval)}"

    chosen = direction.chosen if direction.chosen in measured.modes else None
    before = f"{cell(chosen)} ({direction.why})" if chosen else "none was chosen beforehand"
    after = f" Better one here, seen afterwards: {cell(measured.post_hoc)}." if measured.post_hoc else ""
    return f"Direction chosen beforehand: {before}.{after}"


def _tests(measured: SetResults, chosen: str | None) -> str:
    """The chosen direction, or the first mode without one, against every other mode."""
    reference = chosen if chosen in measured.modes else next(iter(measured.modes))
    rows = []
    for test in [test for test in measured.tests if reference in (test.first, test.second)]:
        sign = 1 if test.first == reference else -1
        other = test.second if sign == 1 else test.first
        row = [f"{reference} − {other}", f"{100 * sign * test.difference:+.1f}", span(test.interval, sign)]
        rows.append([*row, f"{test.p:.3g}", str(test.problems), test.test])
    return table(["paired", "difference, points", "95 % interval", "p", "problems", "test"], rows)
