"""The names and values of a step's and a validation's metrics. Pure: no verl."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agon_verl.config import AgonConfig
from agon_verl.game.roles import Roles
from agon_verl.health.health import cascade_health, health_metrics
from agon_verl.health.pair_statistics import Pair, drop_none, group_metrics, pair_metrics
from agon_verl.rollout.wire import PROBLEM
from agon_verl.trainer.streams import STREAMS


def step_metrics(pairs: Sequence[Pair], who: Roles, game: AgonConfig) -> dict[str, float]:
    """All that the pairs of a step say; each stream also under the adapter that generated it (`A/draft/acc`).

    Where the two completions do not know of each other, there are no metrics of the exchange between them.
    """
    metrics = pair_metrics(pairs, game.live_groups)
    if game.reads == "nothing":
        metrics = {name: value for name, value in metrics.items() if not name.startswith("pair/")}
        groups = drop_none(group_metrics(pairs, game.live_groups, together=game.one_group))
        metrics.update({f"health/{name}": value for name, value in groups.items()})
    else:
        metrics.update(health_metrics(pairs, game.live_groups))
    for stream, adapter in zip(STREAMS[:1] if game.one_group else STREAMS, who, strict=False):
        own = {name: value for name, value in metrics.items() if name.startswith(f"{stream}/")}
        metrics.update({f"{adapter}/{name}": value for name, value in own.items()})
    metrics["ledger/problems"] = len({pair.group for pair in pairs})
    return metrics


def update_metric_name(name: str) -> str:
    """verl prefixes every metric of an update with `actor/`; the gap between rollout and training keeps its groups."""
    short = name.removeprefix("actor/")
    return short if short.startswith(("training/", "rollout_corr/")) else name


def direction_name(who: Roles) -> str:
    return f"{who.drafter}_to_{who.challenger}"


@dataclass(frozen=True, slots=True)
class ValidationParts:
    """One validation pass, taken apart: what verl averages under each label, and the drafter's accuracy by problem."""

    labelled: Mapping[str, dict[str, list[Any]]]
    health: Mapping[str, float]
    drafter_accuracy: Mapping[str, float]


def validation_parts(who: Roles, infos: Mapping[str, list[Any]]) -> ValidationParts:
    """A pass plays the cascade; its first stage is the drafter alone on the plain prompt.

    `infos`: what the reward function returned for the last output of each session, a list per key. Labels make names
    such as `val-core/<data source>/A_to_B/acc/mean@1` and `val-core/<data source>/A_alone/acc/mean@1`.
    """
    cascade = dict(infos)
    draft_acc, problems = cascade.pop("draft_acc"), cascade.pop(PROBLEM)
    direction = direction_name(who)
    exchange = cascade_health(draft_acc, cascade["acc"])
    return ValidationParts(
        labelled={direction: cascade, f"{who.drafter}_alone": {"reward": draft_acc, "acc": draft_acc}},
        health={f"health/val/{direction}/{name}": value for name, value in exchange.items()},
        drafter_accuracy=_mean_by(problems, draft_acc),
    )


def _mean_by(names: Sequence[str], values: Sequence[float]) -> dict[str, float]:
    by_name: dict[str, list[float]] = {}
    for name, value in zip(names, values, strict=True):
        by_name.setdefault(name, []).append(value)
    return {name: sum(values) / len(values) for name, values in by_name.items()}
