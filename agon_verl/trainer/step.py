"""`trainer.v1.trainer_mode=agon`: verl's synchronous trainer with the step of the paper's Algorithm 1.

Departures from the paper and from stock verl:

- Groups without reward variance leave before any forward pass: they take no part in the loss, in its normalisation or
  in the KL term. A stream without a live group takes no optimizer step; its adapter's learning rate still moves on, so
  that the schedule belongs to the step and both adapters reach its end together.
- With several mini-batches a step (`ppo_mini_batch_size` below `train_batch_size`) the live rows of a stream are spread
  over as many mini-batches as they fill. The paper's setting is one.
- With one update a batch there is no pass for the old log-probs: they are the update's own (`on_policy`). verl's
  importance weights and its KL in the reward need them before, and so get the pass.
"""

import logging
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
import torch
import transfer_queue as tq
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.core_algos import register_adv_est
from verl.trainer.ppo.utils import Role
from verl.trainer.ppo.v1 import register_trainer
from verl.utils.debug import marked_timer
from verl.utils.metric import reduce_metrics
from verl.utils.py_functional import rename_dict
from verl.workers.rollout.replica import RolloutReplicaRegistry

from agon_verl.actor import self_check
from agon_verl.actor.on_policy import ENTROPY_IN_LOSS, ONLY_UPDATE
from agon_verl.actor.worker import AgonWorker
from agon_verl.config import AgonConfig
from agon_verl.errors import AgonError, CheckpointError
from agon_verl.game.advantages import group_advantages, live_groups
from agon_verl.game.prompts import CHALLENGE
from agon_verl.game.roles import ADAPTERS, Roles, directions, roles
from agon_verl.health.alarms import Alarms
from agon_verl.health.health import Trends, cascade_health, health_metrics, validation_health
from agon_verl.health.pair_statistics import Pair, dead_groups, drop_none, pair_metrics
from agon_verl.rollout.tags import TagKeeper
from agon_verl.rollout.watchdog import Watchdog
from agon_verl.rollout.wire import PROBLEM, pair_of, share_rival
from agon_verl.trainer.batches import concat, dealt, even_parts, no_advantage, put_rewards, select, to_train_on
from agon_verl.trainer.preflight import check_settings
from agon_verl.trainer.records import overlap, pair_records, write_jsonl
from agon_verl.trainer.resumable import ResumableTrainer

logger = logging.getLogger(__name__)
STREAMS = ("draft", "challenge")  # by the last part of a row's key
CORRECTIONS = ("rollout_is", "rollout_rs", "bypass_mode")  # of verl's `rollout_correction`; the rest are thresholds


class StoppedByAlarm(AgonError, RuntimeError):
    """Says what was seen and what to try."""


class PairsFailed(AgonError, RuntimeError):
    """More pairs of a step failed than `agon.max_failed` allows, or what makes them is gone."""

    def __init__(self, step: int, reason: str) -> None:
        super().__init__(
            f"step {step}: {reason}. Once the cause is gone, start the same command again: the run goes on from its "
            "last checkpoint"
        )


def group_relative(
    token_level_rewards: torch.Tensor, response_mask: torch.Tensor, index: Sequence[Any], config: Any, **_: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Group-relative advantages of one stream in the form verl's registry asks for: (rows, tokens) twice."""
    normalize = config.get("norm_adv_by_std_in_grpo", True) if config is not None else True
    rewards = token_level_rewards.sum(-1)
    advantages = group_advantages(rewards.tolist(), list(index), normalize=normalize)
    spread = rewards.new_tensor(advantages).unsqueeze(-1) * response_mask
    return spread, spread


# One name a stream: the same formula, on other rewards.
register_adv_est("agon_draft")(group_relative)
register_adv_est("agon_challenge")(group_relative)


@dataclass(frozen=True, slots=True)
class Stream:
    """One adapter's rollouts of this step: the rows to learn from, and those of groups without variance."""

    name: str
    adapter: str
    live: KVBatchMeta
    dead: KVBatchMeta


@register_trainer("agon")
class AgonTrainer(ResumableTrainer):
    def _build_replay_buffer(self) -> Any:
        check_settings(self.config)
        self.game = AgonConfig.read(self.config)
        self.trends, self.alarms = Trends(ADAPTERS), Alarms(self.game.alarms)
        self._stopping: list[str] = []
        self._between_steps = False
        self.trainer_mode = "sync"  # verl compares the mode with this string where it means "on policy"
        return super()._build_replay_buffer()

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()
        self.role_worker_mapping[Role.ActorRollout] = ray.remote(AgonWorker)  # with LoRA, the reference is the actor's
        RolloutReplicaRegistry.register("vllm", _load_replica)  # in this trainer's process alone

    def on_init_end(self) -> None:
        servers = [replica.server_handle for replica in self.llm_server_manager.get_replicas()]
        self.watchdog = Watchdog(servers, self.actor_rollout_wg.workers)
        self.replay_buffer.watch = self.watchdog.check
        self.watchdog.start()
        with self._guarded():
            if self.game.self_check:
                prompt = self.tokenizer.encode(CHALLENGE)
                self_check.check_pair(self.actor_rollout_wg, self.checkpoint_manager, servers, prompt)
            super().on_init_end()

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Says what is gone where the watchdog had to end a wait."""
        try:
            yield
        except ray.exceptions.RayError as error:
            if self.watchdog.reason is None:
                raise
            reason = f"a process that it needs is gone ({self.watchdog.reason})"
            raise PairsFailed(self.global_steps, reason) from error

    def fit(self, agent_loop_manager: Any) -> None:
        self.watchdog.watched.extend(agent_loop_manager.agent_loop_workers)
        with self._guarded():
            super().fit(agent_loop_manager)

    def on_step_begin(self) -> None:
        self._data_before = super().data_state
        self._stop_if_alarmed()
        self.agent_loop_manager.roles = self._roles()

    def _step_once(self, metrics: dict, timing_raw: dict, sample_batch_size: int) -> KVBatchMeta:
        """Algorithm 1, with the line of it that each call is."""
        self.timing_raw = timing_raw
        who = self._roles()  # 2
        with marked_timer("gen", timing_raw):
            batch = self._sample_pairs(metrics, sample_batch_size)  # 3-7, done by the agent loop
        streams = self._streams(batch, who, metrics)
        by_adapter = [[s for s in streams if s.adapter == adapter] for adapter in dict.fromkeys(who)]
        rows = concat([self._train_adapter(own, metrics) for own in by_adapter])  # 8-10
        self._watch_health(metrics)
        if self.game.opponent.snapshots and self.global_steps % self.game.opponent.every == 0:
            self.actor_rollout_wg.take_snapshot()
        return rows

    def _roles(self) -> Roles:
        return roles(self.global_steps, self.game.rotation, self.game.players)

    def _sample_pairs(self, metrics: dict, sample_batch_size: int) -> KVBatchMeta:
        self.on_sample_begin()
        try:
            with self._failures_counted(sample_batch_size * self.config.actor_rollout_ref.rollout.n, metrics):
                batch, off_policy_metrics = self.replay_buffer.sample(
                    global_steps=self.global_steps, partition_id="train", batch_size=sample_batch_size
                )
        except PairsFailed:
            self._rescue()
            raise
        metrics.update(off_policy_metrics)
        self.on_sample_end()
        return batch

    @contextmanager
    def _failures_counted(self, pairs: int, metrics: dict) -> Iterator[None]:
        """Stop if more of these pairs failed than may: a judge or an engine that is down is not a wrong answer."""
        try:
            yield
        except (RuntimeError, ValueError, ray.exceptions.RayError) as error:  # no pair at all, or a process is gone
            raise PairsFailed(self.global_steps, _why(self._reasons() or [str(error)], pairs)) from error
        failures = self.agent_loop_manager.take_failures()
        metrics["pair/failed"], metrics["pair/failed_share"] = len(failures), len(failures) / pairs
        if len(failures) > self.game.max_failed * pairs:
            raise PairsFailed(self.global_steps, _why(failures, pairs))

    def _reasons(self) -> list[str]:
        try:
            return self.agent_loop_manager.take_failures()
        except ray.exceptions.RayError:  # the worker that knew is gone
            return []

    def _streams(self, batch: KVBatchMeta, who: Roles, metrics: dict) -> list[Stream]:
        """Split the rows by stream and by whether their group has anything to teach; log what the pairs did."""
        keys = sorted(key for key in batch.keys if key.endswith("_1"))
        extras = self._pair_records(batch, keys)
        if self.game.rival == "shared":
            share_rival(extras, self.game)
            put_rewards(batch.partition_id, keys, extras)
        pairs = [pair_of(extra) for extra in extras]
        measured = self._measure(pairs)
        metrics.update(measured)
        metrics["pair/overlap"] = overlap(extras)
        metrics["ledger/rollouts"] = len(batch.keys)
        metrics["ledger/problems"] = len({pair.group for pair in pairs})
        streams = []
        for index, (name, adapter) in enumerate(zip(STREAMS, who, strict=True)):
            metrics.update({f"{adapter}/{k}": v for k, v in measured.items() if k.startswith(f"{name}/")})
            sides = range(len(STREAMS)) if self.game.one_group else [index]
            taught = [] if adapter in self.game.frozen else [p for p in pairs if name == "challenge" or not p.guest]
            rewards = [getattr(pair, f"{STREAMS[side]}_reward") for side in sides for pair in taught]
            groups = [pair.group for _ in sides for pair in taught]
            alive = live_groups(rewards, groups)
            rows = [i for i, key in enumerate(batch.keys) if int(key.rsplit("_", 1)[1]) in sides]
            is_live = {i: batch.keys[i].rsplit("_", 2)[0] in alive for i in rows}
            live = select(batch, [i for i in rows if is_live[i]])
            dead = select(batch, [i for i in rows if not is_live[i]])
            streams.append(Stream(name, adapter, live, dead))
            if self.game.one_group:
                break
        return streams

    def _measure(self, pairs: Sequence[Pair]) -> dict[str, float]:
        """What pairs say; of two completions that do not know of each other, only what each is in itself."""
        measured = pair_metrics(pairs)
        if self.game.reads == "nothing":
            alone = {name: value for name, value in measured.items() if not name.startswith("pair/")}
            return {**alone, **drop_none({"health/dead_groups": dead_groups(pairs, together=self.game.one_group)})}
        return {**measured, **health_metrics(pairs)}

    def _pair_records(self, batch: KVBatchMeta, keys: list[str]) -> list[dict[str, Any]]:
        """What the agent loop left on each challenge: the pair, the attempt shown, when both stages ran."""
        data = tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=["extra_fields"])
        return list(data["extra_fields"])

    def _watch_health(self, metrics: dict) -> None:
        """Trends and alarms. One that stops the run does so before the next step, when this one is logged."""
        if self.game.players == "pair":
            metrics["health/distance"] = self.actor_rollout_wg.distance()[0]
        metrics.update(self.trends.update(metrics))
        alarms = self.alarms.update(metrics)
        metrics["health/alarms"] = len(alarms)
        for alarm in alarms:
            logger.warning("agon-verl: ALARM at step %d: %s", self.global_steps, alarm.message)
        self._stopping = [alarm.message for alarm in alarms if alarm.stop]
        self.remember(metrics)

    def _stop_if_alarmed(self) -> None:
        if self._stopping:
            self.checkpoint_manager.sleep_replicas()  # as in any other save
            self._save_step_before()
            raise StoppedByAlarm(
                f"stopped after step {self.global_steps}, which is saved: {' '.join(self._stopping)} The same command "
                "goes on from there; agon.alarms.stop says which alarms stop a run"
            )

    def _save_step_before(self) -> None:
        """The state between two steps, whatever of the next one has begun: problems that were drawn are not lost."""
        self.global_steps -= 1
        if self.global_steps > 0 and self.saved_step != self.global_steps:
            self._between_steps = True
            self._save_checkpoint()

    def _rescue(self) -> None:
        """Save what was learned before a step in which the pairs failed, if the run saves at all."""
        if self.config.trainer.save_freq > 0:
            try:
                self._save_step_before()
            except (CheckpointError, ray.exceptions.RayError) as error:
                logger.warning("agon-verl: what was learned since the last save is lost: %s", error)

    @property
    def data_state(self) -> Any:
        return self._data_before if self._between_steps else super().data_state

    def carried(self) -> dict[str, Any]:
        return {**super().carried(), "trends": self.trends.state(), "alarms": self.alarms.state()}

    def carry(self, state: dict[str, Any]) -> None:
        super().carry(state)
        self.trends = Trends.from_state(ADAPTERS, state["trends"])
        self.alarms = Alarms.from_state(self.game.alarms, state["alarms"])

    def _train_adapter(self, streams: Sequence[Stream], metrics: dict) -> KVBatchMeta:
        """Advantages within each group of each stream, then one update of the adapter. Returns all rows."""
        adapter, dead = streams[0].adapter, concat([stream.dead for stream in streams])
        no_advantage(dead)
        live = [stream for stream in streams if stream.live.keys]
        if not live:
            rates = self.actor_rollout_wg.skip_update(adapter)
            metrics[f"{adapter}/actor/lr"] = rates[0]
            return dead
        own: dict[str, Any] = {}
        problems = {key.rsplit("_", 2)[0] for stream in live for key in stream.live.keys}
        self._mini_batches = math.ceil(len(problems) / self.config.actor_rollout_ref.actor.ppo_mini_batch_size)
        ready = [self._with_advantages(stream, own) for stream in live]
        batch = ready[0]
        if len(ready) > 1:
            batch = self._balance_batch(concat(ready), metrics=own)
            no_advantage(select(batch, [row for row, tag in enumerate(batch.tags) if tag.get("is_padding")]))
        with marked_timer("update_actor", self.timing_raw), self._settings_of(live[-1]):
            batch = self._update_actor(batch, metrics=own)  # 10
        metrics.update({f"{adapter}/{k}": v for k, v in own.items()})
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
                return self._compute_advantage(batch, metrics=metrics)  # 8

    @property
    def _is_only_update(self) -> bool:
        """Whether the policy is still the one that the rows came from, whenever the loss is computed."""
        algorithm, actor = self.config.algorithm, self.config.actor_rollout_ref.actor
        correction = algorithm.get("rollout_correction") or {}
        wanted = algorithm.use_kl_in_reward or any(correction.get(key) for key in CORRECTIONS)
        return self._mini_batches == actor.ppo_epochs == 1 and not wanted

    @contextmanager
    def _settings_of(self, stream: Stream) -> Iterator[None]:
        """The config as this stream has it: verl's own methods read these fields, which differ between the streams."""
        algorithm, rollout = self.config.algorithm, self.config.actor_rollout_ref.rollout
        before = algorithm.adv_estimator, algorithm.get("rollout_correction"), rollout.temperature
        algorithm.adv_estimator = f"agon_{stream.name}"
        if self._is_only_update:
            algorithm.rollout_correction = None  # which would ask for the old log-probs, to no other end than metrics
        if stream.name == "challenge":
            rollout.temperature = self.game.challenge_sampling.get("temperature", rollout.temperature)
        try:
            yield
        finally:
            algorithm.adv_estimator, algorithm.rollout_correction, rollout.temperature = before

    def _get_required_batch_multiple(self, dp_size: int) -> int:
        """Rows are filled up to whole mini-batches of the live rows, not of all the rows that were sampled.

        Micro-batches of a fixed size must be whole as well, unless the update is the only pass over the rows: then the
        engine makes them a little smaller.
        """
        self._ranks = dp_size
        actor, rollout = self.config.actor_rollout_ref.actor, self.config.actor_rollout_ref.rollout
        if actor.use_dynamic_bsz:
            return dp_size * self._mini_batches
        if self._is_only_update and not self.use_reference_policy:
            return dp_size * math.prod(even_parts(math.ceil(self._rows / dp_size), actor.ppo_micro_batch_size_per_gpu))
        micro = math.lcm(actor.ppo_micro_batch_size_per_gpu, rollout.log_prob_micro_batch_size_per_gpu)
        return dp_size * self._mini_batches * micro

    def _balance_batch(self, batch: KVBatchMeta, metrics: dict, **kwargs: Any) -> KVBatchMeta:
        """Rows in order of length, for a micro-batch is padded to its longest row; several mini-batches stay mixed.

        verl puts the rows that fill a batch up at its end. Dealt out, they leave no mini-batch without a row to learn
        from, on which Adam would take a step all the same.
        """
        self._rows = len(batch.keys)
        if self._mini_batches == 1:
            batch = select(batch, sorted(range(self._rows), key=lambda row: batch.tags[row]["seq_len"]))
            return super()._balance_batch(batch, metrics, **kwargs)
        batch = super()._balance_batch(batch, metrics, **kwargs)
        batch.reorder(dealt(len(batch.keys), self._ranks, self._mini_batches))
        return batch

    def _update_actor(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        """One pass over a stream's live rows. The loss counts the rows that carry loss (`PairEngine.train_batch`)."""
        actor = self.config.actor_rollout_ref.actor
        in_loss, only = actor.entropy_coeff != 0.0, self._is_only_update
        settings = {
            ONLY_UPDATE: only,
            ENTROPY_IN_LOSS: in_loss,
            "calculate_entropy": actor.calculate_entropy or in_loss or only,
            "mini_batch_size": len(batch) // self._mini_batches,
            "epochs": actor.ppo_epochs,
            "seed": actor.data_loader_seed,
            "dataloader_kwargs": {"shuffle": actor.shuffle},
            "temperature": self.config.actor_rollout_ref.rollout.temperature,
        }
        output = self.actor_rollout_wg.update_actor(to_train_on(batch, settings))
        found = reduce_metrics(rename_dict(output["metrics"], "actor/"))
        if only:
            found["actor/entropy"] = found["actor/entropy_loss"]
        metrics.update({_own_name(name): value for name, value in found.items()})
        return batch

    def _log_rollout_data(self, batch: KVBatchMeta, timing_raw: dict, rollout_data_dir: str) -> None:
        """`trainer.rollout_data_dir`: one line a pair, with what the challenger saw, not verl's one line a row."""
        reader = TagKeeper(self.tokenizer, self.game.reasoning_tags)
        records = pair_records(batch, reader, self.global_steps)
        path = Path(rollout_data_dir) / f"{self.global_steps}.jsonl"
        self._dump_futures.append(self._dump_executor.submit(write_jsonl, path, records))

    def _validate(self) -> dict[str, float]:
        """The cascade in both directions. Its first stage is each adapter alone, on the plain prompt.

        A single player reads itself. So do, here, those that read nothing in training.
        """
        metrics: dict[str, float] = {}
        self._alone: dict[str, dict[str, float]] = {}
        pairs = len(self.val_dataset) * self.config.actor_rollout_ref.rollout.val_kwargs.n
        for who in dict.fromkeys(directions(self.game.players)):
            self.agent_loop_manager.roles = who
            with self._failures_counted(pairs, {}):
                metrics.update(super()._validate())
        if self.game.players == "pair":
            shared = sorted(self._alone["A"].keys() & self._alone["B"].keys())
            metrics.update(validation_health(*([self._alone[adapter][p] for p in shared] for adapter in ADAPTERS)))
        self.remember({**metrics, "val-step": self.global_steps})
        return metrics

    def _dump_generations(self, *, dump_path: str, **kwargs: Any) -> None:
        """`trainer.validation_data_dir`: a folder for each direction, which verl would write into one file."""
        drafter, challenger = self.agent_loop_manager.roles
        super()._dump_generations(dump_path=f"{dump_path}/{drafter}_to_{challenger}", **kwargs)

    def _val_metrics_update(
        self,
        data_sources: list[str],
        sample_uids: list[str],
        reward_extra_infos_dict: dict[str, list],
        sample_turns: list,
        expected_acc_counts: dict[tuple[str, str], int] | None = None,
    ) -> dict[str, float]:
        """verl's statistics under names that say whose they are: `val-core/<data source>/A_to_B/acc/mean@1`."""
        drafter, challenger = self.agent_loop_manager.roles
        cascade = dict(reward_extra_infos_dict)
        right, problems = cascade.pop("draft_acc"), cascade.pop(PROBLEM)
        self._alone[drafter] = _mean_by(problems, right)
        direction = f"{drafter}_to_{challenger}"
        alone = {"reward": right, "acc": right}
        exchange = cascade_health(right, cascade["acc"])
        metrics = {f"health/val/{direction}/{name}": value for name, value in exchange.items()}
        for label, values in ((direction, cascade), (f"{drafter}_alone", alone)):
            sources = [f"{source}/{label}" for source in data_sources]
            metrics.update(super()._val_metrics_update(sources, sample_uids, values, []))
        return metrics


def _load_replica() -> type:
    from agon_verl.rollout.server import AgonReplica

    return AgonReplica


def _own_name(metric: str) -> str:
    """The gap between rollout and training has groups of its own, whoever measures it."""
    name = metric.removeprefix("actor/")
    return name if name.startswith(("training/", "rollout_corr/")) else metric


def _why(failures: Sequence[str], pairs: int) -> str:
    reasons = "; ".join(f"{count} x {reason}" for reason, count in Counter(failures).most_common(3))
    return f"{len(failures)} or more of {pairs} pairs failed ({reasons})"


def _mean_by(names: Sequence[str], values: Sequence[float]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for name, value in zip(names, values, strict=True):
        found.setdefault(name, []).append(value)
    return {name: sum(values) / len(values) for name, values in found.items()}
