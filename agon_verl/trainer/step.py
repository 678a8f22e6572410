"""`trainer.v1.trainer_mode=agon`: the step of the paper's Algorithm 1, on verl's synchronous trainer.

The classes below this one each do one job: `streamed.py` (updates that begin while vLLM samples), `update.py` (one
adapter's update), `validation.py`, `guarded.py` (failures, alarms), `resumable.py` (checkpoints), `multi_adapter.py`
(which worker and server verl starts).

    1      input: problems, adapters A and B, N = `rollout.n`, the step, the reward
    2      who drafts, who challenges            `game/roles.py`
    3-7    draft, reward, challenge, reward      `rollout/loop.py`, while vLLM generates; `game/rewards.py`
    8      advantages per stream and group       `game/advantages.py`; live and dead groups: `streams.py`
    10     one GRPO update per adapter           `update.py`
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import transfer_queue as tq
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.core_algos import register_adv_est
from verl.utils.debug import marked_timer

from agon_verl.game.rewards import challenge_reward
from agon_verl.game.roles import Roles, roles
from agon_verl.rollout.row_key import challenge_keys
from agon_verl.rollout.wire import pair_of
from agon_verl.trainer.batches import concat, put_rewards, select
from agon_verl.trainer.metrics import step_metrics
from agon_verl.trainer.records import overlap
from agon_verl.trainer.streamed import StreamingTrainer
from agon_verl.trainer.streams import STREAMS, share_rival, split_streams
from agon_verl.trainer.update import Stream, group_relative

for stream in STREAMS:  # one name per stream: the same formula, on different rewards
    register_adv_est(f"agon_{stream}")(group_relative)


class AgonTrainer(StreamingTrainer):
    def on_step_begin(self) -> None:
        super().on_step_begin()
        self.agent_loop_manager.roles = self._roles()
        self.agent_loop_manager.streamed = self._streams

    def _step_once(self, metrics: dict, timing_raw: dict, sample_batch_size: int) -> KVBatchMeta:
        """Algorithm 1; the comments are its line numbers."""
        self.timing_raw = timing_raw
        who = self._roles()  # 2
        with marked_timer("gen", timing_raw):
            batch = self._sample_pairs(who, metrics, sample_batch_size)  # 3-7, and early parts of 8-10
        streams = self._split(batch, who, metrics)
        by_adapter = [[s for s in streams if s.adapter == adapter] for adapter in dict.fromkeys(who)]
        rows = concat([self._train_adapter(own, metrics) for own in by_adapter])  # 8-10
        self._check_health(metrics)
        if self.game.opponent.snapshots and self.global_steps % self.game.opponent.every == 0:
            self.actor_rollout_wg.take_snapshot()
        return rows

    def _roles(self) -> Roles:
        return roles(self.global_steps, self.game.rotation, self.game.players)

    def _sample_pairs(self, who: Roles, metrics: dict, sample_batch_size: int) -> KVBatchMeta:
        """Wait for the pairs of this step. The agent loop plays them: draft, withhold, challenge, reward."""
        self.on_sample_begin()
        self._train_while_sampling(who, sample_batch_size)
        with self._failures_limited(sample_batch_size * self.config.actor_rollout_ref.rollout.n, metrics):
            batch, off_policy_metrics = self.replay_buffer.sample(
                global_steps=self.global_steps, partition_id="train", batch_size=sample_batch_size
            )
        metrics.update(off_policy_metrics)
        self.on_sample_end()
        return batch

    def _split(self, batch: KVBatchMeta, who: Roles, metrics: dict) -> Sequence[Stream]:
        """Split the rows by stream and into live and dead groups; log what the pairs did."""
        keys = challenge_keys(batch.keys)
        data = tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=["extra_fields"])
        extras: list[dict[str, Any]] = list(data["extra_fields"])  # what the agent loop left on each challenge
        game = self.game
        if game.rival == "shared":
            weights: dict[str, Any] = {"format_weight": game.format_weight, "tiebreak_weight": game.tiebreak_weight}
            share_rival(extras, partial(challenge_reward, game.reward, **weights))
            put_rewards(batch.partition_id, keys, extras)
        pairs = [pair_of(extra) for extra in extras]
        metrics.update(step_metrics(pairs, who, game))
        metrics["pair/overlap"], metrics["ledger/rollouts"] = overlap(extras), len(batch.keys)
        rows = split_streams(batch.keys, pairs, who, frozen=game.frozen, one_group=game.one_group, by=game.live_groups)
        return [Stream(s.name, s.adapter, select(batch, s.live), select(batch, s.dead)) for s in rows]
