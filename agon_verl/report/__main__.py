"""The command line: `report FOLDER [FOLDER …] --out report`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from agon_verl.report.read import UNTRAINED, Method, ReportError, find


def facts(methods: Sequence[Method], notes: Sequence[str]) -> list[str]:
    from agon_verl.report.page import facts_of

    trained = [m for m in methods if m.name != UNTRAINED] or methods
    runs = [run for m in trained for run in m.runs]
    seeds = sorted({run.seed for run in runs if run.seed is not None})
    steps = sorted({run.metrics.last_step for run in runs if run.metrics.by_step})
    said = f"{len(runs)} run{'s' if len(runs) != 1 else ''}"
    said += f" of {len(trained)} methods" if len(trained) > 1 else ""
    said += f", seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}" if seeds else ""
    said += f"; {' to '.join(map(str, sorted({steps[0], steps[-1]})))} training steps" if steps else ""
    failed = [run.name for run in runs if run.state in ("failed", "missing")]
    lines = [f"{said}.", *(f"Failed or missing: {', '.join(failed)}." for _ in failed[:1])]
    evaluations = dict.fromkeys(facts_of(results) for m in methods for results in m.evaluations)
    return [*lines, *(f"Evaluated with {told}." for told in evaluations), *notes]


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m agon_verl.report", description="Runs as one page to read.")
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="a run, a method's seeds, or a matrix")
    parser.add_argument("--out", type=Path, default=Path("report"), help="report.html, report.md and figures/ go there")
    parser.add_argument("--title", help="by default, the folders' names")
    parser.add_argument("--pairs", type=int, default=2, help="pairs to read, of each kind and method (default: 2)")
    asked = parser.parse_args(given)
    try:
        methods, notes = find(asked.folders)
        try:
            from agon_verl.report import page, results, training
        except ModuleNotFoundError as error:
            raise ReportError(f"{error.name} is needed: pip install 'agon-verl[report]'") from None
        from agon_verl.report.pairs import read_pairs

        readings = {
            m.name: read_pairs(m.name, {run.name: run.pairs for run in m.runs}, max(0, asked.pairs))
            for m in methods
            if any(run.pairs for run in m.runs)
        }
        found = results.evaluated(methods)
        told = [
            results.results(methods, found),
            results.lengths(methods, found),
            training.accuracy(methods),
            training.exchange(methods),
            training.health(methods),
            training.ladder(readings),
            training.tokens(methods),
            training.reading(readings),
        ]
        title = asked.title or f"Agon: {', '.join(folder.resolve().name for folder in asked.folders)}"
        said = facts(methods, notes)
        (asked.out / "figures").mkdir(parents=True, exist_ok=True)
        for picture in [picture for section in told for picture in section.drawn]:
            (asked.out / "figures" / f"{picture.name}.svg").write_text(picture.as_file(), encoding="utf-8")
        (asked.out / "report.html").write_text(page.html(title, said, told), encoding="utf-8")
        (asked.out / "report.md").write_text(page.markdown(title, said, told, "figures"), encoding="utf-8")
    except (ReportError, OSError) as error:
        print(f"agon-verl: {error}", file=sys.stderr)
        return 1
    print(f"{asked.out / 'report.html'}\n{asked.out / 'report.md'}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
