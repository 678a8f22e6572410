"""A run that meets one failure after the other and loses nothing.

The first run is killed inside the save of step 7. The second goes back to step 3, the end of an epoch, and must be in
the state of that save and see the problems that the first saw; in the update of its step 7 vLLM is killed. The others
go on where the first was killed, by the same command, with one adapter frozen and no save due: in the validation after
step 7 the judge hangs; after the update of step 9 vLLM does not take the adapters; in step 11 vLLM's engine stops
answering.
"""

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from agon_verl.pair import checkpoint
from agon_verl.pair.base import hash_of_base
from agon_verl.pair.checkpoint import Manifest
from tests.real.runs import PROMPTS, ROOT, Run, kill_marked, main_ppo, read_jsonl, sizes, wait_for_step
from tests.tiny import make_data

EPOCH, KILLED = 3, 7
NO_SYNC, STOPPED = 9, 11  # the steps of the later failures
AGAIN = "Once the cause is removed, start the same command again"


@pytest.fixture(scope="module")
def settings(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    data = make_data(tmp_path_factory.mktemp("data") / "train.parquet", EPOCH * PROMPTS)
    return [
        "+recipe=agon_cpu",
        *sizes(tiny),
        f"data.train_files={data}",
        f"reward.custom_reward_function.path={ROOT / 'tests' / 'real' / 'flaky_reward.py'}",
        "agon.init_noise=0.3",
        "agon.opponent.share=0.25",
        "agon.opponent.every=2",
        "agon.reward_timeout=10",
        "actor_rollout_ref.actor.optim.lr=0.01",
        "trainer.v1.trainer_mode=agon_probe",
        "trainer.total_training_steps=20",
        "trainer.total_epochs=10",
        "trainer.save_freq=1",
        "trainer.val_before_train=false",
        "trainer.resume_mode=auto",
    ]


def environment(folder: Path, **more: str) -> dict[str, str]:
    (folder / "judge").write_text("fine")
    return {"VERL_USE_EXTERNAL_MODULES": "tests.real.probe", "FLAKY_REWARD": str(folder / "judge"), **more}


@pytest.fixture(scope="module")
def killed(settings: list[str], tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("killed")
    places = [f"trainer.default_local_dir={folder / 'run'}", f"trainer.rollout_data_dir={folder / 'pairs'}"]
    return main_ppo(folder, *settings, *places, env=environment(folder, PROBE_DIE_STEP=str(KILLED)))


@pytest.fixture(scope="module")
def resumed(killed: Run, settings: list[str], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """From step 3 of the killed run, in a folder of its own; a judgement fails in step 5, vLLM is killed in step 7."""
    folder = tmp_path_factory.mktemp("resumed")

    def meanwhile(mark: str) -> None:
        wait_for_step(folder / "metrics.jsonl", 4)
        (folder / "judge").write_text("raise once")

    places = [
        f"trainer.default_local_dir={folder / 'run'}",
        f"trainer.rollout_data_dir={folder / 'pairs'}",
        "trainer.resume_mode=resume_path",
        f"trainer.resume_from_path={killed.folder / 'run' / f'global_step_{EPOCH}'}",
        "trainer.max_actor_ckpt_to_keep=2",
        "trainer.save_freq=2",
    ]
    probe = {"PROBE_STATE": str(folder / "state"), "PROBE_KILL_STEP": str(KILLED)}
    return main_ppo(folder, *settings, *places, env=environment(folder, **probe), meanwhile=meanwhile)


def start_again(killed: Run, settings: list[str], folder: Path, failure: Callable[[str], None], *more: str) -> Run:
    """The killed run's own command again, with B frozen and no save due. `failure` runs meanwhile and makes it fail."""

    def meanwhile(mark: str) -> None:
        failure(mark)
        (folder / "failed_at").write_text(str(time.time()))

    places = [
        f"trainer.default_local_dir={killed.folder / 'run'}",
        f"trainer.rollout_data_dir={folder / 'pairs'}",
        "agon.frozen=[B]",
        "trainer.save_freq=100",
    ]
    probe = {
        "PROBE_STATE": str(folder / "state"),
        "PROBE_LOG": str(folder / "probe.jsonl"),
        "PROBE_NO_SYNC": str(folder / "no_sync"),
    }
    run = main_ppo(folder, *settings, *places, *more, env=environment(folder, **probe), meanwhile=meanwhile)
    (folder / "ended_at").write_text(str(time.time()))
    return run


@pytest.fixture(scope="module")
def continued(killed: Run, settings: list[str], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The judge hangs once step 7 has updated an adapter, so in the validation that follows."""
    folder = tmp_path_factory.mktemp("continued")

    def hang(_: str) -> None:
        log = folder / "probe.jsonl"
        while not (log.exists() and any(update["step"] == KILLED for update in read_jsonl(log))):
            time.sleep(0.1)
        (folder / "judge").write_text("hang")

    return start_again(killed, settings, folder, hang, f"trainer.test_freq={KILLED}")


@pytest.fixture(scope="module")
def not_synced(killed: Run, continued: Run, settings: list[str], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """From step 7 on; vLLM's worker raises when it takes the adapters of step 9."""
    folder = tmp_path_factory.mktemp("not_synced")

    def fail(_: str) -> None:
        wait_for_step(folder / "metrics.jsonl", NO_SYNC - 1)
        (folder / "no_sync").touch()

    return start_again(killed, settings, folder, fail)


@pytest.fixture(scope="module")
def stopped(killed: Run, not_synced: Run, settings: list[str], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """From step 9 on; in step 11 vLLM's engine lives but answers nothing, as one that lost a thread."""
    folder = tmp_path_factory.mktemp("stopped")

    def stop(mark: str) -> None:
        wait_for_step(folder / "metrics.jsonl", STOPPED - 1)
        assert kill_marked(mark, "VLLM::EngineCore", signal.SIGSTOP)

    return start_again(killed, settings, folder, stop, "agon.engine_timeout=60")


def seconds(run: Run) -> float:
    """From the failure to the end of the run."""
    return float((run.folder / "ended_at").read_text()) - float((run.folder / "failed_at").read_text())


def problems(run: Run, step: int) -> list[str]:
    return sorted({record["problem"] for record in read_jsonl(run.folder / "pairs" / f"{step}.jsonl")})


def guests(run: Run, step: int) -> set[str]:
    return {r["problem"] for r in read_jsonl(run.folder / "pairs" / f"{step}.jsonl") if r["pair"]["guest"]}


def same(one: object, other: object) -> bool:
    """Bit for bit, through dicts and lists."""
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))  # type: ignore[arg-type]
    return bool((one == other) if not hasattr(one, "shape") else (one == other).all())  # type: ignore[attr-defined]


def assert_state(loaded: Path, saved: Path) -> None:
    """`loaded` is the state of the trainer before its first step, `saved` the checkpoint it came from."""
    for adapter in "AB":
        ours, theirs = (
            load_file(folder / adapter / "adapter_model.safetensors") for folder in (loaded, saved / "actor")
        )
        assert ours and same(ours, theirs)
    for name in ("training_state.pt", "rng_0.pt"):
        ours, theirs = (torch.load(f / name, weights_only=False) for f in (loaded, saved / "actor"))
        assert same(ours, theirs), name
    assert same(*(torch.load(f / "data.pt", weights_only=False) for f in (loaded, saved)))
    ours, theirs = (torch.load(f / "trainer.pt", weights_only=False) for f in (loaded, saved))
    assert ours["carried"]["trends"] and same(ours["carried"], theirs["carried"])
    assert same(ours["rng"], theirs["rng"])


def test_a_run_killed_inside_a_save_leaves_the_save_before(killed: Run, continued: Run) -> None:
    assert killed.returncode != 0
    assert [step["training/global_step"] for step in killed.steps] == list(range(1, KILLED))
    assert f"global_step_{KILLED - 1}, setting global step to {KILLED - 1}" in continued.output
    assert not list((killed.folder / "run").glob(".saving*"))  # swept without anyone's help


@pytest.mark.parametrize(("which", "step"), [("resumed", EPOCH), ("continued", KILLED - 1)])
def test_the_state_after_resume_is_that_of_the_save(
    killed: Run, which: str, step: int, request: pytest.FixtureRequest
) -> None:
    """With the self-check in between, which trains and marks the adapters."""
    run = request.getfixturevalue(which)
    assert_state(run.folder / "state", killed.folder / "run" / f"global_step_{step}")


def test_resume_sees_the_problems_roles_and_rates_of_the_uninterrupted_run(killed: Run, resumed: Run) -> None:
    for step, there, here in zip(range(EPOCH + 1, KILLED), killed.steps[EPOCH:], resumed.steps, strict=True):
        assert here["training/global_step"] == there["training/global_step"] == step
        assert problems(resumed, step) == problems(killed, step)
        assert guests(resumed, step) == guests(killed, step) != set()
        for name in ("A/draft/acc", "B/draft/acc"):
            assert (name in here) == (name in there)  # the same drafter
        for name in ("A/actor/lr", "B/actor/lr"):
            assert here[name] == there[name]


def test_a_checkpoint_says_what_it_is(killed: Run, tiny: Path) -> None:
    manifest = Manifest.read(killed.folder / "run" / "global_step_3")
    assert (manifest.step, manifest.base) == (3, str(tiny / "model"))
    assert manifest.base_hash == hash_of_base(tiny / "model")
    assert manifest.lora["lora_rank"] == 16 and manifest.game["reward"] == "adv"


def test_older_checkpoints_are_pruned(resumed: Run) -> None:
    steps = checkpoint.complete(resumed.folder / "run")
    assert len(steps) == 2 and steps[-1] >= 6


def test_a_judge_that_fails_once_costs_a_pair_and_no_wrong_answer(resumed: Run) -> None:
    failed = {step["training/global_step"]: step["pair/failed"] for step in resumed.steps}
    assert sum(failed.values()) == 1 and failed[4] == 0


def test_a_vllm_that_dies_during_an_update_costs_nothing(resumed: Run) -> None:
    """The update goes on to its end, and is saved although no save was due."""
    assert resumed.returncode != 0
    assert f"step {KILLED}: vLLM server 0 has failed (EngineDeadError" in resumed.output
    assert f"Step {KILLED} is saved. {AGAIN}" in resumed.output
    assert checkpoint.complete(resumed.folder / "run") == [KILLED - 1, KILLED]


def test_a_judge_that_hangs_in_validation_ends_the_run_with_the_reason(continued: Run) -> None:
    assert continued.returncode != 0 and not continued.steps
    assert "a reward took longer than agon.reward_timeout=10" in continued.output
    assert f"Step {KILLED} is saved. {AGAIN}: the run continues from global_step_{KILLED}" in continued.output


def test_a_failed_sync_ends_the_run_with_the_reason(not_synced: Run) -> None:
    assert not_synced.returncode != 0
    assert [step["training/global_step"] for step in not_synced.steps] == [KILLED + 1]
    assert f"step {NO_SYNC}: vLLM did not take the adapters" in not_synced.output
    assert "no adapters today" in not_synced.output
    assert f"Step {NO_SYNC} is saved. {AGAIN}: the run continues from global_step_{NO_SYNC}" in not_synced.output


def test_an_engine_that_no_longer_answers_ends_the_run_with_the_reason(stopped: Run) -> None:
    assert stopped.returncode != 0
    assert [step["training/global_step"] for step in stopped.steps] == [NO_SYNC + 1]
    assert f"step {STOPPED}: vLLM server 0 has not answered for agon.engine_timeout=60 seconds" in stopped.output
    assert f"Step {STOPPED - 1} is saved. {AGAIN}" in stopped.output


@pytest.mark.parametrize("which", ["continued", "not_synced", "stopped"])
def test_a_failed_run_ends_soon(which: str, request: pytest.FixtureRequest) -> None:
    assert seconds(request.getfixturevalue(which)) < 180


def test_what_was_learned_before_a_failure_is_saved(killed: Run, stopped: Run) -> None:
    """None of these steps was due to be saved; the problems of step 11 were drawn when vLLM stopped."""
    root = killed.folder / "run"
    assert checkpoint.complete(root) == [*range(1, KILLED), KILLED, NO_SYNC, STOPPED - 1]
    for step in (KILLED, NO_SYNC, STOPPED - 1):
        position = torch.load(root / f"global_step_{step}" / "data.pt", weights_only=False)
        assert position["_num_yielded"] % EPOCH == step % EPOCH


def test_a_run_continues_after_each_failure_from_what_was_saved(killed: Run, not_synced: Run, stopped: Run) -> None:
    assert_state(not_synced.folder / "state", killed.folder / "run" / f"global_step_{KILLED}")
    assert_state(stopped.folder / "state", killed.folder / "run" / f"global_step_{NO_SYNC}")


def test_a_frozen_adapter_plays_and_does_not_learn(continued: Run) -> None:
    updates = read_jsonl(continued.folder / "probe.jsonl")
    assert {update["adapter"] for update in updates} == {"A", "B"}
    for update in updates:
        before, after = update["before"][0], update["after"][0]
        assert (before[update["adapter"]] == after[update["adapter"]]) == (update["adapter"] == "B")


def test_guests_train_only_their_challenger(killed: Run) -> None:
    """A quarter of the problems are drafted by the rival's past self."""
    for step in range(1, KILLED):
        records = read_jsonl(killed.folder / "pairs" / f"{step}.jsonl")
        assert len(guests(killed, step)) == 1
        for record in records:
            assert record["drafter"].endswith("_past") == record["pair"]["guest"]
            assert record["drafter"][0] != record["challenger"]
