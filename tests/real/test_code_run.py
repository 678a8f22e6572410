"""`+recipe=agon_code` for real: two adapters write programs, which run in the sandbox, and learn from what they did."""

import pytest

from agon_verl.game.transcript import read
from tests.real.coder import RIGHT, WRONG, make_coder, make_problems
from tests.real.runs import Run, main_ppo, read_jsonl, succeeded

pytestmark = pytest.mark.usefixtures("isolated")
STEPS, PROMPTS, N = 3, 4, 8


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("code")
    return succeeded(
        main_ppo(
            folder,
            "+recipe=agon_code",
            "+machine=cpu",
            f"actor_rollout_ref.model.path={make_coder(folder / 'model')}",
            f"data.train_files={make_problems(folder / 'train.parquet', 16)}",
            f"data.val_files={make_problems(folder / 'val.parquet', 4)}",
            f"data.train_batch_size={PROMPTS}",
            "data.max_response_length=64",
            f"actor_rollout_ref.rollout.n={N}",
            "actor_rollout_ref.actor.optim.lr=0.001",
            "actor_rollout_ref.actor.use_dynamic_bsz=false",
            "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=5",  # no number of live rows is a multiple
            "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=5",
            "reward.custom_reward_function.reward_kwargs.time_limit=30",  # two cores do everything else as well
            f"trainer.total_training_steps={STEPS}",
            f"trainer.test_freq={STEPS}",
            "trainer.save_freq=-1",
            f"trainer.default_local_dir={folder / 'checkpoints'}",
            f"trainer.rollout_data_dir={folder / 'pairs'}",
            "trainer.logger=[console,file]",
        )
    )


def test_programs_are_judged_by_what_they_do(run: Run) -> None:
    """Those that a summary ends with. A sampled text that never closes its reasoning has no summary and no program."""
    pairs = [pair for step in range(1, STEPS + 1) for pair in read_jsonl(run.folder / "pairs" / f"{step}.jsonl")]
    assert len(pairs) == STEPS * PROMPTS * N
    judged = {RIGHT: set(), WRONG: set()}
    for pair in pairs:
        for side in ("draft", "challenge"):
            summary, correct = read(pair[side]).summary, pair["pair"][side]["correct"]
            assert summary or not correct
            for program, verdicts in judged.items():
                if (summary or "").endswith(f"```python\n{program}\n```"):
                    verdicts.add(correct)
    assert judged == {RIGHT: {1.0}, WRONG: {0.0}}


def test_the_challenger_never_sees_the_program(run: Run) -> None:
    pairs = read_jsonl(run.folder / "pairs" / "1.jsonl")
    shown = [pair["attempt"]["shown"] or "" for pair in pairs if RIGHT in pair["draft"]]  # None: no summary
    assert any(shown) and not [text for text in shown if "print" in text]


def test_both_adapters_learn_from_it(run: Run) -> None:
    for adapter in "AB":
        assert any(step.get(f"{adapter}/actor/grad_norm", 0) > 0 for step in run.steps)
    assert all(step["pair/failed"] == 0 for step in run.steps)


def test_the_learning_rates_end_at_zero(run: Run) -> None:
    assert run.steps[-1]["A/actor/lr"] == run.steps[-1]["B/actor/lr"] == 0.0
