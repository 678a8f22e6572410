"""A trained pair: its base, and all that is needed to play its cascade. An export stores it as `pair.json`."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from agon_verl.config import AgonConfig
from agon_verl.errors import CheckpointError
from agon_verl.game.domains import DOMAINS
from agon_verl.game.roles import Players
from agon_verl.game.withhold import Withhold
from agon_verl.pair.base import Base
from agon_verl.pair.checkpoint import MANIFEST, Manifest
from agon_verl.pair.direction import Cascade, choose, finite

FORMAT = 1
VLLM_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # the values that --max-lora-rank accepts

_REQUIRED = ("base", "prompts", "reasoning_tags", "generation", "domain")


@dataclass(frozen=True, kw_only=True)
class TrainedPair:
    """`how` explains in words how the other fields make a cascade. Fields with a default may be missing in a file."""

    format: int = FORMAT
    step: int = 0
    base: Base
    lora: Mapping[str, Any] = field(default_factory=dict)
    cascade: Cascade
    how: Sequence[str] = ()
    prompts: Mapping[str, str]
    reasoning_tags: tuple[str, str]
    generation: Mapping[str, Any]
    domain: str
    rewards: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    verifier: Mapping[str, Any] = field(default_factory=dict)
    players: Players = "pair"  # "one": B was never trained
    withhold: Withhold = "announced"

    @classmethod
    def from_manifest(cls, manifest: Manifest, direction: str | None = None) -> "TrainedPair":
        """The pair of a checkpoint; its base is not checked. `direction` overrides the one with the better accuracy."""
        game = AgonConfig.read(OmegaConf.create({"agon": dict(manifest.game)}))
        weights = {"format_weight": game.format_weight, "tiebreak_weight": game.tiebreak_weight}
        return cls(
            step=manifest.step,
            base=Base(manifest.base, manifest.base_hash, checked=False),
            lora=manifest.lora,
            cascade=choose(manifest.metrics, direction),
            how=_instructions(game),
            prompts=manifest.prompts,
            generation=manifest.generation,
            reasoning_tags=game.reasoning_tags,
            domain=game.domain,
            rewards={"stack": game.reward, **weights},
            versions=manifest.versions,
            metrics=finite(manifest.metrics),
            verifier=manifest.verifier,
            players=game.players,
            withhold=game.withhold,
        )

    def write(self, folder: Path) -> None:
        (folder / MANIFEST).write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, folder: Path) -> "TrainedPair | None":
        """The pair of an export; None if `folder` is something else. A checkpoint's `pair.json` has no `cascade`."""
        path = folder / MANIFEST
        try:
            values = json.loads(path.read_text())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise CheckpointError(f"{path} cannot be read: export the pair again ({error})") from None
        if "cascade" not in values:
            return None
        if values.get("format", FORMAT) != FORMAT:
            raise CheckpointError(f"{path} has format {values['format']}, this version reads {FORMAT}")
        if missing := [name for name in _REQUIRED if name not in values]:
            raise CheckpointError(f"{path} has no {', '.join(missing)}: export the pair again")
        base, cascade, tags = Base(**values["base"]), Cascade(**values["cascade"]), tuple(values["reasoning_tags"])
        values |= {"base": base, "cascade": cascade, "reasoning_tags": tags}
        return cls(**{each.name: values[each.name] for each in dataclasses.fields(cls) if each.name in values})


def _instructions(game: AgonConfig) -> list[str]:
    opening, closing = game.reasoning_tags
    domain = DOMAINS[game.domain]
    withheld = domain.withheld_parts + (f"; and {domain.withheld_values}" if game.withhold == "value" else "")
    return [
        "The drafter answers the problem's own messages, the last of which is the user's.",
        f"The summary of its draft is the text after the last {closing}, up to the next {opening} if there is one. "
        f"Without any {closing} it is the complete draft, or nothing if the reasoning was opened, by the draft or by "
        "the chat template at the end of the prompt.",
        f"In the summary prompts.withheld replaces the final answer: {withheld}. "
        "agon_verl/game/domains has the exact rule, in plain Python.",
        "The challenger answers the same messages, with prompts.challenge in place of the last one: {problem} is its "
        "text and {attempt} the summary, stripped, with <attempt> and </attempt>, in any case and spacing, written as "
        "< attempt> and </ attempt>, or prompts.no_summary if the summary is blank. In the summary a space follows the "
        "first character of every control token of the tokenizer, as in < |im_end|>, so that a draft cannot end its "
        "reader's turn; agon_verl/game/control_tokens.py has the exact rule.",
        "All messages go through the base's chat template, or generation.custom_chat_template, with "
        "generation.apply_chat_template_kwargs. Keep the reasoning tags when decoding: they may be special tokens.",
    ]


def vllm_rank(rank: int) -> int:
    """The smallest --max-lora-rank with room for `rank`."""
    if rank > VLLM_RANKS[-1]:
        raise CheckpointError(f"the adapters have rank {rank}, and vLLM serves no rank above {VLLM_RANKS[-1]}")
    return next(allowed for allowed in VLLM_RANKS if allowed >= rank)
