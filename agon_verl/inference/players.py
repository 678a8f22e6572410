"""Who plays: a checkpoint's or an export's adapters over their base, or a base alone, with the settings of its run.

`find_players` takes a run's folder (its newest checkpoint), a `global_step_<n>`, an export, or a base model as a
folder or a hub's name. The base is checked against the hash in the manifest where its weights are on this machine; a
pair that was trained with another challenge prompt than this version's is refused, for it would not be evaluated on
the game that it learned.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from agon_verl.config import AgonConfig
from agon_verl.errors import AgonError, CheckpointError
from agon_verl.game.roles import ADAPTERS, directions
from agon_verl.game.transcript import REASONING_TAGS
from agon_verl.pair.base import base_folder, hash_of_base
from agon_verl.pair.checkpoint import MANIFEST, Manifest, prompts
from agon_verl.pair.export import DIRECTIONS, ExportError, choose, find, find_base, finite
from agon_verl.rollout.wire import BASE

TIMEOUTS = {"math": 90.0, "code": 600.0}  # seconds for a verdict, as in the recipes


class InferenceError(AgonError, RuntimeError):
    """One sentence: what is in the way, and what to do."""


@dataclass(frozen=True)
class Sampling:
    """How a completion is drawn; the defaults are the paper's. Temperature 0 is greedy."""

    temperature: float = 0.6
    top_p: float = 0.95
    top_k: int = -1
    max_tokens: int = 15360
    seed: int | None = None


@dataclass(frozen=True)
class Players:
    """`adapters` has a folder for each; without any, the base plays alone. `checked`: its weights have the hash."""

    given: str
    base: str
    base_hash: str | None = None
    checked: bool = False
    adapters: Mapping[str, Path] = field(default_factory=dict)
    rank: int = 0
    direction: str | None = None
    domain: str = "math"
    tags: tuple[str, str] = REASONING_TAGS
    sampling: Sampling = field(default_factory=Sampling)
    max_prompt: int = 4096
    chat: Mapping[str, Any] = field(default_factory=dict)  # what the chat template is given
    template: str | None = None
    verifier: Mapping[str, Any] = field(default_factory=dict)
    reward_timeout: float | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.adapters, BASE)

    @property
    def timeout(self) -> float:
        return self.reward_timeout or TIMEOUTS[self.domain]


def find_players(given: str, base: str | None = None, **changes: Any) -> Players:
    """`base` is where the base lies now, if not where the run found it; `changes` replace fields, `None` none."""
    folder = Path(given).expanduser()
    try:
        if not folder.is_dir():
            found = _hub(given)
        elif (folder / "config.json").is_file():
            found = Players(str(folder), str(folder.absolute()), hash_of_base(folder), checked=True)
        elif "cascade" in (manifest := _manifest(folder)):
            found = _of_export(folder, manifest, base)
        else:
            found = _of_checkpoint(find(folder), base)
    except (ExportError, CheckpointError) as error:
        raise InferenceError(str(error)) from None
    except KeyError as error:
        raise InferenceError(f"{folder / MANIFEST} has no {error}: export the pair again") from None
    return replace(found, given=given, **{name: value for name, value in changes.items() if value is not None})


def _hub(name: str) -> Players:
    if name.startswith(("/", ".", "~")) or name.count("/") > 1:
        raise InferenceError(f"{name} is not a folder: give a run, a checkpoint, an export, or a base model")
    try:
        return Players(name, name, hash_of_base(base_folder(name)), checked=True)
    except (OSError, ValueError):  # not downloaded yet: vLLM will
        return Players(name, name)


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        return dict(json.loads((folder / MANIFEST).read_text()))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise InferenceError(f"{folder / MANIFEST} cannot be read: export the pair again ({error})") from None


def _of_checkpoint(folder: Path, base: str | None) -> Players:
    manifest = Manifest.read(folder)
    game = AgonConfig.read(OmegaConf.create({"agon": dict(manifest.game)}))
    return replace(
        _pair(
            folder / "actor",
            trained(game.players),
            (manifest.base, manifest.base_hash, base),
            manifest.generation,
            manifest.prompts,
        ),
        direction=choose(finite(manifest.metrics), None).direction,
        domain=game.domain,
        tags=game.reasoning_tags,
        verifier=manifest.verifier,
        reward_timeout=game.reward_timeout,
    )


def _of_export(folder: Path, record: Mapping[str, Any], base: str | None) -> Players:
    at = record["base"]
    return replace(
        _pair(
            folder,
            trained(record.get("players", "pair")),
            (at["path"], at["hash"], base),
            record["generation"],
            record["prompts"],
        ),
        direction=record["cascade"]["direction"],
        domain=record["domain"],
        tags=tuple(record["reasoning_tags"]),
        verifier=record.get("verifier", {}),
    )


def trained(players: str) -> tuple[str, ...]:
    """The adapters that a run trains: with one player, as in plain GRPO, B is there and knows nothing."""
    return tuple(sorted({drafter for drafter, _ in directions(players)}))


def _pair(
    folder: Path,
    names: Sequence[str],
    at: tuple[str, str, str | None],
    generation: Mapping[str, Any],
    trained_with: Mapping[str, str],
) -> Players:
    """`at` is the base's path and hash, and the place given instead."""
    base, base_hash, given = at
    folders = {name: (folder / name).absolute() for name in names}
    adapters = {name: path for name, path in folders.items() if (path / "adapter_config.json").is_file()}
    if not adapters:
        raise InferenceError(f"{folder} holds no adapter {' or '.join(names)}: take another checkpoint")
    if changed := [name for name, text in prompts().items() if trained_with.get(name, text) != text]:
        raise InferenceError(
            f"{folder} was trained with another text of prompts.{changed[0]} than this version has: use the version "
            "that trained it, or put that text back into agon_verl/game/prompts.py"
        )
    found, _ = find_base(base, base_hash, given, needed=Path(base).is_absolute())
    known = {name: generation[name] for name in ("temperature", "top_p", "top_k") if generation.get(name) is not None}
    if not generation.get("do_sample", True):
        known["temperature"] = 0.0
    default = Players(given="", base="")
    return Players(
        given=str(folder),
        base=found.path,
        base_hash=found.hash,
        checked=found.checked,
        adapters=adapters,
        rank=max(int(json.loads((path / "adapter_config.json").read_text())["r"]) for path in adapters.values()),
        sampling=Sampling(**known, max_tokens=generation.get("max_response_length", default.sampling.max_tokens)),
        max_prompt=generation.get("max_prompt_length", default.max_prompt),
        chat=generation.get("apply_chat_template_kwargs") or {},
        template=generation.get("custom_chat_template"),
    )


def read_mode(mode: str, names: tuple[str, ...]) -> tuple[str | None, str]:
    """The drafter and who answers: "A_to_B" is A and B, "A" nobody and A."""
    drafter, cascade, player = mode.rpartition("_to_")
    if player not in names or (cascade and drafter not in names):
        known = ", ".join([*names, *(d for d in DIRECTIONS if set(ADAPTERS) <= set(names))])
        raise InferenceError(f"mode {mode!r} is unknown here: use a player or two with _to_ between them ({known})")
    return drafter or None, player
