r"""`python -m agon_verl.matrix`: arms x seeds, trained where missing, evaluated, in one table.

    python -m agon_verl.matrix PLAN.yaml --out runs/main --minutes 22
    python -m agon_verl.matrix --recipe agon_math --methods grpo coop adv --seeds 0 1 2 --out runs/main \
      --evaluate --data deepmath math500 --dev-share 0.2 -- trainer.n_gpus_per_node=8

Without a plan the arguments after `--evaluate` are for `python -m agon_verl.evaluate`, those after `--` for verl. With
`--ray ADDRESS` each command is a job of a Ray cluster; `--at-once` cells run at a time. With `--minutes` the command
stops in time, and the same command continues, on this or another machine.
"""

import argparse
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agon_verl.files import lock, write_atomically
from agon_verl.matrix.cells import EVALUATED
from agon_verl.matrix.plan import METHODS, Arm, Cell, MatrixError, Plan, read_plan
from agon_verl.matrix.processes import Clock, Here, Runner
from agon_verl.matrix.summary import summary
from agon_verl.matrix.visit import Visit
from agon_verl.program import command, program_name


def arguments_to_plan(arguments: Sequence[str]) -> tuple[argparse.Namespace, Plan]:
    """The options of the command, and the plan that they name or consist of."""
    own, overrides = _split_at("--", list(arguments))
    own, evaluation = _split_at("--evaluate", own)
    parser = argparse.ArgumentParser(
        prog=program_name("matrix"),
        usage="%(prog)s PLAN.yaml --out DIR [options]\n"
        "       %(prog)s --out DIR [options] --evaluate --data SET … [-- verl's overrides]",
        description="Train arms x seeds, evaluate all, and write one table.",
    )
    add = parser.add_argument
    add("plan", nargs="?", type=Path, help="a plan in YAML (docs/matrix.md), in place of the next three options")
    add("--recipe", help="recipe of all cells (default: agon)")
    add("--methods", nargs="+", choices=METHODS, help="(default: grpo coop adv)")
    add("--seeds", nargs="+", type=int, help="(default: 0 1 2)")
    add("--out", type=Path, required=True)
    add("--untrained", action=argparse.BooleanOptionalAction, default=True, help="also the base itself")
    add("--ray", metavar="ADDRESS", help="submit each command as a Ray job, e.g. to http://head:8265")
    add("--at-once", type=int, help="cells at a time (default: the plan's, or 1)")
    add("--minutes", type=float, help="stop in time, with all state saved (default: no limit)")
    add("--only", choices=["train", "evaluate"], help="(default: both)")
    options = parser.parse_args(own)
    if options.ray and options.minutes is not None:
        parser.error("--minutes stops commands on this machine, not jobs of --ray: leave out one of the two")
    if options.plan:
        if overrides or evaluation or options.recipe or options.methods or options.seeds:
            parser.error("a plan has the recipe, arms, seeds, overrides and evaluation: leave them out here")
        plan = read_plan(options.plan, options.out)
    else:
        if "--data" not in evaluation:
            parser.error("the evaluation needs data: --evaluate --data SET")
        arms = tuple(Arm(method, method) for method in options.methods or ("grpo", "coop", "adv"))
        seeds, recipe = tuple(options.seeds or (0, 1, 2)), options.recipe or "agon"
        plan = Plan(options.out.absolute(), recipe, arms, seeds, tuple(overrides), tuple(evaluation))
    changes: dict[str, Any] = {} if options.at_once is None else {"at_once": options.at_once}
    return options, replace(plan, **changes, untrained=plan.untrained if options.untrained else ())


def _split_at(mark: str, arguments: list[str]) -> tuple[list[str], list[str]]:
    at = arguments.index(mark) if mark in arguments else len(arguments)
    return arguments[:at], arguments[at + 1 :]


def configured(plan: Plan, cell: Cell) -> Any:
    """The composed configuration of a cell."""
    import verl.trainer
    from hydra import compose, initialize_config_dir
    from hydra.errors import HydraException

    folder = Path(verl.trainer.__file__).parent / "config"
    try:
        with initialize_config_dir(str(folder), version_base=None):
            return compose("ppo_trainer", overrides=plan.training(cell))
    except HydraException as error:
        raise MatrixError(f"verl's configuration does not compose with the overrides of {cell.key}: {error}") from error


def matrix(
    plan: Plan, run: Runner, clock: Clock, only: str | None = None, together: bool = True
) -> tuple[str, list[str]]:
    """The tables, and what failed."""
    configs = [configured(plan, Cell(arm, plan.seeds[0])) for arm in plan.arms]  # all, before the first trains
    config = configs[0]
    plan.out.mkdir(parents=True, exist_ok=True)
    held = (plan.out / ".lock").open("w")
    try:
        lock(held)
    except BlockingIOError:
        raise MatrixError(f"--out {plan.out} is in use by another matrix: wait for it, or use another folder") from None
    with held:
        return _visit(plan, run, clock, config, only, together)


def _visit(
    plan: Plan, run: Runner, clock: Clock, config: Any, only: str | None, together: bool
) -> tuple[str, list[str]]:
    base, rollouts = config.actor_rollout_ref.model.path, config.actor_rollout_ref.rollout.n
    visit = Visit(plan, run, clock, base, rollouts, config.trainer.total_training_steps, together)
    try:
        if only != "evaluate":
            visit.train_all(evaluate_beside=plan.evaluate_beside and only is None)
        if only != "train":
            visit.evaluate_all()
    finally:
        visit.finish()
    text = summary(plan, visit.states)
    write_atomically(plan.out / "matrix.md", text)
    if missing := [key for key, state in visit.states.items() if state.state != EVALUATED]:
        text += f"\n{len(missing)} of {len(visit.states)} cells are not evaluated yet; the same command continues.\n"
    return text, visit.failures


@command
def main(arguments: Sequence[str] | None) -> None:
    options, plan = arguments_to_plan(sys.argv[1:] if arguments is None else arguments)
    clock = Clock(options.minutes)
    run: Runner = Here(clock, plan.stagger)
    if options.ray:
        from agon_verl.matrix.jobs import Jobs

        run = Jobs(options.ray)
    else:
        _stop_on_signals(clock)
    text, failures = matrix(plan, run, clock, options.only, together=not options.ray)
    print(text)
    if failures:
        raise MatrixError("\n  ".join(["these failed, the same command tries them again:", *failures]))


def _stop_on_signals(clock: Clock) -> None:
    """The first Ctrl-C or SIGTERM asks all commands to save and end; the second kills them."""

    def stop(*_: object) -> None:
        print("agon-verl: stopping; running cells save first", file=sys.stderr, flush=True)
        clock.stop(grace=0.0 if clock.stopped else 300.0)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)


if __name__ == "__main__":
    raise SystemExit(main())
