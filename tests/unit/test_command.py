"""The `agon` command: it passes arguments on unchanged and imports nothing but the command that was chosen."""

import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

import agon_verl
from agon_verl.__main__ import COMMANDS, main
from agon_verl.program import program_name

PACKAGE = Path(agon_verl.__file__).parent


def test_every_command_is_a_package_with_a_main_module() -> None:
    assert {path.parent.name for path in PACKAGE.glob("*/__main__.py")} == set(COMMANDS)


@pytest.mark.parametrize("status", [0, 1])
def test_arguments_and_status_are_passed_on(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    calls: list[list[str]] = []
    command = types.ModuleType("agon_verl.matrix.__main__")
    command.main = lambda arguments: calls.append(arguments) or status  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, command.__name__, command)
    arguments = ["--methods", "adv", "--help", "--evaluate", "--", "trainer.nnodes=2", "--version"]
    assert main(["matrix", *arguments]) == status
    assert calls == [arguments]


def test_help_lists_the_commands_and_loads_none_of_them() -> None:
    script = (
        "import sys, agon_verl.__main__ as agon\n"
        "try: agon.main(['--help'])\n"
        "finally: print('loaded', *sorted(name for name in sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert re.findall(r"^  ([a-z]+)  ", done.stdout, re.MULTILINE) == list(COMMANDS)
    loaded = set(done.stderr.split())
    assert not loaded & {"numpy", "torch", "transformers", "verl", "vllm", "ray"}
    assert not loaded & {f"agon_verl.{name}" for name in COMMANDS}


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"agon-verl {agon_verl.__version__}\n"


def test_an_unknown_command_names_the_choices(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["train"])
    message = capsys.readouterr().err
    assert all(name in message for name in COMMANDS)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("/usr/local/bin/agon", "agon data"),
        ("/somewhere/agon_verl/__main__.py", "python -m agon_verl data"),
        ("/somewhere/agon_verl/data/__main__.py", "python -m agon_verl.data"),
    ],
)
def test_program_name_is_what_the_user_typed(monkeypatch: pytest.MonkeyPatch, script: str, expected: str) -> None:
    monkeypatch.setattr(sys, "argv", [script])
    assert program_name("data") == expected
    assert program_name("") == expected.removesuffix(".data").removesuffix(" data")
