"""The command line: `report FOLDER [FOLDER …] --out report`."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from agon_verl.files import write_atomically
from agon_verl.program import command, program_name
from agon_verl.report.runs import ReportError, read_methods


@command
def main(arguments: Sequence[str] | None) -> None:
    parser = argparse.ArgumentParser(prog=program_name("report"), description="Runs as one HTML page.")
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="a run, a method's seeds, or a matrix")
    parser.add_argument("--out", type=Path, default=Path("report"), help="folder for report.html (default: report)")
    parser.add_argument("--title", help="default: the names of the folders")
    parser.add_argument("--pairs", type=int, default=2, help="pairs to show per kind and method (default: 2)")
    options = parser.parse_args(arguments)
    print(write_report(options.folders, options.out, options.title, options.pairs))


def write_report(folders: Sequence[Path], out: Path, title: str | None = None, pairs: int = 2) -> Path:
    methods, notes = read_methods(folders)
    try:
        from agon_verl.report import evaluations, page, training
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        raise ReportError(f"{package} is needed: pip install 'agon-verl[report]'") from None
    from agon_verl.report.pairs import read_pairs

    views = {
        m.name: read_pairs(m.name, {run.name: run.pairs for run in m.runs}, pairs)
        for m in methods
        if any(run.pairs for run in m.runs)
    }
    evaluated = evaluations.evaluated(methods)
    sections = [
        evaluations.results(methods, evaluated),
        evaluations.lengths(methods, evaluated),
        training.accuracy(methods),
        training.exchange(methods),
        training.health(methods),
        training.ladder(views),
        training.tokens(methods),
        *([training.pairs(views)] if pairs > 0 else []),
    ]
    title = title or f"Agon: {', '.join(folder.resolve().name for folder in folders)}"
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / "report.html", page.html(title, [*evaluations.facts(methods), *notes], sections))
    return out / "report.html"


if __name__ == "__main__":
    raise SystemExit(main())
