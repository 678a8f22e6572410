"""Names of metrics, which dashboards and the report rely on."""

from dataclasses import replace

from agon_verl.config import AgonConfig
from agon_verl.game.rewards import Outcome
from agon_verl.game.roles import Roles
from agon_verl.trainer.metrics import direction_name, step_metrics, update_metric_name, validation_parts
from tests.unit.trainer.test_streams import PAIRS

WHO = Roles("B", "A")
WRONG = Outcome(correct=0.0, format=0.0, length=5)
READ = [PAIRS[0], replace(PAIRS[1], draft=WRONG), *PAIRS[2:]]  # drafts right, wrong, right, right; challenges right


def test_a_stream_is_logged_by_role_and_by_adapter() -> None:
    metrics = step_metrics(READ, WHO, AgonConfig())
    assert metrics["draft/acc"] == metrics["B/draft/acc"] == 0.75
    assert metrics["challenge/acc"] == metrics["A/challenge/acc"] == 1.0
    assert metrics["pair/conversion"] == 1.0 and metrics["pair/damage"] == 0.0
    assert metrics["ledger/problems"] == 2
    assert "A/draft/acc" not in metrics and "B/challenge/acc" not in metrics


def test_completions_that_read_nothing_have_no_metrics_of_an_exchange() -> None:
    metrics = step_metrics(READ, WHO, AgonConfig(reads="nothing"))
    assert not [name for name in metrics if name.startswith("pair/")]
    assert metrics["health/dead_groups"] == 0.5  # drafts of y, challenges of x


def test_one_group_is_logged_under_its_one_player() -> None:
    game = AgonConfig(players="one", reads="nothing")
    metrics = step_metrics(READ, Roles("A", "A"), game)
    assert "A/draft/acc" in metrics and "A/challenge/acc" not in metrics
    assert metrics["health/dead_groups"] == 0.0


def test_dead_groups_are_those_of_the_game() -> None:
    """By correctness: both sides of a pair are right but for one draft of x."""
    assert step_metrics(READ, WHO, AgonConfig(live_groups="correctness"))["health/dead_groups"] == 3 / 4
    assert step_metrics(READ, WHO, AgonConfig(live_groups="correctness"))["challenge/dead_groups"] == 1.0
    assert step_metrics(READ, WHO, AgonConfig())["challenge/dead_groups"] == 0.5


def test_the_gap_between_rollout_and_training_keeps_its_own_groups() -> None:
    assert update_metric_name("actor/pg_loss") == "actor/pg_loss"
    assert update_metric_name("actor/training/rollout_probs_diff_mean") == "training/rollout_probs_diff_mean"
    assert update_metric_name("actor/rollout_corr/kl") == "rollout_corr/kl"


def test_a_validation_is_named_by_direction_and_by_drafter() -> None:
    infos = {
        "acc": [1.0, 0.0, 1.0],
        "draft_acc": [0.0, 1.0, 1.0],
        "problem": ["p", "q", "q"],
        "reward": [3.0, 0.0, 2.0],
    }
    parts = validation_parts(WHO, infos)
    assert direction_name(WHO) == "B_to_A"
    assert parts.labelled == {
        "B_to_A": {"acc": [1.0, 0.0, 1.0], "reward": [3.0, 0.0, 2.0]},
        "B_alone": {"reward": [0.0, 1.0, 1.0], "acc": [0.0, 1.0, 1.0]},
    }
    assert parts.drafter_accuracy == {"p": 0.0, "q": 1.0}
    assert parts.health["health/val/B_to_A/conversion"] == 1.0
    assert parts.health["health/val/B_to_A/damage"] == 0.5
    assert infos.keys() == {"acc", "draft_acc", "problem", "reward"}  # not changed
