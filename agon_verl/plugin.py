"""What verl loads (entry point `verl.plugins`) in every process that imports it: all registration is here.

Each process pays for this import, and verl swallows an exception raised in it. So it does little, leaves the heavy
parts to hooks that fire when verl imports the module they extend, and turns what is missing into a sentence to read.
"""

import importlib.metadata
import logging
import sys

from packaging.requirements import Requirement

DISTRIBUTION = "agon-verl"


def unmet_requirement() -> str | None:
    """The first requirement of this distribution that the environment does not meet, as a sentence with its fix.

    The supported versions stand in setup.py alone; this reads them from the installed metadata.
    """
    for line in importlib.metadata.requires(DISTRIBUTION) or []:
        requirement = Requirement(line)
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            found = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            found = None
        if found is None or not requirement.specifier.contains(found, prereleases=True):
            have = f"found {found}" if found else "it is not installed"
            want = f"{requirement.name}{requirement.specifier}"
            return f"agon-verl is off: it needs {want}, but {have}. Fix: pip install '{want}'"
    return None


def complain(problem: str) -> None:
    """Stop a run that asks for an Agon recipe; leave any other use of verl alone, with a warning."""
    if any("recipe=agon" in argument for argument in sys.argv):
        raise SystemExit(problem)
    logging.getLogger(__name__).warning(problem)


def register() -> None:
    import wrapt
    from hydra.core.plugins import Plugins

    from agon_verl.cpu import platform as cpu
    from agon_verl.search_path import RecipeSearchPath

    Plugins.instance().register(RecipeSearchPath)  # `+recipe=agon`
    if cpu.cpu_only():
        cpu.install()
        wrapt.register_post_import_hook(lambda _: cpu.register_engine(), "verl.workers.engine_workers")

    def register_trainer(_: object) -> None:
        import agon_verl.trainer.step  # noqa: F401  `trainer.v1.trainer_mode=agon`

    wrapt.register_post_import_hook(register_trainer, "verl.trainer.ppo.v1")


problem = unmet_requirement()
if problem is not None:
    complain(problem)
else:
    try:
        register()
    except Exception as error:  # verl would swallow it at DEBUG level; said aloud, then left to verl
        complain(f"agon-verl is off: its registration failed ({error!r}). Fix: reinstall it, or report this")
        raise
