"""A run on two data-parallel ranks with two vLLM replicas, and with the options that the first run leaves off.

An alarm stops it after its second step: the limit of `distance` is one that nothing can keep.
"""

from pathlib import Path

import pytest

from agon_verl.health.rules import NAMES
from agon_verl.pair import checkpoint
from tests.real.runs import PROMPTS, N, Run, changed, main_ppo, read_jsonl, sizes


@pytest.fixture(scope="module")
def run(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("two_ranks")
    overrides = [
        "+recipe=agon_cpu",
        *sizes(tiny),
        "trainer.v1.trainer_mode=agon_probe",
        "trainer.n_gpus_per_node=2",
        "ray_kwargs.ray_init.num_gpus=2",
        "trainer.total_training_steps=10",
        "agon.alarms.patience=2",
        "agon.alarms.limits.distance=1.5",
        "agon.alarms.stop=[distance]",
        *(f"agon.alarms.limits.{name}=null" for name in NAMES if name != "distance"),  # random weights raise others
        "trainer.val_before_train=false",
        f"trainer.default_local_dir={folder / 'checkpoints'}",
        f"trainer.rollout_data_dir={folder / 'pairs'}",
        "agon.rotation=fixed",
        "agon.reward=margin",
        "agon.init_noise=0.3",
        "agon.challenge_sampling.temperature=0.7",
        "agon.challenge_sampling.max_tokens=16",
        "actor_rollout_ref.actor.ppo_mini_batch_size=2",
        "actor_rollout_ref.actor.use_kl_loss=true",
        "actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-mean",
    ]
    probe = {"VERL_USE_EXTERNAL_MODULES": "tests.real.probe", "PROBE_LOG": str(folder / "probe.jsonl")}
    return main_ppo(folder, *overrides, env=probe)


def test_an_alarm_stops_the_run_with_a_checkpoint_and_says_what_to_try(run: Run) -> None:
    assert run.returncode != 0 and len(run.steps) == 2
    assert [step["health/alarms"] for step in run.steps] == [0, 1]
    assert "stopped after step 2, which is saved: alarm distance: health/distance = " in run.output
    assert "below 1.5, for 2 updates in a row" in run.output and "Try: " in run.output
    assert checkpoint.complete(run.folder / "checkpoints") == [2]
    assert len(list((run.folder / "checkpoints" / "global_step_2" / "actor").glob("rng_*.pt"))) == 2


def test_health_is_logged(run: Run) -> None:
    for step in run.steps:
        assert 0 < step["health/distance"] <= 1
        assert {"health/error_overlap", "health/copy", "health/dead_groups", "health/leak"} <= step.keys()


def test_each_rank_updates_only_the_streams_own_adapter(run: Run) -> None:
    updates = read_jsonl(run.folder / "probe.jsonl")
    assert [u["adapter"] for u in updates] == ["A", "B", "A", "B"]  # fixed roles
    for update in updates:
        assert len(update["after"]) == 2
        assert changed(update) == {update["adapter"], f"adam.{update['adapter']}"}


def test_the_ranks_hold_different_shards(run: Run) -> None:
    first, second = read_jsonl(run.folder / "probe.jsonl")[-1]["after"]
    assert first["base"] != second["base"] and first["B"] != second["B"]


def test_rollouts_match_training_on_every_replica_at_either_temperature(run: Run) -> None:
    for step in run.steps:
        assert step["A/training/rollout_probs_diff_mean"] < 1e-4
        assert step["B/training/rollout_probs_diff_mean"] < 1e-4  # the challenges are sampled at 0.7
    for update in read_jsonl(run.folder / "probe.jsonl"):
        assert update["swapped"]["rollout_probs_diff_mean"] > 1e-4


def test_the_reference_is_the_base(run: Run) -> None:
    # A starts as the base, so its first KL is zero; B starts with noise around it.
    assert run.steps[0]["A/actor/kl_loss"] == pytest.approx(0, abs=1e-6)
    assert run.steps[0]["B/actor/kl_loss"] > 1e-4


def test_challenges_have_their_own_sampling(run: Run) -> None:
    for step in run.steps:
        assert step["challenge/length"] <= 16 < step["draft/length"]


def test_margin_is_the_reward_of_record(run: Run) -> None:
    pairs = read_jsonl(run.folder / "pairs" / "1.jsonl")
    assert len(pairs) == PROMPTS * N
    for record in pairs:
        c_a, c_b = record["pair"]["draft"]["correct"], record["pair"]["challenge"]["correct"]
        assert record["pair"]["challenge_reward"] == 3 * c_b - c_a
