"""Updates in parts: a group is trained on as soon as its rewards are there, while vLLM samples the others.

A step waits for its longest pair, and the GPU has little to do towards the end. The optimizer steps only after all
groups, so the policy that samples does not change: the gradient is the same sum in another order
(`MultiAdapterEngine._add_part`). The drafts of a problem are a group once the last of them has ended, its challenges
once its last pair has.

`agon.streamed` switches it on. It needs vLLM and the trainer in the GPU's memory together, one update per step, and
rewards that do not depend on other groups; where `obstacles` finds something else, updates wait for all pairs.
"""

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import transfer_queue as tq
from omegaconf import DictConfig
from transfer_queue import KVBatchMeta
from verl.utils.debug import marked_timer

from agon_verl.actor.engine import PART
from agon_verl.config import AgonConfig
from agon_verl.game.advantages import live_groups
from agon_verl.game.roles import Roles
from agon_verl.rollout.buffer import Progress
from agon_verl.rollout.row_key import RowKey
from agon_verl.trainer.batches import concat, no_advantage, select
from agon_verl.trainer.streams import STREAMS
from agon_verl.trainer.update import CORRECTIONS, Stream, UpdatePlan, UpdatingTrainer

logger = logging.getLogger(__name__)


def obstacles(config: DictConfig, game: AgonConfig, reference: bool) -> list[str]:
    """Settings under which an update cannot come in parts."""
    actor, algorithm = config.actor_rollout_ref.actor, config.algorithm
    correction = algorithm.get("rollout_correction") or {}
    present = {
        "actor_rollout_ref.rollout.free_cache_engine=true": config.actor_rollout_ref.rollout.free_cache_engine,
        "actor_rollout_ref.actor.fsdp_config.param_offload=true": actor.fsdp_config.param_offload,
        "actor_rollout_ref.actor.fsdp_config.optimizer_offload=true": actor.fsdp_config.optimizer_offload,
        f"actor_rollout_ref.actor.fsdp_config.dtype={actor.fsdp_config.dtype}": actor.fsdp_config.dtype == "float16",
        f"actor_rollout_ref.actor.ppo_epochs={actor.ppo_epochs}": actor.ppo_epochs != 1,
        f"actor_rollout_ref.actor.ppo_mini_batch_size={actor.ppo_mini_batch_size}": (
            actor.ppo_mini_batch_size < config.data.train_batch_size
        ),
        f"actor_rollout_ref.actor.loss_agg_mode={actor.loss_agg_mode}": actor.loss_agg_mode != "token-mean",
        "a KL term": reference or algorithm.use_kl_in_reward,
        "algorithm.rollout_correction": any(correction.get(key) for key in CORRECTIONS),
        "algorithm.filter_groups": bool((algorithm.get("filter_groups") or {}).get("enable")),
        "agon.rival=shared": game.rival == "shared",
        "agon.players=one with agon.reads=nothing": game.one_group,
        f"agon.opponent.share={game.opponent.share}": game.opponent.share > 0,
    }
    return [name for name, is_set in present.items() if is_set]


@dataclass
class Begun:
    """The part of an adapter's update that is done: its rows, padding included, and the metrics of each part."""

    rows: list[KVBatchMeta] = field(default_factory=list)
    metrics: list[dict[str, Any]] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)  # with loss, of each part


class StreamingTrainer(UpdatingTrainer):
    """The only change is when gradients are computed."""

    _begun: dict[str, Begun]  # by adapter, in this step

    def on_init_end(self) -> None:
        if self.game.streamed and (names := self._obstacles):
            logger.info("agon-verl: updates wait for all pairs of a step, because of %s", ", ".join(names))
        super().on_init_end()

    @property
    def _obstacles(self) -> list[str]:
        return obstacles(self.config, self.game, self.use_reference_policy)

    @property
    def _streams(self) -> bool:
        return self.game.streamed and not self._obstacles

    def _train_while_sampling(self, who: Roles, problems: int) -> None:
        """Returns when the pairs of all `problems` have ended."""
        self._begun = {}
        if not self._streams:
            return
        self._plan = UpdatePlan(mini_batches=1)
        timing_of_step, self.timing_raw = self.timing_raw, {}  # what is done now is a part of the time for sampling
        last_line = time.time()
        seen: dict[str, set[str]] = {name: set() for name in STREAMS}
        waiting: dict[str, list[str]] = {name: [] for name in STREAMS}
        while (progress := self.replay_buffer.progress("train")).ended < problems:
            for index, (name, adapter) in enumerate(zip(STREAMS, who, strict=True)):
                new = progress.complete(index, self.config.actor_rollout_ref.rollout.n) - seen[name]
                seen[name] |= new
                if adapter not in self.game.frozen:
                    waiting[name] += self._live(progress, new, index)
                no_more = bool(waiting[name]) and len(seen[name]) == problems  # drafts end while challenges go on
                if no_more or self._fills_a_micro_batch(progress, waiting[name]):
                    self._train_part(Stream(name, adapter, progress.batch(waiting[name]), progress.batch([])))
                    waiting[name] = []
            last_line = self.replay_buffer.wait(last_line)
        self.timing_raw, early = timing_of_step, self.timing_raw
        self.timing_raw["early_update"] = sum(early.values())

    def _live(self, progress: Progress, groups: Iterable[str], stream: int) -> list[str]:
        """The rows of those groups that train (`agon.live_groups`)."""
        rows = [key for group in sorted(groups) for key in progress.rows_of(group, stream)]
        if not rows:
            return []
        by_verdicts = self.game.live_groups == "correctness"
        fields = ["rm_scores", *(["extra_fields"] if by_verdicts else [])]
        data = tq.kv_batch_get(keys=rows, partition_id="train", select_fields=fields)
        rewards = [float(score.sum()) for score in data["rm_scores"].unbind()]
        extras = list(data["extra_fields"]) if by_verdicts else []
        verdicts = [float(extra["reward_extra_info"]["acc"]) for extra in extras] if by_verdicts else None
        uids = [RowKey.parse(key).uid for key in rows]
        alive = live_groups(rewards, uids, verdicts)
        return [key for key, uid in zip(rows, uids, strict=True) if uid in alive]

    def _fills_a_micro_batch(self, progress: Progress, rows: Sequence[str]) -> bool:
        """Of all ranks: smaller parts would cost more passes than the plain update makes."""
        actor, trainer = self.config.actor_rollout_ref.actor, self.config.trainer
        ranks = trainer.n_gpus_per_node * trainer.nnodes
        if actor.use_dynamic_bsz:
            return sum(progress.tags[key]["seq_len"] for key in rows) >= ranks * actor.ppo_max_token_len_per_gpu
        return len(rows) >= ranks * actor.ppo_micro_batch_size_per_gpu

    def _train_part(self, stream: Stream) -> None:
        own: dict[str, Any] = {}
        begun = self._begun.setdefault(stream.adapter, Begun())
        batch = self._with_advantages(stream, own)
        with marked_timer("update_actor", self.timing_raw), self._settings_of(stream):
            begun.rows.append(self._update_actor(batch, own, {PART: True}))
        begun.metrics.append(own)
        begun.tokens.append(sum(tag["response_len"] for tag in batch.tags if not tag.get("is_padding")))

    def _train_adapter(self, streams: Sequence[Stream], metrics: dict) -> KVBatchMeta:
        """Finish an update that was begun with its other rows; else make it at once."""
        adapter = streams[0].adapter
        if adapter not in self._begun:
            return super()._train_adapter(streams, metrics)
        begun = self._begun[adapter]
        done = {key for batch in begun.rows for key in batch.keys}
        rest = [_without(stream, done) for stream in streams]
        for stream in rest:
            if stream.live.keys:
                self._train_part(stream)
        with marked_timer("update_actor", self.timing_raw):
            norm, rate = self.actor_rollout_wg.finish_update(adapter)[0]
        own = {**combined(begun.metrics, begun.tokens), "actor/grad_norm": norm, "actor/lr": rate}
        metrics.update({f"{adapter}/{name}": value for name, value in own.items()})
        dead = concat([stream.dead for stream in rest])
        no_advantage(dead)
        return concat([*begun.rows, dead])


def _without(stream: Stream, done: set[str]) -> Stream:
    def rest(batch: KVBatchMeta) -> KVBatchMeta:
        return select(batch, [row for row, key in enumerate(batch.keys) if key not in done])

    return Stream(stream.name, stream.adapter, rest(stream.live), rest(stream.dead))


def combined(parts: Sequence[Mapping[str, float]], tokens: Sequence[int]) -> dict[str, float]:
    """The metrics of an update from those of its parts: largest values, sums of lengths, means over tokens."""
    metrics = {}
    for name in dict.fromkeys(name for part in parts for name in part):
        present = [(part[name], count) for part, count in zip(parts, tokens, strict=True) if name in part]
        values = [value for value, _ in present]
        if name.startswith("global_seqlen"):
            metrics[name] = sum(values)
        elif "max" in name.rsplit("/", 1)[-1]:
            metrics[name] = max(values)
        else:
            metrics[name] = sum(value * count for value, count in present) / sum(count for _, count in present)
    return metrics
