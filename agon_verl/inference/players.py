"""The players: the adapters of a checkpoint or an export over their base, or a base alone, with the run's settings.

`find_players` takes a run's folder (its newest checkpoint), a `global_step_<n>`, an export, or a base model as a folder
or a Hugging Face name. The base is checked against the recorded hash if its weights are on this machine. A pair that
was trained with another challenge prompt than this version's is refused: it would not play the game that it learned.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agon_verl.errors import AgonError, CheckpointError
from agon_verl.game.domains import DOMAINS
from agon_verl.game.roles import ADAPTERS, BASE, directions
from agon_verl.game.transcript import REASONING_TAGS
from agon_verl.game.withhold import Withhold
from agon_verl.pair.base import base_folder, find_base, hash_of_base
from agon_verl.pair.checkpoint import Manifest, find_checkpoint, prompts
from agon_verl.pair.direction import DIRECTIONS
from agon_verl.pair.trained import TrainedPair


class InferenceError(AgonError, RuntimeError):
    """A pair cannot be loaded, or a request cannot be answered."""


@dataclass(frozen=True)
class Sampling:
    """How a completion is sampled; the defaults are the paper's. Temperature 0 is greedy."""

    temperature: float = 0.6
    top_p: float = 0.95
    top_k: int = -1
    max_tokens: int = 15360
    seed: int | None = None


@dataclass(frozen=True)
class Players:
    """`adapters`: the folder of each; empty if the base plays alone. `checked`: the base's weights have `base_hash`."""

    target: str
    base: str
    base_hash: str | None = None
    checked: bool = False
    adapters: Mapping[str, Path] = field(default_factory=dict)
    rank: int = 0
    direction: str | None = None
    domain: str = "math"
    withhold: Withhold = "announced"
    tags: tuple[str, str] = REASONING_TAGS
    sampling: Sampling = field(default_factory=Sampling)
    max_prompt: int = 4096
    chat: Mapping[str, Any] = field(default_factory=dict)  # arguments of the chat template
    template: str | None = None
    verifier: Mapping[str, Any] = field(default_factory=dict)
    reward_timeout: float | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.adapters, BASE)

    @property
    def timeout(self) -> float:
        return self.reward_timeout or DOMAINS[self.domain].reward_timeout


def find_players(target: str, base: str | None = None, **changes: Any) -> Players:
    """`base`: the path of the base model, if it has moved. `changes` replace fields; a `None` changes nothing."""
    try:
        players = _find(target, Path(target).expanduser(), base)
    except CheckpointError as error:
        raise InferenceError(str(error)) from None
    return replace(players, target=target, **{name: value for name, value in changes.items() if value is not None})


def _find(target: str, folder: Path, base: str | None) -> Players:
    if (folder / "config.json").is_file():
        return Players(target, str(folder.absolute()), hash_of_base(folder), checked=True)
    if not folder.is_dir():
        if target.startswith(("/", ".", "~")) or target.count("/") > 1:
            raise InferenceError(f"{target} is not a folder: give a run, a checkpoint, an export, or a base model")
        try:
            return Players(target, target, hash_of_base(base_folder(target)), checked=True)
        except (OSError, ValueError):  # not downloaded yet: vLLM will
            return Players(target, target)
    if pair := TrainedPair.read(folder):
        return _from_pair(pair, folder, base)
    checkpoint = find_checkpoint(folder)
    manifest = Manifest.read(checkpoint)
    players = _from_pair(TrainedPair.from_manifest(manifest), checkpoint / "actor", base)
    return replace(players, reward_timeout=manifest.game.get("reward_timeout"))


def _from_pair(pair: TrainedPair, folder: Path, base: str | None) -> Players:
    trained = sorted({drafter for drafter, _ in directions(pair.players)})  # with one player, B was never trained
    folders = {name: (folder / name).absolute() for name in trained}
    adapters = {name: path for name, path in folders.items() if (path / "adapter_config.json").is_file()}
    if not adapters:
        raise InferenceError(f"{folder} has no adapter {' or '.join(trained)}: use another checkpoint")
    if changed := [name for name, text in prompts().items() if pair.prompts.get(name, text) != text]:
        raise InferenceError(
            f"{folder} was trained with another text of prompts.{changed[0]} than this version has: use the version "
            "that trained it, or put that text back into agon_verl/game/prompts.py"
        )
    base_model, _ = find_base(pair.base.path, pair.base.hash, base, needed=Path(pair.base.path).is_absolute())
    values = pair.generation
    sampling = {name: values[name] for name in ("temperature", "top_p", "top_k") if values.get(name) is not None}
    if not values.get("do_sample", True):
        sampling["temperature"] = 0.0
    if "max_response_length" in values:
        sampling["max_tokens"] = values["max_response_length"]
    return Players(
        target=str(folder),
        base=base_model.path,
        base_hash=base_model.hash,
        checked=base_model.checked,
        adapters=adapters,
        rank=max(int(json.loads((path / "adapter_config.json").read_text())["r"]) for path in adapters.values()),
        direction=pair.cascade.direction,
        domain=pair.domain,
        withhold=pair.withhold,
        tags=pair.reasoning_tags,
        sampling=Sampling(**sampling),
        max_prompt=values.get("max_prompt_length", Players.max_prompt),
        chat=values.get("apply_chat_template_kwargs") or {},
        template=values.get("custom_chat_template"),
        verifier=pair.verifier,
    )


def read_mode(mode: str, names: tuple[str, ...]) -> tuple[str | None, str]:
    """The drafter, if there is one, and the player who answers: "A_to_B" is (A, B), "A" is (None, A)."""
    drafter, cascade, player = mode.rpartition("_to_")
    if player not in names or (cascade and drafter not in names):
        examples = ", ".join([*names, *(d for d in DIRECTIONS if set(ADAPTERS) <= set(names))])
        raise InferenceError(f"mode {mode!r} is unknown: use a player, or two with _to_ between them ({examples})")
    return drafter or None, player


def default_mode(players: Players) -> str:
    """The pair's direction; the base, or the only adapter, if there is no pair."""
    if len(players.adapters) < 2:
        return next(iter(players.adapters), BASE)
    if players.direction is None:
        raise InferenceError(f"{players.target} does not record who drafts: choose the mode, A_to_B or B_to_A")
    return players.direction
