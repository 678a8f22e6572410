"""Results to read, in Markdown."""

from collections.abc import Mapping, Sequence
from typing import Any


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f}"


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def span(found: Mapping[str, Any] | None) -> str:
    return "–" if found is None else f"[{percent(found['low'])}, {percent(found['high'])}]"


def report(results: Mapping[str, Any]) -> str:
    parts = [f"# {results['target']}", _about(results)]
    for source, found in results["sets"].items():
        parts += [f"## {source}: {found['problems']} problems", _modes(found, results["samples"])]
        parts += [_direction(found, results["direction"])] if found["post_hoc"] else []
        parts += [_tests(found, _reference(found, results["direction"]))] if found["tests"] else []
    return "\n\n".join(parts) + "\n"


def _about(results: Mapping[str, Any]) -> str:
    sampling = results["settings"]["sampling"]
    decoding = (
        f"temperature {sampling['temperature']:g}, top-p {sampling['top_p']:g}" if sampling["temperature"] else "greedy"
    )
    ledger, failed = results["ledger"], results["left_out"]
    return (
        f"Samples a problem: {results['samples']}, {decoding}, at most {sampling['max_tokens']:,} tokens a stage, "
        f"seed {results['settings']['seed']}. Generated in all: {ledger['generated']:,} tokens, prefilled "
        f"{ledger['prefilled']:,}. " + (f"**Left out, for the judge failed: {failed}.**" if failed else "")
    ).strip()


def _modes(found: Mapping[str, Any], samples: int) -> str:
    several = samples > 1
    head = ["mode", "pass@1 %", "95 % interval"]
    head += [f"pass@{samples} %", "majority %"] if several else []
    head += ["final length", "generated", "prefilled", "cut off %", "format %", "converted", "damaged"]
    rows = []
    for mode, told in found["modes"].items():
        row = [mode, percent(told["pass@1"]), span(told["interval"])]
        if several:
            # JSON has no numbers for keys: fresh results have them, read ones strings.
            at = {str(k): value for k, value in told.get("pass@k", {}).items()}
            row += [percent(at.get(str(samples))), percent(told.get("majority"))]
        cost, exchange = told["ledger"]["per_pass"], told.get("exchange")
        row += [number(told["length"]), number(cost["generated"]), number(cost["prefilled"])]
        row += [percent(told["truncated"]), percent(told["format"])]
        row += [f"{exchange[n]} of {exchange[of]}" for n, of in _EXCHANGE] if exchange else ["–", "–"]
        rows.append(row)
    notes = "Lengths are mean tokens; generated and prefilled are those of all stages of one pass over one problem."
    return f"{table(head, rows)}\n\n{notes} {_method(found)}"


_EXCHANGE = (("converted", "wrong_drafts"), ("damaged", "right_drafts"))


def _method(found: Mapping[str, Any]) -> str:
    methods = dict.fromkeys(told["interval"]["method"] for told in found["modes"].values() if told["interval"])
    return f"Intervals: {'; '.join(methods)}."


def _direction(found: Mapping[str, Any], direction: Mapping[str, Any]) -> str:
    def cell(mode: str) -> str:
        told = found["modes"][mode]
        return f"{mode}, {percent(told['pass@1'])} % {span(told['interval'])}"

    chosen = direction["chosen"]
    before = f"{cell(chosen)} ({direction['why']})" if chosen in found["modes"] else "none was chosen beforehand"
    return f"Direction chosen beforehand: {before}. Better one here, seen afterwards: {cell(found['post_hoc'])}."


def _reference(found: Mapping[str, Any], direction: Mapping[str, Any]) -> str:
    modes = list(found["modes"])
    return direction["chosen"] if direction["chosen"] in modes else modes[0]


def _tests(found: Mapping[str, Any], reference: str) -> str:
    rows = []
    for told in found["tests"]:
        if reference in (told["first"], told["second"]):
            sign = 1 if told["first"] == reference else -1
            around = told["interval"]
            if around and sign == -1:
                around = {"low": -around["high"], "high": -around["low"]}
            other = told["second"] if sign == 1 else told["first"]
            row = [f"{reference} − {other}", f"{100 * sign * told['difference']:+.1f}", span(around)]
            rows.append([*row, f"{told['p']:.3g}", str(told["problems"]), told["test"]])
    return table(["paired", "difference, points", "95 % interval", "p", "problems", "test"], rows)
