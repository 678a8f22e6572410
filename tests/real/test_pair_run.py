"""One real run of four steps, and a stock one beside it: isolation of the adapters, roles, gaps, overlap, metrics."""

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file

from agon_verl.game.roles import roles
from tests.real.runs import ROOT, Run, main_ppo, read_jsonl, succeeded

pytestmark = pytest.mark.real
STEPS, DEAD_STEP, PROMPTS, N = 4, 3, 4, 4


def sizes(tiny: Path, n: int) -> list[str]:
    return [
        f"actor_rollout_ref.model.path={tiny / 'model'}",
        f"data.train_files={tiny / 'train.parquet'}",
        f"data.val_files={tiny / 'val.parquet'}",
        f"data.train_batch_size={PROMPTS}",
        "data.max_prompt_length=256",
        "data.max_response_length=32",
        f"actor_rollout_ref.rollout.n={n}",
        f"reward.custom_reward_function.path={ROOT / 'benchmarks' / 'coin_reward.py'}",
        "trainer.logger=[console,file]",
        "trainer.resume_mode=disable",
    ]


@pytest.fixture(scope="module")
def pair(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("pair")
    overrides = [
        "+recipe=agon_cpu",
        *sizes(tiny, N),
        "agon.init_noise=0.3",  # so that the adapters differ from the first step
        "actor_rollout_ref.actor.optim.lr=0.01",
        "trainer.v1.trainer_mode=agon_probe",
        f"trainer.total_training_steps={STEPS}",
        f"trainer.save_freq={STEPS}",
        f"trainer.test_freq={STEPS}",
        f"trainer.default_local_dir={folder / 'checkpoints'}",
        f"trainer.rollout_data_dir={folder / 'pairs'}",
        f"trainer.validation_data_dir={folder / 'validation'}",
    ]
    probe = {
        "VERL_USE_EXTERNAL_MODULES": "tests.real.probe",
        "PROBE_LOG": str(folder / "probe.jsonl"),
        "PROBE_DEAD_STEP": str(DEAD_STEP),
    }
    return succeeded(main_ppo(folder, *overrides, env=probe))


@pytest.fixture(scope="module")
def stock(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Stock verl GRPO, one adapter, 2N rollouts, on the same machine with the same sizes."""
    folder = tmp_path_factory.mktemp("stock")
    overrides = [
        "+recipe=agon_cpu",
        *sizes(tiny, 2 * N),
        "trainer.v1.trainer_mode=sync",
        "algorithm.adv_estimator=grpo",
        "actor_rollout_ref.rollout.agent.default_agent_loop=single_turn_agent",
        "actor_rollout_ref.rollout.agent.agent_loop_manager_class=null",
        "actor_rollout_ref.actor.optim.lr_scheduler_type=constant",
        "actor_rollout_ref.actor.optim.lr=0.01",
        "trainer.total_training_steps=2",
        "trainer.val_before_train=false",
        f"trainer.default_local_dir={folder / 'checkpoints'}",
    ]
    return succeeded(main_ppo(folder, *overrides))


@pytest.fixture(scope="module")
def updates(pair: Run) -> list[dict]:
    return read_jsonl(pair.folder / "probe.jsonl")


def changed(update: dict) -> set[str]:
    """Which parts of the state an update touched, on any rank."""
    ranks = zip(update["before"], update["after"], strict=True)
    return {part for before, after in ranks for part in before if before[part] != after[part]}


def test_every_stream_updates_its_own_adapter_and_nothing_else(updates: list[dict]) -> None:
    assert [(u["step"], u["stream"]) for u in updates] == [
        (step, stream) for step in range(1, STEPS + 1) for stream in ("draft", "challenge")
    ]
    for update in updates:
        who = roles(update["step"])
        assert update["adapter"] == (who.drafter if update["stream"] == "draft" else who.challenger)
        if update["live"]:
            assert changed(update) == {update["adapter"], f"adam.{update['adapter']}"}


def test_nothing_changes_between_updates(updates: list[dict]) -> None:
    for earlier, later in zip(updates, updates[1:], strict=False):
        assert earlier["after"] == later["before"]


def test_base_is_bit_identical_from_first_to_last(updates: list[dict]) -> None:
    assert [rank["base"] for rank in updates[0]["before"]] == [rank["base"] for rank in updates[-1]["after"]]


def test_adapters_start_apart(updates: list[dict]) -> None:
    first = updates[0]["before"][0]
    assert first["A"] != first["B"]


def test_a_stream_without_live_groups_leaves_weights_and_moments_alone(pair: Run, updates: list[dict]) -> None:
    dead = next(u for u in updates if u["step"] == DEAD_STEP and u["stream"] == "challenge")
    assert dead["live"] == 0
    assert changed(dead) == set()
    # Its schedule moves on with the step: both adapters have the same rate at the end.
    assert pair.steps[-1]["A/actor/lr"] == pair.steps[-1]["B/actor/lr"] == 0.0


def test_schedule_warms_up_and_decays_linearly(pair: Run) -> None:
    # verl logs the rate of the next update. 4 steps, int(0.1 * 4) = 0 of warm-up: 4/4, 3/4, 2/4, 1/4, then 0.
    assert [step["A/actor/lr"] for step in pair.steps] == pytest.approx([0.0075, 0.005, 0.0025, 0.0])


def gap_is_fine(gap: float, stock: Run) -> bool:
    """Within three times the widest gap that stock verl shows; both are rounding, and a swap is a million times it."""
    return gap <= 3 * max(step["training/rollout_probs_diff_mean"] for step in stock.steps)


def test_rollouts_come_from_the_intended_adapter(pair: Run, stock: Run) -> None:
    gaps = [
        step[f"{a}/training/rollout_probs_diff_mean"]
        for step in pair.steps
        for a in "AB"
        if f"{a}/actor/entropy" in step
    ]
    assert len(gaps) == 2 * STEPS - 1
    assert all(gap_is_fine(gap, stock) for gap in gaps), (gaps, stock.steps)


def test_the_check_fails_where_adapters_are_swapped(updates: list[dict], stock: Run) -> None:
    swapped = [update["swapped"]["rollout_probs_diff_mean"] for update in updates if update["live"]]
    assert not any(gap_is_fine(gap, stock) for gap in swapped), swapped


def test_challenges_start_before_all_drafts_are_done(pair: Run) -> None:
    pairs = read_jsonl(pair.folder / "pairs" / "2.jsonl")
    last_draft = max(record["draft_span"][1] for record in pairs)
    early = [record for record in pairs if record["challenge_span"][0] < last_draft]
    assert len(early) > 1
    assert pair.steps[1]["pair/overlap"] == len(early) / len(pairs)
    assert all(record["draft_span"][1] <= record["challenge_span"][0] for record in pairs)


def test_pairs_are_written_as_they_were_played(pair: Run) -> None:
    for step in range(1, STEPS + 1):
        pairs = read_jsonl(pair.folder / "pairs" / f"{step}.jsonl")
        assert len(pairs) == PROMPTS * N
        who = roles(step)
        assert {(p["drafter"], p["challenger"]) for p in pairs} == {tuple(who)}
        for record in pairs:
            c_a, c_b = record["pair"]["draft"]["correct"], record["pair"]["challenge"]["correct"]
            assert record["pair"]["draft_reward"] == 2 * c_a
            assert record["pair"]["challenge_reward"] == 2 * c_b + c_b * (1 - c_a)


def test_metrics_of_streams_adapters_pair_and_ledger_are_logged(pair: Run) -> None:
    for number, step in enumerate(pair.steps, start=1):
        who = roles(number)
        for stream, adapter in zip(("draft", "challenge"), who, strict=True):
            for name in ("acc", "format", "reward", "length", "dead_groups"):
                assert step[f"{adapter}/{stream}/{name}"] == step[f"{stream}/{name}"]
        for name in ("conversion", "damage", "leak", "summary_cut", "no_summary", "overlap"):
            assert 0 <= step[f"pair/{name}"] <= 1
        assert step["pair/failed"] == 0
        assert step["ledger/draft_generated"] == pytest.approx(step["draft/length"] * PROMPTS * N)
        assert step["ledger/challenge_prefilled"] > step["ledger/draft_prefilled"] + step["ledger/opponent_prefilled"]


def test_validation_names_both_cascades_and_both_adapters(pair: Run) -> None:
    for metrics in (pair.before_training, pair.steps[-1]):
        for label in ("A_to_B", "B_to_A", "A_alone", "B_alone"):
            assert 0 <= metrics[f"val-core/toy/sums/{label}/acc/mean@1"] <= 1
        for label in ("A_to_B", "B_to_A"):
            assert 0 <= metrics[f"val-aux/toy/sums/{label}/converted/mean@1"] <= 1
    assert "val-core/toy/sums/A_to_B/acc/mean@1" not in pair.steps[0]


def test_validation_generations_of_both_directions_are_kept(pair: Run) -> None:
    for direction in ("A_to_B", "B_to_A"):
        for step in (0, STEPS):
            rows = read_jsonl(pair.folder / "validation" / direction / f"{step}.jsonl")
            assert len(rows) == 2 * 8  # a draft and a challenge of each held-out problem


def test_checkpoint_holds_two_peft_adapters(pair: Run) -> None:
    folder = pair.folder / "checkpoints" / f"global_step_{STEPS}" / "actor"
    a, b = (load_file(folder / adapter / "adapter_model.safetensors") for adapter in "AB")
    assert a.keys() == b.keys() and len(a) == 2 * 2 * 7  # lora_A and lora_B of seven projections in two layers
    assert all(not a[name].equal(b[name]) for name in a)
    assert json.loads((folder / "A" / "adapter_config.json").read_text())["r"] == 16
