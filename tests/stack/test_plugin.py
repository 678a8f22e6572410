"""The entry point: what it registers, what it costs, and what a user sees where it cannot work."""

import importlib.metadata
import subprocess
import sys

import pytest

from agon_verl import plugin


def test_requirements_are_met_here() -> None:
    assert plugin.unmet_requirement() is None


@pytest.mark.parametrize(
    ("requirement", "words"),
    [
        ("verl==0.8.0", ["needs verl==0.8.0", "0.9.1 is installed", "pip install 'verl==0.8.0'"]),
        ("TransferQueue-of-tomorrow>=1", ["needs TransferQueue-of-tomorrow>=1", "not installed", "pip install"]),
    ],
)
def test_unmet_requirement_is_one_sentence_with_the_fix(
    monkeypatch: pytest.MonkeyPatch, requirement: str, words: list[str]
) -> None:
    monkeypatch.setattr(importlib.metadata, "requires", lambda _: ["peft", "e2b; extra == 'e2b'", requirement])
    message = plugin.unmet_requirement()
    assert message is not None and all(word in message for word in words)


def import_verl(requirement: str, *arguments: str) -> subprocess.CompletedProcess:
    """`import verl` in a process where agon-verl asks for `requirement`, with these command-line arguments."""
    program = f"""
import importlib.metadata, sys
importlib.metadata.requires = lambda name: [{requirement!r}]
sys.argv = ["main_ppo.py", *{list(arguments)!r}]
import verl
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin
print("verl works,", any(s.__name__ == "RecipeSearchPath" for s in Plugins.instance().discover(SearchPathPlugin)))
"""
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)


def test_a_run_that_asks_for_agon_is_stopped_loudly() -> None:
    done = import_verl("TransferQueue==9.9", "+recipe=agon")
    assert done.returncode == 1
    assert "agon-verl is off: it needs TransferQueue==9.9, but 0.1.11 is installed. Fix: pip install" in done.stderr


def test_other_uses_of_verl_go_on_with_a_warning() -> None:
    done = import_verl("TransferQueue==9.9")
    assert done.returncode == 0
    assert "verl works, False" in done.stdout
    assert "agon-verl is off" in done.stderr


def test_importing_verl_does_not_import_its_trainer_for_us() -> None:
    program = (
        "import verl, sys; modules = ('verl.trainer.ppo.v1', 'agon_verl.trainer.step', 'vllm'); "
        "print([m for m in modules if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip().splitlines()[-1] == "[]"
