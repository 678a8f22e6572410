"""One update of one adapter on its streams, by verl's own methods: balance, log-probs, advantages, actor update.

Departures from stock verl:

- With several mini-batches per step (`ppo_mini_batch_size` below `train_batch_size`) the live rows of a stream are
  spread over as many mini-batches as they fill. The paper's setting is one.
- With one update per batch there is no pass for the old log-probs: they are the update's own (`actor/on_policy.py`).
  verl's importance weights and its KL in the reward need them earlier, and so get the pass.
- A stream without a live group takes no optimizer step. Its adapter's learning rate still advances, so that the
  schedule belongs to the step and both adapters reach its end together.
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from transfer_queue import KVBatchMeta
from verl.utils.debug import marked_timer
from verl.utils.metric import reduce_metrics
from verl.utils.py_functional import rename_dict

from agon_verl.actor.minibatches import interleave_minibatches, required_multiple
from agon_verl.actor.on_policy import ENTROPY_IN_LOSS, ONLY_UPDATE
from agon_verl.game.advantages import group_advantages
from agon_verl.rollout.row_key import RowKey
from agon_verl.trainer.batches import concat, no_advantage, select, update_input
from agon_verl.trainer.metrics import update_metric_name
from agon_verl.trainer.validation import ValidatingTrainer

CORRECTIONS = ("rollout_is", "rollout_rs", "bypass_mode")  # of verl's `rollout_correction`; the rest are thresholds


@dataclass(frozen=True, slots=True)
class Stream:
    """One adapter's rollouts of this step: the rows to learn from, and those of groups without variance."""

    name: str
    adapter: str
    live: KVBatchMeta
    dead: KVBatchMeta


@dataclass(slots=True)
class UpdatePlan:
    """What travels from one of verl's methods to the next through `self`, because verl fixes their arguments.

    `_train_adapter` sets `mini_batches`. It calls `_balance_batch`, which sets `rows` and calls verl's; that one calls
    `_get_required_batch_multiple`, the only place where verl passes the number of ranks. `_update_actor` reads
    `mini_batches` at the end.
    """

    mini_batches: int
    rows: int = 0
    ranks: int = 1


class UpdatingTrainer(ValidatingTrainer):
    _plan: UpdatePlan
    timing_raw: dict

    def _train_adapter(self, streams: Sequence[Stream], metrics: dict) -> KVBatchMeta:
        """Compute advantages within each group of each stream, then update the adapter once. Returns all rows."""
        adapter, dead = streams[0].adapter, concat([stream.dead for stream in streams])
        no_advantage(dead)
        live = [stream for stream in streams if stream.live.keys]
        if not live:
            metrics[f"{adapter}/actor/lr"] = self.actor_rollout_wg.skip_update(adapter)[0]
            return dead
        own: dict[str, Any] = {}
        problems = {RowKey.parse(key).uid for stream in live for key in stream.live.keys}
        self._plan = UpdatePlan(math.ceil(len(problems) / self.config.actor_rollout_ref.actor.ppo_mini_batch_size))
        ready = [self._with_advantages(stream, own) for stream in live]  # line 8
        batch = ready[0]
        if len(ready) > 1:
            batch = self._balance_batch(concat(ready), metrics=own)
            no_advantage(select(batch, [row for row, tag in enumerate(batch.tags) if tag.get("is_padding")]))
        with marked_timer("update_actor", self.timing_raw), self._settings_of(live[-1]):
            batch = self._update_actor(batch, metrics=own)  # line 10
        metrics.update({f"{adapter}/{name}": value for name, value in own.items()})
        return concat([batch, dead])

    def _with_advantages(self, stream: Stream, metrics: dict) -> KVBatchMeta:
        with self._settings_of(stream):
            batch = self._balance_batch(stream.live, metrics=metrics)
            if not self._is_only_update:
                with marked_timer("old_log_prob", self.timing_raw):
                    batch = self._compute_old_log_prob(batch, metrics=metrics)
            if self.use_reference_policy:
                with marked_timer("ref", self.timing_raw):
                    batch = self._compute_ref_log_prob(batch, metrics=metrics)
            with marked_timer("adv", self.timing_raw):
                return self._compute_advantage(batch, metrics=metrics)

    @property
    def _is_only_update(self) -> bool:
        """Whether the policy is still the one that generated the rows whenever the loss is computed."""
        algorithm, actor = self.config.algorithm, self.config.actor_rollout_ref.actor
        correction = algorithm.get("rollout_correction") or {}
        needs_old = algorithm.use_kl_in_reward or any(correction.get(key) for key in CORRECTIONS)
        return self._plan.mini_batches == actor.ppo_epochs == 1 and not needs_old

    @contextmanager
    def _settings_of(self, stream: Stream) -> Iterator[None]:
        """The config as this stream has it: verl's methods read these fields, which differ between the streams."""
        algorithm, rollout = self.config.algorithm, self.config.actor_rollout_ref.rollout
        before = algorithm.adv_estimator, algorithm.get("rollout_correction"), rollout.temperature
        algorithm.adv_estimator = f"agon_{stream.name}"
        if self._is_only_update:
            algorithm.rollout_correction = None  # it would read the old log-probs, for nothing but metrics
        if stream.name == "challenge":
            rollout.temperature = self.game.challenge_sampling.get("temperature", rollout.temperature)
        try:
            yield
        finally:
            algorithm.adv_estimator, algorithm.rollout_correction, rollout.temperature = before

    def _get_required_batch_multiple(self, dp_size: int) -> int:
        """Pad to full mini-batches of the live rows, not of all the rows that were sampled."""
        self._plan.ranks = dp_size
        actor, rollout = self.config.actor_rollout_ref.actor, self.config.actor_rollout_ref.rollout
        return required_multiple(
            self._plan.rows,
            dp_size,
            self._plan.mini_batches,
            dynamic=actor.use_dynamic_bsz,
            micro_batches=(actor.ppo_micro_batch_size_per_gpu, rollout.log_prob_micro_batch_size_per_gpu),
            single_pass=self._is_only_update and not self.use_reference_policy,
        )

    def _balance_batch(self, batch: KVBatchMeta, metrics: dict, **kwargs: Any) -> KVBatchMeta:
        """Sort rows by length, because a micro-batch is padded to its longest row; several mini-batches stay mixed."""
        self._plan.rows = len(batch.keys)
        if self._plan.mini_batches == 1:
            batch = select(batch, sorted(range(len(batch.keys)), key=lambda row: batch.tags[row]["seq_len"]))
            return super()._balance_batch(batch, metrics, **kwargs)
        batch = super()._balance_batch(batch, metrics, **kwargs)
        batch.reorder(interleave_minibatches(len(batch.keys), self._plan.ranks, self._plan.mini_batches))
        return batch

    def _update_actor(self, batch: KVBatchMeta, metrics: dict, more: Mapping[str, Any] = {}) -> KVBatchMeta:
        """One pass over live rows. The loss counts the rows that carry loss (`MultiAdapterEngine.train_batch`)."""
        actor = self.config.actor_rollout_ref.actor
        in_loss, only = actor.entropy_coeff != 0.0, self._is_only_update
        settings = {
            ONLY_UPDATE: only,
            ENTROPY_IN_LOSS: in_loss,
            "calculate_entropy": actor.calculate_entropy or in_loss or only,
            "mini_batch_size": len(batch) // self._plan.mini_batches,
            "epochs": actor.ppo_epochs,
            "seed": actor.data_loader_seed,
            "dataloader_kwargs": {"shuffle": actor.shuffle},
            "temperature": self.config.actor_rollout_ref.rollout.temperature,
            **more,
        }
        begin = time.time()
        output = self.actor_rollout_wg.update_actor(update_input(batch, settings))
        values = reduce_metrics(rename_dict(output["metrics"], "actor/"))
        self.times.updates.update(dict.fromkeys(batch.keys, (begin, time.time())))
        if only:
            values["actor/entropy"] = values["actor/entropy_loss"]
        metrics.update({update_metric_name(name): value for name, value in values.items()})
        return batch


def group_relative(
    token_level_rewards: torch.Tensor, response_mask: torch.Tensor, index: Sequence[Any], config: Any, **_: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Group-relative advantages of one stream in the form that verl's registry expects: (rows, tokens) twice."""
    normalize = config.get("norm_adv_by_std_in_grpo", True) if config is not None else True
    rewards = token_level_rewards.sum(-1)
    advantages = group_advantages(rewards.tolist(), list(index), normalize=normalize)
    per_token = rewards.new_tensor(advantages).unsqueeze(-1) * response_mask
    return per_token, per_token
