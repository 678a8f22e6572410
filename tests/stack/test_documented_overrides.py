"""Every override that a document shows, and every plan of a study, is accepted by Hydra and the checks of the config.

Documents are the pages, and the comments of the recipes. A command in a code block is composed as it stands; overrides
in running text are composed one span at a time, on top of `+recipe=agon`.
"""

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from agon_verl.matrix.plan import Plan, read_plan
from agon_verl.trainer.preflight import check_settings
from tests.recipes import composed

ROOT = Path(__file__).resolve().parents[2]
HISTORY = ROOT / "CHANGELOG.md"  # which names what was renamed or removed
EXAMPLES = {ROOT / "examples" / "knights.py", ROOT / "examples" / "one_gpu.py"}
PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *EXAMPLES} - {HISTORY})
PLANS = sorted((ROOT / "docs").glob("*/*.yaml"))
RECIPES = sorted((ROOT / "recipes").rglob("*.yaml"))

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
SPAN = re.compile(r"`([^`\n]+)`")
COMMENT = re.compile(r"^# ?(.*)$", re.MULTILINE)
OVERRIDE = re.compile(r"(\+\+?\w+|~?(\+\+?)?[a-z_]\w*(\.\w+)+)=")  # a group of recipes, or a path of two parts or more
QUOTES = '"""'
SETTING = re.compile(r"agon(\.\w+)+")
OTHERS = {"agon.yaml", "agon.draft"}  # a file, and a field of the server's replies
# What stands for a user's own value: in general, and where a choice must exist.
PLACEHOLDER = re.compile(r"…|<\w+>|\b[A-Z_]{3,}\b|^$")
CHOICES = {"+recipe": "agon", "+method": "coop", "+base": "qwen3_4b", "+machine": "cpu"}
VALUES = {"agon.seed": "1", "agon.reward": "coop"}


def overrides(words: list[str]) -> tuple[str, ...]:
    """Those among the words of a command, with a value for each placeholder."""
    shown = []
    for word in words:
        if OVERRIDE.match(word):
            name, value = word.split("=", 1)
            if name in CHOICES:
                value = PLACEHOLDER.sub(CHOICES[name], value)
            shown.append(f"{name}={PLACEHOLDER.sub(VALUES.get(name, 'example'), value)}")
    return tuple(shown)


def commands(text: str) -> Iterator[list[str]]:
    """The words of each line of a block, with the lines that a backslash continues."""
    for line in text.replace("\\\n", " ").splitlines():
        if OVERRIDE.search(line) and not line.startswith("agon-verl: "):  # an error message
            yield shlex.split(line, comments=True)


def shown_by(page: Path) -> Iterator[tuple[str, ...]]:
    """The overrides of each command and of each span."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".yaml":  # prose with apostrophes, in which a command goes on to the end of its line
        lines = "\n".join(COMMENT.findall(text)).replace("\\\n", " ").splitlines()
        yield from (overrides([word.strip("().,:;`") for word in line.split()]) for line in lines)
        return
    if page.suffix == ".py":
        text = f"```bash\n{text.split(QUOTES)[1]}```".replace("\\\\\n", "\\\n")
    for language, block in BLOCK.findall(text):
        yield from map(overrides, commands(block) if language in ("", "bash") else ())
    for span in SPAN.findall(BLOCK.sub("", text)):
        yield from map(overrides, commands(span))


def all_shown() -> dict[tuple[str, ...], str]:
    found: dict[tuple[str, ...], str] = {}
    for page in [*PAGES, *RECIPES]:
        for shown in filter(None, shown_by(page)):
            found.setdefault(shown, str(page.relative_to(ROOT)))
    return found


SHOWN = all_shown()


@pytest.mark.parametrize("shown", SHOWN, ids=lambda shown: f"{SHOWN[shown]}: {' '.join(shown)[:80]}")
def test_a_documented_override_works(shown: tuple[str, ...]) -> None:
    recipe = () if any(override.startswith("+recipe=") for override in shown) else ("+recipe=agon",)
    config = composed(*recipe, *shown)
    check_settings(config)
    OmegaConf.resolve(config)


def test_commands_and_spans_of_every_kind_are_found() -> None:
    assert ("agon.challenge_sampling.temperature=0.7",) in SHOWN
    assert ("agon.alarms.limits={damage: 0.95, leak: null}",) in SHOWN
    assert {"README.md", "docs/cluster.md", "recipes/recipe/agon_math.yaml"} <= {*SHOWN.values()}


def test_settings_named_in_running_text_exist() -> None:
    config = composed("+recipe=agon")
    named = {
        (str(page.relative_to(ROOT)), setting)
        for page in PAGES
        for span in SPAN.findall(BLOCK.sub("", page.read_text(encoding="utf-8")))
        if SETTING.fullmatch(setting := span.split("=")[0]) and setting not in OTHERS
    }
    missing = object()
    assert [entry for entry in sorted(named) if OmegaConf.select(config, entry[1], default=missing) is missing] == []


def filled_in(plan: Path, out: Path) -> Plan:
    """As the command in its first lines fills it in."""
    (command,) = re.findall(r"^# +(sed .*) > \w+\.yaml$", plan.read_text(), re.MULTILINE)
    values = os.environ | {"INPUTS": "inputs"}
    filled = subprocess.run(command, shell=True, cwd=ROOT, env=values, check=True, capture_output=True, text=True)
    assert not re.search(r"^[^#]*INPUTS", filled.stdout, re.MULTILINE)
    written = out.with_suffix(".yaml")
    written.write_text(filled.stdout)
    return read_plan(written, out)


@pytest.mark.parametrize("plan", PLANS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_cells_of_a_plan_are_accepted(plan: Path, tmp_path: Path) -> None:
    read = filled_in(plan, tmp_path / "out")
    for cell in {cell.arm.name: cell for cell in read.cells}.values():
        check_settings(composed(*read.training(cell)))


def test_the_chosen_cell_is_a_cell_of_the_main_study(tmp_path: Path) -> None:
    """So it is not trained again."""
    folder = ROOT / "docs" / "main_study"
    settings = []
    for plan, name in [("choice.yaml", "rate_1e-4"), ("plan.yaml", "grpo")]:
        read = filled_in(folder / plan, tmp_path / plan)
        cell = next(cell for cell in read.cells if cell.key == f"{name}/seed_0")
        settings.append(sorted(read.comparable(read.training(cell))))
    assert settings[0] == settings[1]
