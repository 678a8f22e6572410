"""`python -m tests.versions`: another verl in the place of the installed one."""

import subprocess
from pathlib import Path

from tests import versions

PROGRAM = """
import importlib.metadata, sys
import agon_verl, omegaconf
print(importlib.metadata.version("verl"))
print([line for line in importlib.metadata.requires("agon-verl") if line.startswith("verl")])
print([point.value for point in importlib.metadata.entry_points(group="verl.plugins") if point.name == "agon"])
print(agon_verl.__file__)
"""


def test_another_verl_is_in_the_place_of_the_installed_one_and_the_pin_is_set_aside(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "verl" / "version").mkdir(parents=True)
    (source / "verl" / "version" / "version").write_text("7.7.0\n")
    python = versions.python_with(source, tmp_path / "python")
    done = subprocess.run([python, "-c", PROGRAM], cwd="/", capture_output=True, text=True, check=True, timeout=120)
    package = versions.ROOT / "agon_verl" / "__init__.py"
    assert done.stdout.splitlines() == ["7.7.0", "['verl']", "['agon_verl.plugin']", str(package)]


def test_what_failed_is_listed_with_its_last_line(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(
        """<testsuites><testsuite time="2.5">
        <testcase classname="a" name="good"/>
        <testcase classname="a" name="later"><skipped message="no GPU"/></testcase>
        <testcase classname="a" name="bad"><failure message="assert 1 == 2&#10;ValueError: no"/></testcase>
        <testcase classname="a" name="worse"><error message="failed on setup"/></testcase>
        </testsuite></testsuites>"""
    )
    result = versions.read(report)
    assert result == versions.Result(2.5, 1, {"a::bad": "ValueError: no", "a::worse": "failed on setup"})
    assert str(result) == "1 passed, **2 failed**"
