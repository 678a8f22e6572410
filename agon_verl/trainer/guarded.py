"""What keeps a run from going wrong unseen: the self-check, the watchdog, failed pairs, alarms, and the last save."""

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray

from agon_verl.actor import self_check
from agon_verl.errors import AgonError, CheckpointError
from agon_verl.game.prompts import CHALLENGE
from agon_verl.game.roles import ADAPTERS
from agon_verl.health.alarms import Alarms
from agon_verl.health.health import Trends
from agon_verl.pair.checkpoint import STOP_REQUEST
from agon_verl.rollout.watchdog import Watchdog, describe_error
from agon_verl.trainer.resumable import ResumableTrainer

logger = logging.getLogger(__name__)
NOTHING_TO_SAVE = "No step was finished. Once the cause is removed, start the same command again"
ANSWER = 120.0  # seconds for the answer of a training process that has nothing else to do


class StoppedByAlarm(AgonError, RuntimeError):
    """The message has the metric, its limit and what to try."""


class StoppedOnRequest(AgonError, RuntimeError):
    """Somebody wrote the file `stop` into the run's checkpoint folder; the message says what was saved."""


class PairsFailed(AgonError, RuntimeError):
    """More pairs failed than `agon.max_failed` allows: the message has the most common reasons."""


class RunFailed(AgonError, RuntimeError):
    """The message has the cause, the process that failed if one did, what was saved, and how to go on."""

    def __init__(self, step: int, cause: str, outcome: str) -> None:
        super().__init__(f"step {step}: {cause.rstrip('.')}. {outcome}")


@dataclass(frozen=True)
class Consistent:
    """The newest state that may be saved: after all updates of `step`, when the ranks had these counts of updates.

    `data` is the position of the data loader then: verl draws the problems of a step inside it. After a failed step
    they are drawn again.
    """

    step: int
    updates: list[tuple[int, ...]]
    data: Any


class GuardedTrainer(ResumableTrainer):
    """The only change: failures, dead processes and unhealthy metrics end the run with a reason and a checkpoint."""

    global_steps: int
    _stopping: Sequence[str] = ()

    def _build_replay_buffer(self) -> Any:
        buffer = super()._build_replay_buffer()
        self._resume_mode = self.config.trainer.resume_mode  # as the command has it: loading overwrites it
        self.trends, self.alarms = Trends(ADAPTERS), Alarms(self.game.alarms)
        return buffer

    def on_init_end(self) -> None:
        servers = [replica.server_handle for replica in self.llm_server_manager.get_replicas()]
        named = {f"vLLM server {number}": server for number, server in enumerate(servers)}
        self.watchdog = Watchdog(named, self.game.engine_timeout)
        self.replay_buffer.check_alive = self.watchdog.check
        self.watchdog.start()
        with self._dead_process_named():
            if self.game.self_check:
                prompt = self.tokenizer.encode(CHALLENGE)
                self_check.check_adapters(ADAPTERS, self.actor_rollout_wg, self.checkpoint_manager, servers, prompt)
            super().on_init_end()

    @contextmanager
    def _dead_process_named(self) -> Iterator[None]:
        """Name the dead process where the watchdog had to end a wait."""
        try:
            yield
        except ray.exceptions.RayError as error:
            if self.watchdog.reason is None:
                raise
            raise RunFailed(self.global_steps + 1, self.watchdog.reason, NOTHING_TO_SAVE) from error

    def fit(self, agent_loop_manager: Any) -> None:
        workers = agent_loop_manager.agent_loop_workers
        ray.get([worker.ping.remote() for worker in workers])  # a process that still starts is not a silent one
        print(f"agent loop workers ready: {len(workers)}")
        self.watchdog.actors.update({f"agent loop worker {number}": worker for number, worker in enumerate(workers)})
        self._loaded_step = self.global_steps
        self._mark_consistent()
        try:
            super().fit(agent_loop_manager)
        except (StoppedByAlarm, StoppedOnRequest, CheckpointError):  # they say themselves what is saved
            raise
        except Exception as error:
            step, cause = self.global_steps, describe_error(error)
            if reason := self.watchdog.wait_for_reason():
                cause = reason if reason in cause else f"{cause}. {reason}"
            raise RunFailed(step, cause, self._rescue()) from error

    def step(self, metrics: dict, timing_raw: dict) -> Any:
        batch = super().step(metrics, timing_raw)
        self._mark_consistent()
        return batch

    def _mark_consistent(self) -> None:
        self._consistent = Consistent(self.global_steps, self._updates(), super().data_state)

    def _updates(self) -> list[tuple[int, ...]]:
        return ray.get(self.actor_rollout_wg.updates(), timeout=ANSWER)

    def on_step_end(self) -> None:
        """A sync with a vLLM that died during the update would only add an error of its own."""
        self.watchdog.check()
        super().on_step_end()

    def on_step_begin(self) -> None:
        super().on_step_begin()
        request = Path(self.config.trainer.default_local_dir).absolute() / STOP_REQUEST
        if request.exists():
            request.unlink()  # it is for this process, not for the one that continues
            self.checkpoint_manager.sleep_replicas()
            self._save_consistent()
            step = f"after step {self.global_steps}, which is saved" if self.global_steps else "before its first step"
            raise StoppedOnRequest(
                f"stopped {step}, as {request} requested. The same command{self._resuming} continues from there"
            )
        if self._stopping:
            self.checkpoint_manager.sleep_replicas()  # as before any other save
            self._save_consistent()
            raise StoppedByAlarm(
                f"stopped after step {self.global_steps}, which is saved: {' '.join(self._stopping)} The same command"
                f"{self._resuming} continues from there; agon.alarms.stop lists the alarms that stop a run"
            )

    @contextmanager
    def _failures_limited(self, pairs: int, metrics: dict) -> Iterator[None]:
        """Stop if too many of these pairs failed: an outage of the judge or the engine is not a wrong answer."""
        try:
            yield
        except (RuntimeError, ValueError, ray.exceptions.RayError) as error:  # no pair at all, or a process has died
            raise PairsFailed(_describe(self._failures() or [describe_error(error)], pairs)) from error
        failures = self.agent_loop_manager.take_failures()
        metrics["pair/failed"], metrics["pair/failed_share"] = len(failures), len(failures) / pairs
        if len(failures) > self.game.max_failed * pairs:
            raise PairsFailed(_describe(failures, pairs))

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

    def _save_consistent(self) -> None:
        """A step that was loaded, or saved when it was due, is not saved again."""
        self.global_steps = self._consistent.step
        if self.global_steps not in (self.saved_step, self._loaded_step):
            self._save_checkpoint()

    def _rescue(self) -> str:
        """Save the newest consistent state, if the run saves at all. Returns what was saved, and how to go on.

        An update that failed half-way leaves adapters of different steps; a process that died, or waits for one that
        did, cannot save. Then the last checkpoint is what remains. No error of the save may replace the run's own.
        """
        step = self._consistent.step
        if self.config.trainer.save_freq <= 0:
            return f"Nothing is saved, because trainer.save_freq={self.config.trainer.save_freq}"
        if step == self._loaded_step:
            return NOTHING_TO_SAVE
        self.watchdog.end_rollout()  # the run ends: a save may need the memory that vLLM has
        lost = None
        try:
            if self._updates() == self._consistent.updates:
                self._save_consistent()
            else:
                lost = f"step {step + 1} had changed an adapter when it failed"
        except ray.exceptions.GetTimeoutError:
            lost = f"a training process gave no answer for {ANSWER:.0f} seconds"
        except ray.exceptions.RayActorError as error:
            lost = f"a training process has died ({describe_error(error)})"
        except Exception as error:
            lost = describe_error(error)
        if lost and self.saved_step == step:
            logger.warning("agon-verl: step %d is saved; after that: %s", step, lost)
            lost = None
        done = f"Step {step} is saved"
        if lost:
            done = f"What was learned since the last checkpoint is lost: {lost.rstrip('.')}"
        return f"{done}. Once the cause is removed, start the same command again{self._next_start}"

    @property
    def _next_start(self) -> str:
        """A process that saved nothing leaves its command as it was, which starts where this process did."""
        if self.saved_step >= 0:
            return f"{self._resuming}: the run continues from global_step_{self.saved_step}"
        loaded = self.config.trainer.resume_from_path  # as loading left it, whatever the mode
        return f": the run continues from {Path(loaded).name}" if loaded else ": the run starts anew"

    @property
    def _resuming(self) -> str:
        """What the command needs to continue from a checkpoint of this process."""
        return "" if self._resume_mode == "auto" else " with trainer.resume_mode=auto"

    @property
    def data_state(self) -> Any:
        return self._consistent.data

    def extra_state(self) -> dict[str, Any]:
        return {**super().extra_state(), "trends": self.trends.state(), "alarms": self.alarms.state()}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        super().load_extra_state(state)
        self.trends = Trends.from_state(ADAPTERS, state["trends"])
        self.alarms = Alarms.from_state(self.game.alarms, state["alarms"])


def _describe(failures: Sequence[str], pairs: int) -> str:
    reasons = "; ".join(f"{count} x {reason}" for reason, count in Counter(failures).most_common(3))
    return f"{len(failures)} or more of {pairs} pairs failed ({reasons})"
