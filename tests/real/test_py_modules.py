"""The plugin sent to a cluster with Ray's `py_modules`, where it is not installed."""

import subprocess
from pathlib import Path

from tests.not_installed import PACKAGES, ROOT, python_without_agon
from tests.real.runs import kill_marked, ray_environment
from tests.recipes import CONFIG

PROGRAM = """
import sys
import ray

folders, config = sys.argv[1:-1], sys.argv[-1]
environment = {"py_modules": folders, "env_vars": {"VERL_USE_EXTERNAL_MODULES": "agon_verl.plugin"}}
ray.init(num_cpus=1, include_dashboard=False, runtime_env=environment)


@ray.remote
def on_a_worker():
    from hydra import compose, initialize_config_dir
    from verl.trainer.ppo.v1 import get_trainer_cls

    import agon_verl

    with initialize_config_dir(config, version_base=None):
        recipe = compose("ppo_trainer", overrides=["+recipe=agon"])
    from agon_verl.trainer.step import AgonTrainer  # everything that a run imports

    return agon_verl.__file__, recipe.agon.reward, get_trainer_cls("agon").__name__, AgonTrainer.__name__


print("worker:", *ray.get(on_a_worker.remote()))
"""


def test_workers_find_plugin_recipes_and_trainer(tmp_path: Path) -> None:
    python = python_without_agon(tmp_path / "python")
    command = [python, "-c", PROGRAM, *(str(ROOT / package) for package in PACKAGES), str(CONFIG)]
    with ray_environment() as (environment, mark):
        environment.pop("PYTHONPATH")
        try:
            done = subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, timeout=600)
        finally:
            kill_marked(mark)
    line = next((line for line in done.stdout.splitlines() if line.startswith("worker: ")), done.stderr)
    assert "_ray_pkg_" in line and line.endswith("adv TrainerOnDemand AgonTrainer")
