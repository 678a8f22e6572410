"""Four real steps, and a stock run beside them: isolation of the adapters, roles, gaps, overlap, metrics."""

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file

from agon_verl.game.roles import roles
from tests.real.pair_run import DEAD_STEP, LAST_STEP, LEARNING_RATE, STEPS
from tests.real.runs import PROMPTS, N, Run, changed, main_ppo, read_jsonl, sizes, succeeded


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


def test_the_self_check_passed_before_the_first_step(pair: Run) -> None:
    assert "agon-verl: the self-check passed in" in pair.output


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
    # Its schedule moves on with the step: both adapters have the same rate afterwards.
    assert pair.steps[STEPS - 1]["A/actor/lr"] == pair.steps[STEPS - 1]["B/actor/lr"]


def test_schedule_warms_up_and_decays_linearly(pair: Run) -> None:
    # 22 steps, 2 of warm-up: 1/2, 2/2, then 20/20, 19/20, ..., 0. verl logs the rate of the next update.
    shares = [2 / 2, *(step / 20 for step in range(20, -1, -1))]
    assert [step["A/actor/lr"] for step in pair.steps] == pytest.approx([LEARNING_RATE * s for s in shares])


def gap_is_fine(gap: float, stock: Run) -> bool:
    """Within three times the widest gap that stock verl shows; both are rounding, and a swap is a million times it."""
    return gap <= 3 * max(step["training/rollout_probs_diff_mean"] for step in stock.steps)


def test_rollouts_come_from_the_intended_adapter(pair: Run, stock: Run) -> None:
    gaps = [
        step[f"{a}/training/rollout_probs_diff_mean"]
        for step in pair.steps[:STEPS]
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


def test_records_have_the_times_of_training_in_the_order_of_the_algorithm(pair: Run) -> None:
    for step in range(1, LAST_STEP + 1):
        pairs = read_jsonl(pair.folder / "pairs" / f"{step}.jsonl")
        for stage, role in (("draft", "drafter"), ("challenge", "challenger")):
            for record in (record for record in pairs if record[f"{stage}_update_span"]):
                updated, stepped = record[f"{stage}_update_span"], record["optimizer_spans"][record[role]]
                assert record[f"{stage}_span"][1] <= updated[0] < updated[1]
                assert updated[0] < stepped[0] < stepped[1] <= record["sync_span"][0] < record["sync_span"][1]


def test_an_update_that_waits_for_all_pairs_is_timed_after_them(pair: Run) -> None:
    for step in range(1, STEPS + 1):
        pairs = read_jsonl(pair.folder / "pairs" / f"{step}.jsonl")
        last = max(record["challenge_span"][1] for record in pairs)
        updates = {tuple(p[f"{stage}_update_span"] or ()) for p in pairs for stage in ("draft", "challenge")} - {()}
        assert len(updates) == len(pairs[0]["optimizer_spans"]) and all(begin >= last for begin, _ in updates)


def test_a_stream_without_live_groups_has_no_times(pair: Run) -> None:
    pairs = read_jsonl(pair.folder / "pairs" / f"{DEAD_STEP}.jsonl")
    assert all(record["challenge_update_span"] is None for record in pairs)
    assert all(set(record["optimizer_spans"]) == {record["drafter"]} for record in pairs)


def test_pairs_are_written_as_they_were_played(pair: Run) -> None:
    for step in range(1, STEPS + 1):
        pairs = read_jsonl(pair.folder / "pairs" / f"{step}.jsonl")
        assert len(pairs) == PROMPTS * N
        who = roles(step)
        assert {(p["drafter"], p["challenger"]) for p in pairs} == {tuple(who)}
        for record in pairs:
            c_a, c_b = record["pair"]["draft"]["correct"], record["pair"]["challenge"]["correct"]
            form_a, form_b = (0.5 * record["pair"][side]["format"] for side in ("draft", "challenge"))
            assert record["pair"]["draft_reward"] == pytest.approx(2 * c_a + form_a)
            assert record["pair"]["challenge_reward"] == pytest.approx(2 * c_b + c_b * (1 - c_a) + form_b)


def test_metrics_of_streams_adapters_pair_and_ledger_are_logged(pair: Run) -> None:
    for number, step in enumerate(pair.steps[:STEPS], start=1):
        who = roles(number)
        for stream, adapter in zip(("draft", "challenge"), who, strict=True):
            for name in ("acc", "format", "reward", "length", "dead_groups"):
                assert step[f"{adapter}/{stream}/{name}"] == step[f"{stream}/{name}"]
        for name in ("conversion", "damage", "leak", "summary_cut", "no_summary", "no_reasoning", "overlap"):
            assert 0 <= step[f"pair/{name}"] <= 1
        parts = sum(step[f"pair/no_summary_{why}"] for why in ("cut_off", "unclosed", "answer_only"))
        assert step["pair/no_summary"] == pytest.approx(parts)
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
        for step in (0, LAST_STEP):
            rows = read_jsonl(pair.folder / "validation" / direction / f"{step}.jsonl")
            assert len(rows) == 2 * 8  # a draft and a challenge of each held-out problem


def test_checkpoint_holds_two_peft_adapters(pair: Run) -> None:
    folder = pair.folder / "checkpoints" / f"global_step_{LAST_STEP}" / "actor"
    a, b = (load_file(folder / adapter / "adapter_model.safetensors") for adapter in "AB")
    assert a.keys() == b.keys() and len(a) == 2 * 2 * 7  # lora_A and lora_B of seven projections in two layers
    assert all(not a[name].equal(b[name]) for name in a)
    assert json.loads((folder / "A" / "adapter_config.json").read_text())["r"] == 16
