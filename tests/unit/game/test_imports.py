"""The game depends on no training framework, so that it can be tested by hand arithmetic."""

import ast
from pathlib import Path

import pytest

import agon_verl.game

FILES = sorted(Path(agon_verl.game.__file__).parent.rglob("*.py"))
PURE = {"bisect", "collections", "dataclasses", "math", "re", "typing"}  # modules without input or output


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}.{file.stem}")
def test_the_game_imports_itself_and_pure_modules_only(file):
    imported = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "absolute imports only"
            imported.add(node.module)
    ours = {name for name in imported if name.split(".")[0] == "agon_verl"}
    assert all(name.startswith("agon_verl.game") for name in ours)
    assert {name.split(".")[0] for name in imported - ours} <= PURE
