"""What crosses from one of a run's processes to another: names, and the record of a pair. Imports no verl, no vLLM."""

from typing import Any

from agon_verl.game.rewards import Outcome
from agon_verl.game.roles import ADAPTERS
from agon_verl.game.statistics import Pair

MODEL_TYPE = "agon_pair"
ADAPTER = "adapter"  # the field of a row that names the adapter which generated it
SYNC_SEPARATOR = ":"  # "A:base_model.model…": both adapters travel to the rollout in one transfer


def lora_id(adapter: str) -> int:
    """The adapter's slot in vLLM, where 0 means none."""
    return ADAPTERS.index(adapter) + 1


def pair_of(extra_fields: dict[str, Any]) -> Pair:
    """The pair that a challenge's row carries as a plain dict."""
    fields = extra_fields["pair"]
    return Pair(**{**fields, "draft": Outcome(**fields["draft"]), "challenge": Outcome(**fields["challenge"])})
