"""Killed in the middle of a save, resumed, its vLLM killed, its judge hung: a run that loses nothing.

Three runs. The first is killed inside the save of step 7. The second goes back to step 3, the end of an epoch, and must
be in the state of that save and see the problems that the first saw; in its step 7 vLLM is killed. The third goes on
where the first was killed, with one adapter frozen and no save due; in its step 8 the judge hangs.
"""

import time
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
        wait_for_step(folder / "metrics.jsonl", 6)
        (folder / "killed_at").write_text(str(time.time()))
        assert kill_marked(mark, "VLLM::EngineCore")

    places = [
        f"trainer.default_local_dir={folder / 'run'}",
        f"trainer.rollout_data_dir={folder / 'pairs'}",
        "trainer.resume_mode=resume_path",
        f"trainer.resume_from_path={killed.folder / 'run' / f'global_step_{EPOCH}'}",
        "trainer.max_actor_ckpt_to_keep=2",
    ]
    state = {"PROBE_STATE": str(folder / "state")}
    run = main_ppo(folder, *settings, *places, env=environment(folder, **state), meanwhile=meanwhile)
    (folder / "ended_at").write_text(str(time.time()))
    return run


@pytest.fixture(scope="module")
def continued(killed: Run, settings: list[str], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The killed run's own command again, with B frozen; the judge hangs once step 7 is done."""
    folder = tmp_path_factory.mktemp("continued")

    def meanwhile(mark: str) -> None:
        wait_for_step(folder / "metrics.jsonl", KILLED)
        (folder / "judge").write_text("hang")
        (folder / "hung_at").write_text(str(time.time()))

    places = [
        f"trainer.default_local_dir={killed.folder / 'run'}",
        f"trainer.rollout_data_dir={folder / 'pairs'}",
        "agon.frozen=[B]",
        "trainer.save_freq=100",
    ]
    state = {"PROBE_STATE": str(folder / "state"), "PROBE_LOG": str(folder / "probe.jsonl")}
    run = main_ppo(folder, *settings, *places, env=environment(folder, **state), meanwhile=meanwhile)
    (folder / "ended_at").write_text(str(time.time()))
    return run


def seconds(run: Run, since: str) -> float:
    return float((run.folder / "ended_at").read_text()) - float((run.folder / since).read_text())


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
    assert continued.steps[0]["training/global_step"] == KILLED
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


def test_a_killed_vllm_ends_the_run_with_the_reason(resumed: Run) -> None:
    assert resumed.returncode != 0
    assert "pairs failed" in resumed.output and "EngineDeadError" in resumed.output
    assert seconds(resumed, "killed_at") < 120


def test_a_hung_judge_ends_the_run_with_the_reason(continued: Run) -> None:
    assert continued.returncode != 0
    assert "a reward took longer than agon.reward_timeout=10" in continued.output
    assert seconds(continued, "hung_at") < 120


def test_what_was_learned_before_a_failure_is_saved(killed: Run, continued: Run) -> None:
    """Step 7 was not due to be saved, and the problems of step 8 were drawn when the judge hung."""
    root = killed.folder / "run"
    assert checkpoint.complete(root)[-1] == KILLED
    position = torch.load(root / f"global_step_{KILLED}" / "data.pt", weights_only=False)
    assert position["_num_yielded"] == KILLED % EPOCH == 1
    assert len(continued.steps) == 1


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
