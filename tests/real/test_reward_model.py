"""A run whose judge is a reward model that vLLM serves beside the pair."""

from pathlib import Path

import pytest

from tests.real.runs import PROMPTS, N, Run, main_ppo, sizes, succeeded


@pytest.fixture(scope="module")
def run(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder, model = tmp_path_factory.mktemp("reward_model"), tiny / "model"
    judge = "reward.reward_model"
    overrides = [
        "+recipe=agon_cpu",
        *sizes(tiny),
        f"reward.custom_reward_function.path={Path(__file__).with_name('judged_reward.py')}",
        f"+reward.custom_reward_function.reward_kwargs.model={model}",
        f"{judge}.enable=true",
        f"{judge}.enable_resource_pool=true",
        f"{judge}.n_gpus_per_node=1",
        f"{judge}.nnodes=1",
        f"{judge}.model_path={model}",
        f"{judge}.rollout.name=vllm",
        f"{judge}.rollout.tensor_model_parallel_size=1",
        f"{judge}.rollout.dtype=float32",
        f"{judge}.rollout.max_model_len=512",
        f"{judge}.rollout.max_num_seqs=64",
        f"{judge}.rollout.free_cache_engine=false",
        f"+{judge}.rollout.enable_sleep_mode=false",
        "ray_kwargs.ray_init.num_gpus=2",
        "trainer.total_training_steps=1",
        "trainer.val_before_train=false",
        "trainer.test_freq=-1",
        "trainer.save_freq=-1",
        f"trainer.default_local_dir={folder / 'checkpoints'}",
    ]
    return succeeded(main_ppo(folder, *overrides))


def test_the_reward_model_judges_every_pair(run: Run) -> None:
    (step,) = run.steps
    assert step["pair/failed"] == 0 and step["ledger/rollouts"] == 2 * PROMPTS * N
    assert step["draft/format"] == step["challenge/format"] == 1
