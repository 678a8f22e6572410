"""The game is testable by hand arithmetic because no training framework reaches into it."""

import ast
from pathlib import Path

import pytest

import agon_verl.game

FILES = sorted(Path(agon_verl.game.__file__).parent.glob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_game_imports_itself_torch_and_the_standard_library_only(file):
    imported = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "absolute imports only"
            imported.add(node.module)
    ours = {name for name in imported if name.split(".")[0] == "agon_verl"}
    assert all(name.startswith("agon_verl.game.") for name in ours)
    known = {"ast", "bisect", "collections", "dataclasses", "math", "re", "torch", "typing"}
    assert {name.split(".")[0] for name in imported - ours} <= known


def test_there_is_something_to_check():
    assert len(FILES) >= 9
