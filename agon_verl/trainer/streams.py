"""Which rows of a step train which adapter. Pure: rows are positions in the batch, and verl is not imported.

A stream is one role's rollouts. Groups whose rewards are all equal, and with `agon.live_groups=correctness` also those
whose verdicts are, are dead: they leave before any forward pass and take no part in the loss, in its normalisation or
in the KL term (the paper drops them; it does not say where).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from agon_verl.game.advantages import LiveBy
from agon_verl.game.rewards import Outcome
from agon_verl.game.roles import Roles
from agon_verl.health.pair_statistics import Pair, Row, challenges, drafts, training_groups
from agon_verl.rollout.row_key import RowKey
from agon_verl.rollout.wire import pair_of

STREAMS = ("draft", "challenge")  # by the last part of a row's key


@dataclass(frozen=True, slots=True)
class StreamRows:
    """One stream of a step: the adapter that generated it, and its rows in live and in dead groups."""

    name: str
    adapter: str
    live: tuple[int, ...]
    dead: tuple[int, ...]


def split_streams(
    keys: Sequence[str],
    pairs: Sequence[Pair],
    who: Roles,
    *,
    frozen: Iterable[str] = (),
    one_group: bool = False,
    by: LiveBy = "reward",
) -> list[StreamRows]:
    """The rows of each stream. Rows of a frozen adapter, and drafts by a guest, are dead whatever their rewards.

    With `one_group`, as in plain GRPO, the drafts and challenges of a problem are one group and there is one stream.
    """
    rows = [RowKey.parse(key) for key in keys]
    played = (drafts(pairs), challenges(pairs))
    if one_group:
        return [_stream(STREAMS[0], who.drafter, list(enumerate(rows)), sum(played, []), frozen, by)]
    return [
        _stream(name, adapter, [(i, row) for i, row in enumerate(rows) if row.stream == index], own, frozen, by)
        for index, (name, adapter, own) in enumerate(zip(STREAMS, who, played, strict=True))
    ]


def _stream(
    name: str,
    adapter: str,
    rows: Sequence[tuple[int, RowKey]],
    played: Sequence[Row],
    frozen: Iterable[str],
    by: LiveBy,
) -> StreamRows:
    alive = set() if adapter in frozen else training_groups(played, by)
    live = tuple(i for i, row in rows if row.uid in alive)
    dead = tuple(i for i, row in rows if row.uid not in alive)
    return StreamRows(name, adapter, live, dead)


def share_rival(extras: Sequence[dict[str, Any]], reward: Callable[[Outcome, Outcome], float]) -> None:
    """Reward all challenges of a problem against one of its drafts, the first in this order (`agon.rival=shared`)."""
    rivals: dict[str, Outcome] = {}
    for extra in extras:
        pair = pair_of(extra)
        rival = rivals.setdefault(pair.group, pair.draft)
        extra["pair"]["challenge_reward"] = reward(pair.challenge, rival)
