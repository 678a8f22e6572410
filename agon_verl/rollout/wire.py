"""What crosses from one of a run's processes to another: names, and the record of a pair. Imports no verl, no vLLM."""

from collections.abc import Sequence
from typing import Any

from agon_verl.config import AgonConfig
from agon_verl.game.rewards import Outcome, challenge_reward
from agon_verl.game.roles import ADAPTERS
from agon_verl.health.pair_statistics import Pair

MODEL_TYPE = "agon_pair"
ADAPTER = "adapter"  # the field of a row that names the adapter which generated it
SYNC_SEPARATOR = ":"  # "A:base_model.model…": all adapters travel to the rollout in one transfer
PROBLEM = "problem"  # names a problem among what the reward function says of a challenge
BASE = "base"  # generates without an adapter


def past_of(adapter: str) -> str:
    """The name of an adapter as it was some steps ago (`agon.opponent`)."""
    return f"{adapter}_past"


SERVED = (*ADAPTERS, *map(past_of, ADAPTERS))


def lora_id(adapter: str) -> int:
    """The adapter's slot in vLLM, where 0 means none."""
    return SERVED.index(adapter) + 1


def pair_of(extra_fields: dict[str, Any]) -> Pair:
    """The pair that a challenge's row carries as a plain dict."""
    fields = extra_fields["pair"]
    return Pair(**{**fields, "draft": Outcome(**fields["draft"]), "challenge": Outcome(**fields["challenge"])})


def share_rival(extras: Sequence[dict[str, Any]], game: AgonConfig) -> None:
    """Measure all challenges of a problem against one of its drafts, the first in this order (`agon.rival=shared`)."""
    rivals: dict[str, Outcome] = {}
    for extra in extras:
        pair = pair_of(extra)
        rival = rivals.setdefault(pair.group, pair.draft)
        extra["pair"]["challenge_reward"] = challenge_reward(
            game.reward, pair.challenge, rival, format_weight=game.format_weight, tiebreak_weight=game.tiebreak_weight
        )
