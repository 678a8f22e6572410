"""Validation of both cascades and of each adapter alone, and the pair records that a run writes."""

import time
from pathlib import Path
from typing import Any

from transfer_queue import KVBatchMeta

from agon_verl.game.roles import ADAPTERS, Roles, directions
from agon_verl.game.tags import TagKeeper
from agon_verl.health.health import validation_health
from agon_verl.trainer.guarded import GuardedTrainer
from agon_verl.trainer.metrics import direction_name, validation_parts
from agon_verl.trainer.records import TrainingTimes, pair_records, unfinished, write_jsonl


class ValidatingTrainer(GuardedTrainer):
    """The only change is what a validation plays and what validation and training write down."""

    _dump_futures: list[Any]  # verl's
    times: TrainingTimes  # of this step

    def on_step_begin(self) -> None:
        self.times = TrainingTimes(time.time())
        super().on_step_begin()

    def on_step_end(self) -> None:
        begin = time.time()
        super().on_step_end()
        self.times.sync = (begin, time.time())

    def _validate(self) -> dict[str, float]:
        """Play the cascade in both directions; its first stage is each adapter alone, on the plain prompt.

        A single player reads itself. Adapters that read nothing in training read here.
        """
        metrics: dict[str, float] = {}
        self._drafter_accuracy: dict[str, dict[str, float]] = {}  # by adapter, then by problem
        pairs = len(self.val_dataset) * self.config.actor_rollout_ref.rollout.val_kwargs.n
        for who in dict.fromkeys(directions(self.game.players)):
            self.agent_loop_manager.roles = who
            with self._failures_limited(pairs, {}):
                metrics.update(super()._validate())
        if self.game.players == "pair":
            accuracy = [self._drafter_accuracy[adapter] for adapter in ADAPTERS]
            shared = sorted(accuracy[0].keys() & accuracy[1].keys())
            metrics.update(validation_health(*([of_problem[p] for p in shared] for of_problem in accuracy)))
        self.remember({**metrics, "val-step": self.global_steps})
        return metrics

    def _val_metrics_update(
        self,
        data_sources: list[str],
        sample_uids: list[str],
        reward_extra_infos_dict: dict[str, list],
        sample_turns: list,
        expected_acc_counts: dict[tuple[str, str], int] | None = None,
    ) -> dict[str, float]:
        """verl's statistics, under names that say which direction or adapter they belong to."""
        who: Roles = self.agent_loop_manager.roles
        parts = validation_parts(who, reward_extra_infos_dict)
        self._drafter_accuracy[who.drafter] = dict(parts.drafter_accuracy)
        metrics = dict(parts.health)
        for label, values in parts.labelled.items():
            sources = [f"{source}/{label}" for source in data_sources]
            metrics.update(super()._val_metrics_update(sources, sample_uids, values, []))
        return metrics

    def _dump_generations(self, *, dump_path: str, **kwargs: Any) -> None:
        """`trainer.validation_data_dir`: a folder per direction; verl would write both into one file."""
        super()._dump_generations(dump_path=f"{dump_path}/{direction_name(self.agent_loop_manager.roles)}", **kwargs)

    def _log_rollout_data(self, batch: KVBatchMeta, timing_raw: dict, rollout_data_dir: str) -> None:
        """`trainer.rollout_data_dir`: one line per pair, with the attempt as shown, instead of verl's line per row."""
        reader = TagKeeper(self.tokenizer, self.game.reasoning_tags)
        last = self.actor_rollout_wg.optimizer_spans()[0]  # of the self-check or an earlier step, if this one had none
        self.times.optimizer = {adapter: span for adapter, span in last.items() if span[0] >= self.times.begin}
        records = pair_records(batch, reader, self.game, self.global_steps, self.times)
        path = Path(rollout_data_dir) / f"{self.global_steps}.jsonl"
        written = self._dump_executor.submit(write_jsonl, path, records)
        self._dump_futures = unfinished([*self._dump_futures, written])
