"""What keeps a run from going wrong unseen: the self-check, the watchdog, failed pairs, alarms, and the last save."""

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import ray

from agon_verl.actor import self_check
from agon_verl.errors import AgonError, CheckpointError
from agon_verl.game.prompts import CHALLENGE
from agon_verl.game.roles import ADAPTERS
from agon_verl.health.alarms import Alarms
from agon_verl.health.health import Trends
from agon_verl.rollout.watchdog import Watchdog
from agon_verl.trainer.resumable import ResumableTrainer

logger = logging.getLogger(__name__)


class StoppedByAlarm(AgonError, RuntimeError):
    """The message has the metric, its limit and what to try."""


class PairsFailed(AgonError, RuntimeError):
    """More pairs of a step failed than `agon.max_failed` allows, or a process that generates them has died."""

    def __init__(self, step: int, reason: str) -> None:
        super().__init__(
            f"step {step}: {reason}. Once the cause is removed, start the same command again: the run continues from "
            "its last checkpoint"
        )


class GuardedTrainer(ResumableTrainer):
    """The only change: failures, dead processes and unhealthy metrics end the run with a reason and a checkpoint."""

    _between_steps = False
    _stopping: Sequence[str] = ()

    def _build_replay_buffer(self) -> Any:
        buffer = super()._build_replay_buffer()
        self.trends, self.alarms = Trends(ADAPTERS), Alarms(self.game.alarms)
        return buffer

    def on_init_end(self) -> None:
        servers = [replica.server_handle for replica in self.llm_server_manager.get_replicas()]
        self.watchdog = Watchdog(servers, self.actor_rollout_wg.workers)
        self.replay_buffer.check_alive = self.watchdog.check
        self.watchdog.start()
        with self._dead_process_named():
            if self.game.self_check:
                prompt = self.tokenizer.encode(CHALLENGE)
                self_check.check_adapters(ADAPTERS, self.actor_rollout_wg, self.checkpoint_manager, servers, prompt)
            super().on_init_end()

    def fit(self, agent_loop_manager: Any) -> None:
        self.watchdog.actors.extend(agent_loop_manager.agent_loop_workers)
        with self._dead_process_named():
            super().fit(agent_loop_manager)

    @contextmanager
    def _dead_process_named(self) -> Iterator[None]:
        """Name the dead process where the watchdog had to end a wait."""
        try:
            yield
        except ray.exceptions.RayError as error:
            if self.watchdog.reason is None:
                raise
            raise PairsFailed(self.global_steps, f"a process of the run died ({self.watchdog.reason})") from error

    def on_step_begin(self) -> None:
        super().on_step_begin()
        self._data_before = super().data_state
        if self._stopping:
            self.checkpoint_manager.sleep_replicas()  # as before any other save
            self._save_step_before()
            raise StoppedByAlarm(
                f"stopped after step {self.global_steps}, which is saved: {' '.join(self._stopping)} The same command "
                "continues from there; agon.alarms.stop lists the alarms that stop a run"
            )

    @contextmanager
    def _failures_limited(self, pairs: int, metrics: dict) -> Iterator[None]:
        """Stop if too many of these pairs failed: an outage of the judge or the engine is not a wrong answer."""
        try:
            yield
        except (RuntimeError, ValueError, ray.exceptions.RayError) as error:  # no pair at all, or a process has died
            raise PairsFailed(self.global_steps, _describe(self._failures() or [str(error)], pairs)) from error
        failures = self.agent_loop_manager.take_failures()
        metrics["pair/failed"], metrics["pair/failed_share"] = len(failures), len(failures) / pairs
        if len(failures) > self.game.max_failed * pairs:
            raise PairsFailed(self.global_steps, _describe(failures, pairs))

    def _failures(self) -> list[str]:
        try:
            return self.agent_loop_manager.take_failures()
        except ray.exceptions.RayError:  # the worker that recorded them has died
            return []

    def _check_health(self, metrics: dict) -> None:
        """Update trends and alarms. A stopping alarm takes effect before the next step, when this one is logged."""
        if self.game.players == "pair":
            metrics["health/distance"] = self.actor_rollout_wg.distance()[0]
        metrics.update(self.trends.update(metrics))
        alarms = self.alarms.update(metrics)
        metrics["health/alarms"] = len(alarms)
        for alarm in alarms:
            logger.warning("agon-verl: ALARM at step %d: %s", self.global_steps, alarm.message)
        self._stopping = [alarm.message for alarm in alarms if alarm.stop]
        self.remember(metrics)

    def _save_step_before(self) -> None:
        """Save the state between two steps, although the next one has drawn its problems: they are drawn again."""
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

    def extra_state(self) -> dict[str, Any]:
        return {**super().extra_state(), "trends": self.trends.state(), "alarms": self.alarms.state()}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        super().load_extra_state(state)
        self.trends = Trends.from_state(ADAPTERS, state["trends"])
        self.alarms = Alarms.from_state(self.game.alarms, state["alarms"])


def _describe(failures: Sequence[str], pairs: int) -> str:
    reasons = "; ".join(f"{count} x {reason}" for reason, count in Counter(failures).most_common(3))
    return f"{len(failures)} or more of {pairs} pairs failed ({reasons})"
