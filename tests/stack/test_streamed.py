"""Which steps are streamed, which groups are complete, and what is logged of an update that came in parts."""

from types import SimpleNamespace

import pytest

from agon_verl.config import AgonConfig
from agon_verl.game.roles import Roles
from agon_verl.rollout.buffer import Progress
from agon_verl.rollout.row_key import CHALLENGE, DRAFT
from agon_verl.trainer.streamed import StreamingTrainer, combined, obstacles
from agon_verl.trainer.update import Stream
from tests.recipes import composed

KEPT = "actor_rollout_ref.rollout.free_cache_engine=false"


def found(*overrides: str) -> list[str]:
    config = composed("+recipe=agon", *overrides)
    return obstacles(config, AgonConfig.read(config), reference=config.actor_rollout_ref.actor.use_kl_loss)


def test_the_paper_s_setting_is_streamed_once_vllm_keeps_its_memory() -> None:
    assert found(KEPT) == []
    assert found() == ["actor_rollout_ref.rollout.free_cache_engine=true"]


@pytest.mark.parametrize(
    "override",
    [
        "actor_rollout_ref.actor.fsdp_config.param_offload=true",
        "actor_rollout_ref.actor.fsdp_config.optimizer_offload=true",
        "actor_rollout_ref.actor.fsdp_config.dtype=float16",
        "actor_rollout_ref.actor.ppo_epochs=2",
        "actor_rollout_ref.actor.ppo_mini_batch_size=16",
        "actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-mean",
        "agon.opponent.share=0.5",
    ],
)
def test_a_setting_that_parts_cannot_keep_is_named(override: str) -> None:
    assert found(KEPT, override) == [override]


@pytest.mark.parametrize(
    ("override", "name"),
    [
        ("actor_rollout_ref.actor.use_kl_loss=true", "a KL term"),
        ("algorithm.use_kl_in_reward=true", "a KL term"),
        ("algorithm.rollout_correction.rollout_is=token", "algorithm.rollout_correction"),
        ("+method=grpo", "agon.players=one with agon.reads=nothing"),
        ("+method=shared_hidden", "agon.rival=shared"),
    ],
)
def test_rewards_and_corrections_that_need_all_rows_are_named(override: str, name: str) -> None:
    assert name in found(KEPT, override)


def progress(*keys: str, over: tuple[str, ...] = ()) -> Progress:
    return Progress("train", {key: {"seq_len": 1} for key in keys}, frozenset(over))


def test_drafts_are_complete_when_all_are_stored() -> None:
    seen = progress("x_0_0", "x_1_0", "x_1_1", "y_0_0", "y_0_1")
    assert seen.complete(DRAFT, n=2) == {"x"}
    assert seen.complete(CHALLENGE, n=2) == set()
    assert seen.rows_of("x", DRAFT) == ["x_0_0", "x_1_0"]


def test_a_problem_that_is_over_is_complete_although_a_pair_failed() -> None:
    seen = progress("x_0_0", "x_0_1", "x_1_0", "y_1_0", "y_1_1", over=("x", "y"))
    assert seen.complete(DRAFT, n=2) == seen.complete(CHALLENGE, n=2) == {"x", "y"}
    assert seen.rows_of("x", CHALLENGE) == ["x_0_1"] and seen.rows_of("y", DRAFT) == ["y_1_0"]


def test_metrics_of_parts_are_weighed_by_their_tokens() -> None:
    parts = [
        {"actor/pg_loss": 1.0, "training/rollout_probs_diff_max": 0.5, "global_seqlen/mean": 10.0},
        {"actor/pg_loss": 4.0, "training/rollout_probs_diff_max": 0.2, "global_seqlen/mean": 30.0},
    ]
    assert combined(parts, [20, 10]) == {
        "actor/pg_loss": 2.0,
        "training/rollout_probs_diff_max": 0.5,
        "global_seqlen/mean": 40.0,
    }


def test_the_last_drafts_do_not_wait_for_a_full_micro_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two problems of one pair each, micro-batches larger than both: the drafts are trained on before the pairs end."""
    stages = [
        progress("x_0_0"),
        progress("x_0_0", "y_0_0", "x_0_1", over=("x",)),
        progress("x_0_0", "y_0_0", "x_0_1", "y_0_1", over=("x", "y")),
    ]
    trainer = object.__new__(StreamingTrainer)
    trainer.config = composed("+recipe=agon", KEPT, "actor_rollout_ref.rollout.n=1")
    trainer.game, trainer.use_reference_policy, trainer.timing_raw = AgonConfig.read(trainer.config), False, {}
    trainer.replay_buffer = SimpleNamespace(progress=lambda _: stages.pop(0), wait=lambda last_line: last_line)
    monkeypatch.setattr(
        trainer, "_live", lambda seen, groups, index: [k for g in groups for k in seen.rows_of(g, index)]
    )
    parts: list[Stream] = []
    monkeypatch.setattr(trainer, "_train_part", parts.append)
    trainer._train_while_sampling(Roles(drafter="A", challenger="B"), problems=2)
    assert [(part.name, part.adapter, sorted(part.live.keys)) for part in parts] == [("draft", "A", ["x_0_0", "y_0_0"])]
    assert stages == []
