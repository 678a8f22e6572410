"""The runs of tests/gpu compose for a GPU, on a machine without one."""

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from agon_verl.trainer.preflight import check_settings
from tests.gpu import jobs
from tests.gpu.jobs import CACHE, Setting
from tests.real.runs import Run
from tests.recipes import composed


@pytest.mark.parametrize("job", [jobs.resumed, jobs.swapped, jobs.stock])
def test_the_settings_of_each_run_compose(job: object, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    taken: list[str] = []

    def main_ppo(folder: Path, *overrides: str, env: dict[str, str]) -> Run:
        taken.extend(overrides)
        return Run(folder, 0, "")

    monkeypatch.setattr(jobs, "main_ppo", main_ppo)
    job(Setting(tmp_path, "some/model", on_cpu=False, overrides=("trainer.balance_batch=false",)))  # type: ignore[operator]
    config = composed(*taken)
    OmegaConf.resolve(config)
    rollout = config.actor_rollout_ref.rollout
    assert rollout.engine_kwargs.vllm.kv_cache_memory_bytes == CACHE and rollout.enforce_eager
    assert config.trainer.device != "cpu" and not config.trainer.balance_batch
    if config.trainer.v1.trainer_mode == "agon":
        check_settings(config)
        assert config.agon.self_check and config.actor_rollout_ref.model.use_remove_padding
    else:
        assert "agon" not in config and job is jobs.stock
