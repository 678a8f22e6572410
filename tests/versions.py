"""The suite against other versions of verl, in place of the installed one.

    python -m tests.versions SOURCE …                        each a folder with `verl/`: a clone, an unpacked wheel
    python -m tests.versions SOURCE … --tests tests/stack    other tests than the default ones

For each source it makes a Python that has what this one has, except for verl, and in which agon-verl asks for no
version of verl. Everything else stays as it is installed here: what a source needs of a newer vLLM or TransferQueue
shows as a failure. Prints a table in Markdown, and below it what failed, with the last line of each error. The exit
status is 1 if anything failed.
"""

import argparse
import subprocess
import sys
import sysconfig
import tempfile
import venv
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from tests.not_installed import ROOT

TESTS = ("tests/unit", "tests/stack", "tests/real/test_engine.py", "tests/real/test_two_ranks.py")
OF_THE_LOCK = "tests/stack/test_package.py::test_lock_agrees_with_the_environment"  # which has another verl
LIMIT = 2400  # seconds for one of them


@dataclass(frozen=True)
class Result:
    """Of one source and one part of the suite."""

    seconds: float
    passed: int
    failures: dict[str, str]  # the last line of each test's error, by the test's name

    def __str__(self) -> str:
        failed = f", **{len(self.failures)} failed**" if self.failures else ""
        return f"{self.passed} passed{failed}"


def version_of(source: Path) -> str:
    return (source / "verl" / "version" / "version").read_text().strip()


def commit_of(source: Path) -> str:
    """Of a clone; nothing for other folders."""
    if not (source / ".git").exists():
        return ""
    command = ["git", "-C", str(source), "log", "-1", "--format= (%h of %cs)"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.rstrip()


def python_with(source: Path, folder: Path) -> Path:
    """A Python with the packages of this one, by links, but with verl from `source` and this clone of agon-verl."""
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/*/site-packages")
    installed = Path(sysconfig.get_path("purelib"))
    for entry in installed.iterdir():
        if not entry.name.startswith(("verl", "agon_verl", "__editable__")):
            (packages / entry.name).symlink_to(entry)
    (packages / "verl").symlink_to(source.resolve() / "verl")
    (packages / "agon_verl.pth").write_text(f"{ROOT}\n")
    (metadata,) = installed.glob("verl-*.dist-info")
    describe(packages / "verl-0.dist-info", metadata, ("Version:", f"Version: {version_of(source)}"))
    (metadata,) = installed.glob("agon_verl-*.dist-info")
    describe(packages / "agon_verl-0.dist-info", metadata, ("Requires-Dist: verl", "Requires-Dist: verl"))
    return folder / "bin" / "python"


def describe(folder: Path, original: Path, line: tuple[str, str]) -> None:
    """A distribution's metadata, with the line that starts with the first text replaced by the second."""
    start, new = line
    folder.mkdir()
    lines = (original / "METADATA").read_text().splitlines()
    (folder / "METADATA").write_text("\n".join(new if old.startswith(start) else old for old in lines))
    if (original / "entry_points.txt").exists():
        (folder / "entry_points.txt").write_text((original / "entry_points.txt").read_text())


def run(python: Path, tests: str, folder: Path) -> Result:
    report, log = folder / "report.xml", folder / "log"
    command = [str(python), "-m", "pytest", "-q", tests, f"--junitxml={report}", f"--basetemp={folder / 'tmp'}"]
    with log.open("w") as output:
        try:
            command += ["-p", "no:cacheprovider", f"--deselect={OF_THE_LOCK}"]
            subprocess.run(command, cwd=ROOT, stdout=output, stderr=output, timeout=LIMIT)
        except subprocess.TimeoutExpired:
            return Result(LIMIT, 0, {tests: f"no end after {LIMIT} seconds, see {log}"})
    return read(report) if report.exists() else Result(0, 0, {tests: last_line(log.read_text())})


def read(report: Path) -> Result:
    seconds, passed, failures = 0.0, 0, {}
    for suite in ElementTree.parse(report).getroot():
        seconds += float(suite.get("time", 0))
        for case in suite.iter("testcase"):
            wrong = case.find("failure") if case.find("failure") is not None else case.find("error")
            if wrong is not None:
                failures[f"{case.get('classname')}::{case.get('name')}"] = last_line(wrong.get("message") or "")
            elif case.find("skipped") is None:
                passed += 1
    return Result(seconds, passed, failures)


def last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no message"])[-1]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.versions", description=__doc__)
    parser.add_argument("sources", nargs="+", type=Path, metavar="SOURCE")
    parser.add_argument("--tests", nargs="+", default=TESTS)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="versions"))
    print(f"| verl | {' | '.join(arguments.tests)} |\n|---|{'---|' * len(arguments.tests)}", flush=True)
    failures = []
    for number, source in enumerate(arguments.sources):
        name = version_of(source) + commit_of(source)
        python = python_with(source, folder / f"python{number}")
        print(f"| {name} ", end="", flush=True)
        for part, tests in enumerate(arguments.tests):
            place = folder / f"{number}-{part}"
            place.mkdir()
            result = run(python, tests, place)
            print(f"| {result}, {result.seconds:.0f} s ", end="", flush=True)
            failures += [f"- {name}: {test}: {error}" for test, error in result.failures.items()]
        print("|", flush=True)
    print(*failures, f"\nLogs: {folder}", sep="\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
