"""`pair.json` of an exported pair: which base it belongs to, and all that is needed to play its cascade."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from agon_verl.errors import CheckpointError
from agon_verl.pair.base import Base
from agon_verl.pair.checkpoint import MANIFEST
from agon_verl.pair.direction import Cascade

FORMAT = 1
_REQUIRED = ("base", "prompts", "reasoning_tags", "generation", "domain")
VLLM_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # the values that --max-lora-rank accepts


@dataclass(frozen=True, kw_only=True)
class ExportedPair:
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
    players: str = "pair"  # "one": B was never trained

    def write(self, folder: Path) -> None:
        (folder / MANIFEST).write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, folder: Path) -> "ExportedPair | None":
        """None if `folder` is not an export. A checkpoint's `pair.json` has no `cascade`."""
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


def vllm_rank(rank: int) -> int:
    """The smallest --max-lora-rank with room for `rank`."""
    if rank > VLLM_RANKS[-1]:
        raise CheckpointError(f"the adapters have rank {rank}, and vLLM serves no rank above {VLLM_RANKS[-1]}")
    return next(allowed for allowed in VLLM_RANKS if allowed >= rank)
