"""What a matrix consists of: arms x seeds, and the settings that all cells share. Written as YAML, or as options.

    recipe: agon
    arms:                                  # in the order in which they run, seed by seed
      grpo: {method: grpo}
      coop: {method: coop}
      agon: {method: adv, label: Agon}
      agon_value: {method: adv, overrides: [agon.withhold=value], label: "Agon, values withheld"}
      margin: {method: margin, wave: 2}    # after all seeds of the first wave
    seeds: [0, 1, 2]
    overrides: [data.train_batch_size=16, trainer.total_training_steps=40, trainer.save_freq=40]
    evaluate: [--data, heldout.parquet, --dev, dev.parquet]
    untrained: [base]                      # modes of the base itself; []: none

The other fields, all with a default, are those of `Plan`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import yaml

import recipes
from agon_verl.errors import AgonError
from agon_verl.matrix.rows import MODES, PAIR

METHODS = sorted(path.stem for path in (Path(recipes.__file__).parent / "method").glob("*.yaml"))
# Where a cell lies and how much memory vLLM may take: they may differ between two visits.
_PLACES = ("trainer.default_local_dir=", "trainer.rollout_data_dir=")
_CACHE = "+actor_rollout_ref.rollout.engine_kwargs.vllm.kv_cache_memory_bytes"
# With a stated cache vLLM only checks at its start that this share of the GPU is free. Beside other cells it is not.
_SHARE = "actor_rollout_ref.rollout.gpu_memory_utilization"
_SMALL_SHARE = 0.05


class MatrixError(AgonError, RuntimeError):
    """A cell or the matrix cannot run; the message has the reason and the fix."""


@dataclass(frozen=True)
class Arm:
    """A method of the recipes, with overrides of its own. `modes`: how it is evaluated, by default as its method.

    Arms of a later `wave` begin after all seeds of the waves before.
    """

    name: str
    method: str
    overrides: tuple[str, ...] = ()
    label: str = ""
    modes: tuple[str, ...] = ()
    wave: int = 1

    @property
    def evaluated(self) -> tuple[str, ...]:
        return self.modes or tuple(MODES.get(self.method, PAIR))


@dataclass(frozen=True)
class Cell:
    arm: Arm
    seed: int

    @property
    def key(self) -> str:
        return f"{self.arm.name}/seed_{self.seed}"


@dataclass(frozen=True)
class Plan:
    """`evaluate` are arguments of `agon_verl.evaluate`, `untrained` the modes in which the base itself is evaluated.

    at_once             cells that train at a time
    stagger             seconds between two starts: two at the same moment would measure each other's memory
    cache_gib           vLLM's cache in each cell; with a stated size several runs can share a GPU
    evaluate_beside     evaluate the base at the start and each cell as soon as it is trained, beside those that train
    start, evaluation_start   minutes from the start of a command to its first result, before any was measured
    whole               start a cell only if all of its steps fit into the time that is left
    pairs               problems per step whose pair records are kept when the cell rests; None: all
    checkpoints         False: of a trained cell only the adapters are kept, in bfloat16
    """

    out: Path
    recipe: str
    arms: tuple[Arm, ...]
    seeds: tuple[int, ...]
    overrides: tuple[str, ...] = ()
    evaluate: tuple[str, ...] = ()
    untrained: tuple[str, ...] = tuple(MODES["base"])
    at_once: int = 1
    stagger: float = 60.0
    cache_gib: float | None = None
    evaluate_beside: bool = False
    start: float = 5.0
    evaluation_start: float = 2.0
    whole: bool = False
    pairs: int | None = None
    checkpoints: bool = True

    @property
    def cells(self) -> list[Cell]:
        """Seed by seed, so that a matrix that had to stop has the same seeds of every arm."""
        waves = sorted({arm.wave for arm in self.arms})
        return [Cell(arm, seed) for wave in waves for seed in self.seeds for arm in self.arms if arm.wave == wave]

    def folder(self, cell: Cell) -> Path:
        return self.out / cell.key

    def training(self, cell: Cell) -> list[str]:
        """The overrides of a cell's command."""
        folder, seed = self.folder(cell), cell.seed
        cache = [] if self.cache_gib is None else [f"{_CACHE}={round(self.cache_gib * 2**30)}"]
        return [
            f"+recipe={self.recipe}",
            f"+method={cell.arm.method}",
            *([f"{_SHARE}={_SMALL_SHARE}"] if cache else []),
            *self.overrides,
            *cell.arm.overrides,
            f"agon.seed={seed}",
            f"data.seed={seed}",
            f"actor_rollout_ref.rollout.seed={seed}",
            f"{_PLACES[0]}{folder / 'checkpoints'}",
            f"{_PLACES[1]}{folder / 'pairs'}",
            "trainer.logger=[console,file]",
            *([] if self.checkpoints else ["trainer.max_actor_ckpt_to_keep=1"]),
            *cache,
        ]

    def comparable(self, overrides: Sequence[str]) -> list[str]:
        """Those that decide what is learned; the others may change between two visits."""
        return [each for each in overrides if not each.startswith((*_PLACES, _CACHE, _SHARE, "trainer.max_actor_ckpt"))]


def read_plan(path: Path, out: Path) -> Plan:
    """The plan of a YAML file, with every field checked."""
    try:
        values = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise MatrixError(f"{path} cannot be read as a plan: {error}") from None
    needed = ("recipe", "arms", "seeds", "evaluate")
    if not isinstance(values, dict) or not all(values.get(name) for name in needed):
        raise MatrixError(f"{path} is not a plan: it needs {', '.join(needed)}")
    _check_names(f"{path}:", values, {each.name for each in fields(Plan)} - {"out"})
    _check_lists(f"{path}:", values, ("seeds", "overrides", "evaluate", "untrained"))
    seeds = values["seeds"]
    if not all(isinstance(seed, int) for seed in seeds) or len(set(seeds)) < len(seeds):
        raise MatrixError(f"{path}: seeds={seeds} must be different whole numbers")
    if "at_once" in values and not (isinstance(values["at_once"], int) and values["at_once"] >= 1):
        raise MatrixError(f"{path}: at_once={values['at_once']!r} must be a whole number from 1 on")
    if not isinstance(values["arms"], dict):
        raise MatrixError(f"{path}: arms={values['arms']!r} must name each arm: {{grpo: {{method: grpo}}}}")
    texts = {name: tuple(map(str, values[name])) for name in ("overrides", "evaluate", "untrained") if name in values}
    arms = tuple(_arm(path, str(name), each or {}) for name, each in values["arms"].items())
    return Plan(**{**values, **texts, "arms": arms, "seeds": tuple(seeds), "out": out.absolute()})


def _arm(path: Path, name: str, values: Mapping[str, Any]) -> Arm:
    _check_names(f"{path}: arm {name}:", values, {each.name for each in fields(Arm)} - {"name"})
    _check_lists(f"{path}: arm {name}:", values, ("overrides", "modes"))
    method = values.get("method", name)
    if method not in METHODS:
        raise MatrixError(f"{path}: arm {name}: method={method} is unknown: use one of {', '.join(METHODS)}")
    overrides, modes = (tuple(map(str, values.get(each) or ())) for each in ("overrides", "modes"))
    if unknown := sorted(set(modes) - {*PAIR, *MODES["base"]}):
        raise MatrixError(f"{path}: arm {name}: modes={unknown[0]} is unknown: use {', '.join(PAIR)}")
    return Arm(name, method, overrides, str(values.get("label", "")), modes, int(values.get("wave", 1)))


def _check_lists(where: str, values: Mapping[str, Any], names: Sequence[str]) -> None:
    for name in names:
        if values.get(name) is not None and not isinstance(values[name], list):
            raise MatrixError(f"{where} {name}={values[name]!r} must be a list")


def _check_names(where: str, values: Mapping[str, Any], allowed: set[str]) -> None:
    if unknown := sorted(set(map(str, values)) - allowed):
        raise MatrixError(f"{where} {unknown[0]} is not a field: use {', '.join(sorted(allowed))}")
