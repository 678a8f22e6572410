"""The entry point: what it registers, what it costs, and what a user sees where it cannot work."""

import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from agon_verl import plugin
from tests.not_installed import PACKAGES, ROOT, copied, python_without_agon
from tests.recipes import CONFIG

VERL = importlib.metadata.version("verl")


def test_requirements_are_met_here() -> None:
    assert plugin.unmet_requirement() is None


@pytest.mark.parametrize(
    ("requirement", "words"),
    [
        ("verl==0.8.0", ["needs verl==0.8.0", f"{VERL} is installed", "pip install 'verl==0.8.0'"]),
        ("TransferQueue-of-tomorrow>=1", ["needs TransferQueue-of-tomorrow>=1", "not installed", "pip install"]),
    ],
)
def test_unmet_requirement_is_one_sentence_with_the_fix(
    monkeypatch: pytest.MonkeyPatch, requirement: str, words: list[str]
) -> None:
    monkeypatch.setattr(importlib.metadata, "requires", lambda _: ["peft", "e2b; extra == 'e2b'", requirement])
    message = plugin.unmet_requirement()
    assert message is not None and all(word in message for word in words)


@pytest.mark.parametrize(
    ("version", "runs"), [("0.8.0", 0), ("0.9.0", 1), ("0.9.1", 1), ("0.9.2", 0), ("0.10.0.dev", 0)]
)
def test_versions_of_verl_that_were_not_tried_are_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, version: str, runs: bool
) -> None:
    (pin,) = re.findall(r'"(verl[<=>].*?)",\n', (ROOT / "setup.py").read_text())
    monkeypatch.setattr(importlib.metadata, "requires", lambda _: [pin])
    monkeypatch.setattr(importlib.metadata, "version", lambda _: version)
    message = plugin.unmet_requirement()
    assert message is None if runs else f"but {version} is installed" in str(message)


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


@pytest.fixture(scope="module")
def without_agon(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return python_without_agon(tmp_path_factory.mktemp("without"))


def run_python(
    program: str, *arguments: str, path: str, python: Path | str = sys.executable, **environment: str
) -> subprocess.CompletedProcess:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VERL_"))}
    return subprocess.run(
        [python, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        cwd="/",  # the working directory comes before PYTHONPATH
        env={**own, **environment, "PYTHONPATH": path},
    )


COMPOSE = f"""
import verl
from hydra import compose, initialize_config_dir
with initialize_config_dir({str(CONFIG)!r}, version_base=None):
    print("reward:", compose("ppo_trainer", overrides=["+recipe=agon"]).agon.reward)
"""


def test_packages_on_the_path_work_without_being_installed(without_agon: Path, tmp_path: Path) -> None:
    """Ray's `py_modules` puts each package into a folder of its own, without metadata and thus without entry points."""
    path = [str(copied(tmp_path / package, package)) for package in PACKAGES]
    switch = {"VERL_USE_EXTERNAL_MODULES": "agon_verl.plugin"}
    absent = run_python("import importlib.metadata as m; m.version('agon-verl')", path="", python=without_agon)
    assert "PackageNotFoundError" in absent.stderr
    done = run_python(COMPOSE, path=os.pathsep.join(path), python=without_agon, **switch)
    assert "reward: adv" in done.stdout, done.stderr


def test_a_recipes_package_of_the_user_does_not_hide_ours(tmp_path: Path) -> None:
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "__init__.py").touch()
    done = run_python(COMPOSE, path=os.pathsep.join([str(tmp_path), str(ROOT)]))
    assert "reward: adv" in done.stdout, done.stderr


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Our packages with an error in a module that the trainer imports."""
    folder = copied(tmp_path_factory.mktemp("broken"), *PACKAGES)
    with (folder / "agon_verl" / "trainer" / "streams.py").open("a") as module:
        module.write("raise ImportError('a part of ours is broken')\n")
    return str(folder)


TRAINER = """
import agon_verl, sys
from verl.trainer.ppo.v1 import PPOTrainerSync, get_trainer_cls
assert agon_verl.__file__.startswith(sys.argv[1])
assert get_trainer_cls("sync") is PPOTrainerSync
print("stock verl works")
get_trainer_cls("agon")(config=None)
"""


def test_an_error_in_our_modules_ends_our_runs_with_the_cause_and_no_others(broken: str) -> None:
    done = run_python(TRAINER, broken, path=broken)
    assert "stock verl works" in done.stdout, done.stderr
    assert done.returncode == 1 and done.stderr.strip().endswith("ImportError: a part of ours is broken")


def test_an_error_in_our_registration_does_not_break_verl(tmp_path: Path) -> None:
    folder = str(copied(tmp_path, *PACKAGES))
    (tmp_path / "agon_verl" / "cpu" / "platform.py").write_text("raise ImportError('a part of ours is broken')\n")
    switch = {"VERL_USE_EXTERNAL_MODULES": "agon_verl.plugin"}  # whose errors verl does not swallow
    done = run_python("import verl; print('stock verl works')", path=folder, **switch)
    assert "stock verl works" in done.stdout and "a part of ours is broken" in done.stderr
    done = run_python("import verl", "+recipe=agon", path=folder, **switch)
    assert done.returncode == 1 and "agon-verl is off: its registration failed (ImportError" in done.stderr
