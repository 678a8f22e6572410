"""The run that `test_pair_run.py` and `test_methods.py` share: start-up takes most of a run on a small machine.

Its first four steps play Agon, and the probe compares the state before and after each update. Then every method of the
paper plays two steps, one with each assignment of roles: what a method sets travels with each problem. These steps are
streamed: micro-batches are so small that updates begin while vLLM still samples. In the first of the two a group is
live if its rewards differ, in the second if its verdicts do as well.
"""

import json
from pathlib import Path

import recipes
from agon_verl.config import AgonConfig
from tests.real.runs import Run, main_ppo, sizes, succeeded
from tests.recipes import composed

STEPS, DEAD_STEP = 4, 3  # of Agon; the step whose challenges have no live group
METHODS = sorted(path.stem for path in (Path(recipes.__file__).parent / "method").glob("*.yaml"))
LIVE_BY = ("reward", "correctness")
PLAYED = [method for method in METHODS for _ in LIVE_BY]
LAST_STEP = STEPS + len(PLAYED)
LEARNING_RATE = 0.01


def settings(method: str) -> AgonConfig:
    return AgonConfig.read(composed("+recipe=agon", f"+method={method}"))


def start(tiny: Path, folder: Path) -> Run:
    overrides = [
        "+recipe=agon_cpu",
        *sizes(tiny),
        "+reward.custom_reward_function.reward_kwargs.ties=false",  # rewards differ in form where verdicts do not
        "agon.init_noise=0.3",  # so that the adapters differ from the first step
        f"actor_rollout_ref.actor.optim.lr={LEARNING_RATE}",
        "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=512",
        "trainer.v1.trainer_mode=agon_probe",
        "trainer.total_epochs=2",
        f"trainer.total_training_steps={LAST_STEP}",
        f"trainer.save_freq={LAST_STEP}",
        f"trainer.test_freq={LAST_STEP}",
        f"trainer.default_local_dir={folder / 'checkpoints'}",
        f"trainer.rollout_data_dir={folder / 'pairs'}",
        f"trainer.validation_data_dir={folder / 'validation'}",
    ]
    probe = {
        "VERL_USE_EXTERNAL_MODULES": "tests.real.probe",
        "PROBE_LOG": str(folder / "probe.jsonl"),
        "PROBE_LOG_STEPS": str(STEPS),
        "PROBE_DEAD_STEP": str(DEAD_STEP),
        "PROBE_METHODS": json.dumps(
            [{"streamed": False}] * STEPS
            + [{**settings(method).method, "streamed": True, "live_groups": by} for method in METHODS for by in LIVE_BY]
        ),
        "PROBE_BATCHES": str(folder / "batches.jsonl"),
    }
    return succeeded(main_ppo(folder, *overrides, env=probe))
