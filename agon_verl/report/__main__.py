"""The command line: `report FOLDER [FOLDER …] --out report`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from agon_verl.program import program_name
from agon_verl.report.read import ReportError, find


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog=program_name("report"), description="Runs as one page to read.")
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
            m.name: read_pairs(m.name, {run.name: run.pairs for run in m.runs}, asked.pairs)
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
            *([training.reading(readings)] if asked.pairs > 0 else []),
        ]
        title = asked.title or f"Agon: {', '.join(folder.resolve().name for folder in asked.folders)}"
        said = [*results.facts(methods), *notes]
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
