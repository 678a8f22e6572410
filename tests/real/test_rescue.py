"""What a failed run saves: only a state in which all adapters are of one step. With a real training process, in Ray.

`test_resume.py` has the same with verl's own loop and a real vLLM.
"""

import asyncio
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
import torch
from torchdata.stateful_dataloader import StatefulDataLoader
from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup
from verl.trainer.ppo.checkpoint_callback import build_checkpoint_callback
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from agon_verl.actor.worker import MultiAdapterWorker
from agon_verl.config import AgonConfig
from agon_verl.errors import CheckpointError
from agon_verl.game.roles import ADAPTERS
from agon_verl.health.alarms import Alarms
from agon_verl.health.health import Trends
from agon_verl.pair import checkpoint
from agon_verl.rollout import watchdog
from agon_verl.rollout.watchdog import Watchdog
from agon_verl.trainer.guarded import GuardedTrainer, PairsFailed, RunFailed, StoppedByAlarm, StoppedOnRequest
from tests.recipes import composed


@pytest.fixture(scope="module")
def workers(tiny: Path) -> Iterator[RayWorkerGroup]:
    """One training process, as verl starts it, without a vLLM."""
    config = composed("+recipe=agon_cpu", f"actor_rollout_ref.model.path={tiny / 'model'}")
    config.actor_rollout_ref.actor.optim.total_training_steps = 10
    with tempfile.TemporaryDirectory(prefix="agon", dir="/tmp", ignore_cleanup_errors=True) as folder:
        ray.init(num_cpus=2, num_gpus=1, include_dashboard=False, _temp_dir=folder, log_to_driver=False)
        actor = RayClassWithInitArgs(ray.remote(MultiAdapterWorker), config=config.actor_rollout_ref, role="actor")
        group = RayWorkerGroup(RayResourcePool([1], max_colocate_count=1), actor, device_name="cpu")
        group.init_model()
        yield group
        ray.shutdown()


class Server:
    """Answers pings as vLLM's server does: at once, with an error, or never."""

    def __init__(self, mode: str) -> None:
        self.mode = mode

    async def started(self) -> None: ...

    async def ping(self) -> None:
        if self.mode == "dead":
            raise RuntimeError("the engine has died")
        if self.mode == "silent":
            await asyncio.sleep(3600)


def watch(monkeypatch: pytest.MonkeyPatch, limit: float = 600.0, **modes: str) -> tuple[Watchdog, dict[str, Any]]:
    monkeypatch.setattr(watchdog, "SECONDS", 0.1)
    monkeypatch.setattr(watchdog, "NOTICE", 0.1)
    servers = {name: ray.remote(Server).options(num_cpus=0).remote(mode) for name, mode in modes.items()}
    ray.get([server.started.remote() for server in servers.values()])
    return Watchdog(servers, limit), servers


@pytest.mark.parametrize(
    ("mode", "limit", "reason"),
    [
        ("dead", 600.0, "B has failed (RuntimeError: the engine has died)"),
        ("silent", 10.0, "B has not answered for agon.engine_timeout=10 seconds, but its process lives"),
    ],
)
def test_the_watchdog_names_a_failed_process_and_ends_every_wait_for_it(
    workers: RayWorkerGroup, monkeypatch: pytest.MonkeyPatch, mode: str, limit: float, reason: str
) -> None:
    """It lets the training process live, which can still save."""
    guard, servers = watch(monkeypatch, limit, B=mode)
    waiting = servers["B"].ping.remote() if mode == "silent" else None
    guard.start()
    guard.join(60)
    assert guard.reason == reason
    with pytest.raises(RuntimeError, match="^B has"):
        guard.check()
    if waiting is not None:
        with pytest.raises(ray.exceptions.RayActorError):
            ray.get(waiting, timeout=60)
    assert ray.get(workers.updates(), timeout=60)


@dataclass(frozen=True)
class Fault:
    """A step that breaks off after the update of its first `updated` adapters."""

    step: int
    updated: int
    kills: str = ""  # "trainer": the training process; "vllm": the watched server, and the step goes on


class Trainer(GuardedTrainer):
    """Agon's over these workers, with verl's loop and step cut down to what a failure is about.

    A step draws two problems and advances the schedule of each adapter, until it meets the fault.
    """

    def __init__(self, workers: RayWorkerGroup, tiny: Path, root: Path, *overrides: str) -> None:
        model, folder = f"actor_rollout_ref.model.path={tiny / 'model'}", f"trainer.default_local_dir={root}"
        self.config = composed("+recipe=agon_cpu", model, folder, *overrides)
        self.game = AgonConfig.read(self.config)
        self.trends, self.alarms = Trends(ADAPTERS), Alarms(self.game.alarms)
        self.checkpoint_callback = build_checkpoint_callback(self.config)
        self.train_dataloader = StatefulDataLoader(range(20), batch_size=2)
        self.actor_rollout_wg, self.watchdog = workers, Watchdog({}, self.game.engine_timeout)
        self._base_hash, self.last_metrics, self._resume_mode = "", {}, self.config.trainer.resume_mode
        self.global_steps = 0

    def fails(self, fault: Fault, monkeypatch: pytest.MonkeyPatch) -> str:
        """Run into the fault; returns the message."""
        problems = iter(self.train_dataloader)

        def step(self: Any, metrics: dict, timing_raw: dict) -> None:
            next(problems)
            failing = self.global_steps == fault.step
            for adapter in ADAPTERS[: fault.updated] if failing else ADAPTERS:
                self.actor_rollout_wg.skip_update(adapter)
            if failing and fault.kills == "vllm":
                ray.kill(self.watchdog.actors["vLLM server 0"])
                self.watchdog.join(60)
                return
            if failing and fault.kills == "trainer":
                ray.kill(self.actor_rollout_wg.workers[0])
                self.actor_rollout_wg.distance()
            if failing:
                raise ValueError("a bug in the step")

        def fit(self: Any, _: Any) -> None:
            while True:
                self.global_steps += 1
                self.on_step_begin()
                self.step({}, {})
                if self.config.trainer.save_freq > 0 and self.global_steps % self.config.trainer.save_freq == 0:
                    self._save_checkpoint()
                self.on_step_end()

        monkeypatch.setattr(watchdog, "SECONDS", 0.1)
        monkeypatch.setattr(PPOTrainerSync, "on_step_end", lambda self: None)
        monkeypatch.setattr(PPOTrainer, "step", step)
        monkeypatch.setattr(PPOTrainer, "fit", fit)
        with pytest.raises(RunFailed) as failure:
            self.fit(SimpleNamespace(agent_loop_workers=[]))
        return str(failure.value)


def test_a_step_that_changed_nothing_leaves_the_step_before(
    workers: RayWorkerGroup, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = Trainer(workers, tiny, tmp_path).fails(Fault(step=4, updated=0), monkeypatch)
    assert message == (
        "step 4: ValueError: a bug in the step. Step 3 is saved. Once the cause is removed, start the same command "
        "again: the run continues from global_step_3"
    )
    assert checkpoint.complete(tmp_path) == [3]
    position = torch.load(tmp_path / "global_step_3" / "data.pt", weights_only=False)
    assert position["_num_yielded"] == 3  # step 4 had drawn its problems; they are drawn again


def test_a_half_updated_pair_is_not_saved(
    workers: RayWorkerGroup, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Saved as step 3, it would update the first adapter of step 4 twice."""
    message = Trainer(workers, tiny, tmp_path, "trainer.save_freq=2").fails(Fault(step=4, updated=1), monkeypatch)
    assert "is lost: step 4 had changed an adapter when it failed." in message
    assert message.endswith("the run continues from global_step_2")
    assert checkpoint.complete(tmp_path) == [2]


def test_a_vllm_that_dies_during_an_update_costs_nothing(
    workers: RayWorkerGroup, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = Trainer(workers, tiny, tmp_path)
    trainer.watchdog, _ = watch(monkeypatch, **{"vLLM server 0": "fine"})
    trainer.watchdog.start()
    message = trainer.fails(Fault(step=2, updated=2, kills="vllm"), monkeypatch)
    assert message.startswith("step 2: vLLM server 0 has failed (ActorDiedError")
    assert "Step 2 is saved." in message
    assert checkpoint.complete(tmp_path) == [2]


@pytest.mark.parametrize(
    ("overrides", "step", "end"),
    [
        (["trainer.save_freq=-1"], 3, "Nothing is saved, because trainer.save_freq=-1"),
        ([], 1, "No step was finished. Once the cause is removed, start the same command again"),
        (
            ["trainer.resume_mode=disable"],
            3,
            "start the same command again with trainer.resume_mode=auto: the run continues from global_step_2",
        ),
    ],
)
def test_the_message_says_how_to_go_on(
    workers: RayWorkerGroup,
    tiny: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    overrides: list[str],
    step: int,
    end: str,
) -> None:
    trainer = Trainer(workers, tiny, tmp_path, *overrides)
    assert trainer.fails(Fault(step=step, updated=0), monkeypatch).endswith(end)


@pytest.mark.parametrize(
    ("mode", "step", "end"),
    [
        ("resume_path", 3, "start the same command again: the run continues from global_step_3"),
        ("auto", 3, "start the same command again: the run continues from global_step_3"),
        ("disable", 0, "start the same command again: the run starts anew"),
    ],
)
def test_a_run_that_saved_nothing_goes_on_where_it_began(
    workers: RayWorkerGroup, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, step: int, end: str
) -> None:
    """The folder of the checkpoint is the run's own, or another; with `disable` what is there is not the run's."""
    first = Trainer(workers, tiny, tmp_path)
    first._base_hash = workers.hash_of_base()[0]
    first.fails(Fault(step=4, updated=0), monkeypatch)
    root, overrides = tmp_path, [f"trainer.resume_mode={mode}"]
    if mode == "resume_path":
        root = tmp_path / "new"
        overrides.append(f"trainer.resume_from_path={tmp_path / 'global_step_3'}")
    trainer = Trainer(workers, tiny, root, *overrides)
    trainer.use_critic, trainer.trainer_mode = False, "sync"
    trainer._load_checkpoint()
    assert trainer.global_steps == step
    message = trainer.fails(Fault(step=step + 2, updated=1), monkeypatch)
    assert f"is lost: step {step + 2} had changed an adapter when it failed. Once" in message
    assert message.endswith(end)


class Broken:
    """A callback of the user's that fails once a checkpoint is complete."""

    def on_save(self, **_: Any) -> None:
        raise PermissionError("the bucket is read-only")


def test_what_fails_after_the_save_replaces_neither_the_cause_nor_the_step(
    workers: RayWorkerGroup,
    tiny: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    trainer = Trainer(workers, tiny, tmp_path)
    trainer.checkpoint_callback = Broken()
    with caplog.at_level("WARNING", "agon_verl.trainer.guarded"):
        message = trainer.fails(Fault(step=4, updated=0), monkeypatch)
    assert message.startswith("step 4: ValueError: a bug in the step. Step 3 is saved. Once the cause is removed")
    assert checkpoint.complete(tmp_path) == [3]
    assert "PermissionError: the bucket is read-only" in caplog.text


def test_a_save_that_fails_does_not_replace_the_cause(
    workers: RayWorkerGroup, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = Trainer(workers, tiny, tmp_path)
    trainer.last_metrics = {"val-x": lambda: 0}  # a bug: a function cannot be saved
    message = trainer.fails(Fault(step=4, updated=0), monkeypatch)
    assert message.startswith(
        "step 4: ValueError: a bug in the step. What was learned since the last checkpoint is lost"
    )
    assert message.endswith("Once the cause is removed, start the same command again: the run starts anew")
    assert checkpoint.complete(tmp_path) == []


def test_a_step_saved_when_it_was_due_is_not_called_lost(
    workers: RayWorkerGroup, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = Trainer(workers, tiny, tmp_path, "trainer.save_freq=2").fails(Fault(step=3, updated=1), monkeypatch)
    assert message.endswith(
        "Step 2 is saved. Once the cause is removed, start the same command again: the run continues from global_step_2"
    )


@pytest.mark.parametrize(("mode", "how"), [("auto", ""), ("disable", " with trainer.resume_mode=auto")])
def test_a_stopping_alarm_says_how_to_go_on(
    workers: RayWorkerGroup, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, how: str
) -> None:
    trainer = Trainer(workers, tiny, tmp_path, f"trainer.resume_mode={mode}")
    trainer.checkpoint_manager = SimpleNamespace(sleep_replicas=lambda: None)  # there is no vLLM
    trainer._stopping, trainer._loaded_step, trainer.global_steps = ["alarm copying."], 0, 1
    trainer._mark_consistent()
    with pytest.raises(StoppedByAlarm) as stop:
        trainer.on_step_begin()
    start = "stopped after step 1, which is saved: alarm copying. "
    assert str(stop.value).startswith(f"{start}The same command{how} continues from there; ")


@pytest.mark.parametrize(("step", "what"), [(2, "after step 2, which is saved"), (0, "before its first step")])
def test_a_request_to_stop_saves_and_is_honoured_once(
    workers: RayWorkerGroup, tiny: Path, tmp_path: Path, step: int, what: str
) -> None:
    trainer = Trainer(workers, tiny, tmp_path)
    slept: list[int] = []
    trainer.checkpoint_manager = SimpleNamespace(sleep_replicas=lambda: slept.append(1))  # there is no vLLM
    trainer._loaded_step, trainer.global_steps = 0, step
    trainer._mark_consistent()
    trainer.on_step_begin()
    (tmp_path / "stop").touch()
    with pytest.raises(StoppedOnRequest) as stop:
        trainer.on_step_begin()
    request = tmp_path / "stop"
    assert str(stop.value) == f"stopped {what}, as {request} requested. The same command continues from there"
    assert checkpoint.complete(tmp_path) == ([step] if step else []) and slept == [1]
    assert not (tmp_path / "stop").exists()
    trainer.on_step_begin()  # the run that continues


def test_pairs_that_failed_in_another_process_are_described_in_one_line(
    workers: RayWorkerGroup, tiny: Path, tmp_path: Path
) -> None:
    @ray.remote(num_cpus=0)
    def fails() -> None:
        raise ValueError("no pair was finished")

    trainer = Trainer(workers, tiny, tmp_path)
    trainer.agent_loop_manager = SimpleNamespace(take_failures=lambda: [])
    with pytest.raises(PairsFailed) as failure, trainer._failures_limited(8, {}):
        ray.get(fails.remote())
    assert str(failure.value) == "1 or more of 8 pairs failed (1 x ValueError: no pair was finished)"


def test_without_its_training_process_a_run_saves_nothing_and_says_so(
    workers: RayWorkerGroup, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last test here: it ends the process."""
    trainer = Trainer(workers, tiny, tmp_path, "trainer.save_freq=2")
    message = trainer.fails(Fault(step=4, updated=0, kills="trainer"), monkeypatch)
    assert "What was learned since the last checkpoint is lost: a training process has died (ActorDied" in message
    assert message.endswith("the run continues from global_step_2")
    trainer.global_steps = 4
    with pytest.raises(CheckpointError) as save:
        trainer._save_checkpoint()
    assert str(save.value).startswith(f"step 4 could not be saved to {tmp_path}: a training process failed (ActorDied")
    end = "global_step_2 is untouched: once the cause is removed, start the same command again"
    assert str(save.value).endswith(end)
    assert checkpoint.complete(tmp_path) == [2]
