r"""`python -m agon_verl.matrix`: methods x seeds, trained where missing, evaluated, in one table.

    python -m agon_verl.matrix --recipe agon_math --methods grpo coop adv --seeds 0 1 2 --out runs/main \
      --evaluate --data deepmath math500 --dev-share 0.2 -- trainer.n_gpus_per_node=8

The arguments after `--evaluate` are for `python -m agon_verl.evaluate`, those after `--` for verl. Cells run one after
the other. With `--ray ADDRESS` each command is a job of a Ray cluster; `--at-once` cells run at a time.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import recipes
from agon_verl.evaluate.results import RESULTS, Results
from agon_verl.evaluate.summary import sources
from agon_verl.files import write_atomically
from agon_verl.game.roles import BASE
from agon_verl.matrix.cells import CellState, MatrixError, Plan, Runner, check_budgets, evaluate, run_cell, run_here
from agon_verl.matrix.rows import MODES, main_table
from agon_verl.program import command, program_name

METHODS = sorted(path.stem for path in (Path(recipes.__file__).parent / "method").glob("*.yaml"))
_SEED = "A seed sets the initial weights, the sampling and the order of the data."


def split_arguments(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str], list[str]]:
    """The options of the matrix, the arguments of the evaluation, and the overrides for verl."""
    own, overrides = _split_at("--", list(arguments))
    own, evaluation = _split_at("--evaluate", own)
    parser = argparse.ArgumentParser(
        prog=program_name("matrix"),
        usage="%(prog)s [options] --evaluate --data SET … [-- verl's overrides]",
        description="Train methods x seeds, evaluate all, and write one table.",
    )
    parser.add_argument("--recipe", default="agon", help="recipe of all cells (default: agon)")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=["grpo", "coop", "adv"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--untrained", action=argparse.BooleanOptionalAction, default=True, help="also the base itself")
    parser.add_argument("--ray", metavar="ADDRESS", help="submit each command as a Ray job, e.g. to http://head:8265")
    parser.add_argument("--at-once", type=int, default=1, help="cells at a time (default: 1)")
    options = parser.parse_args(own)
    if "--data" not in evaluation:
        parser.error("the evaluation needs data: --evaluate --data SET")
    return options, evaluation, overrides


def _split_at(mark: str, arguments: list[str]) -> tuple[list[str], list[str]]:
    at = arguments.index(mark) if mark in arguments else len(arguments)
    return arguments[:at], arguments[at + 1 :]


def configured(plan: Plan, method: str, seed: int) -> Any:
    """The composed configuration of a cell."""
    import verl.trainer
    from hydra import compose, initialize_config_dir
    from hydra.errors import HydraException

    folder = Path(verl.trainer.__file__).parent / "config"
    try:
        with initialize_config_dir(str(folder), version_base=None):
            return compose("ppo_trainer", overrides=plan.training(method, seed))
    except HydraException as error:
        raise MatrixError(f"verl's configuration does not compose with these overrides: {error}") from error


def matrix(options: argparse.Namespace, evaluation: list[str], overrides: list[str], run: Runner) -> str:
    plan = Plan(options.out.absolute(), options.recipe, overrides, evaluation)
    config = configured(plan, options.methods[0], options.seeds[0]).actor_rollout_ref
    plan.out.mkdir(parents=True, exist_ok=True)
    if options.untrained:
        try:
            evaluate(plan, config.model.path, plan.out / BASE / "eval", 0, MODES[BASE], run)
        except MatrixError as error:
            print(f"{BASE}: failed - {error}", flush=True)

    keys = [(method, seed) for seed in options.seeds for method in options.methods]
    with ThreadPoolExecutor(options.at_once) as pool:
        states = list(pool.map(lambda key: run_cell(plan, key[0], key[1], run), keys))
    finished = {f"{method}/seed_{seed}": state for (method, seed), state in zip(keys, states, strict=True)}
    cells = check_budgets(plan, config.rollout.n, finished)
    record = {"recipe": options.recipe, "methods": options.methods, "seeds": options.seeds, "overrides": overrides}
    record["cells"] = {key: cell.to_json() for key, cell in cells.items()}
    write_atomically(plan.out / "matrix.json", json.dumps(record, indent=1) + "\n")
    text = summary(plan, options.methods, options.seeds, cells)
    write_atomically(plan.out / "matrix.md", text)
    return text


def summary(plan: Plan, methods: Sequence[str], seeds: Sequence[int], cells: Mapping[str, CellState]) -> str:
    def results(method: str) -> list[Results]:
        usable = [seed for seed in seeds if cells[f"{method}/seed_{seed}"].state == "evaluated"]
        return [Results.read(plan.folder(method, seed) / "eval") for seed in usable]

    untrained = plan.out / BASE / "eval" / RESULTS
    by_method = {BASE: [Results.read(untrained)] if untrained.exists() else [], **{m: results(m) for m in methods}}
    failed = {method: len(seeds) - len(by_method[method]) for method in methods}
    every = sources([run for runs in by_method.values() for run in runs])
    parts = [f"## {source}\n\n{main_table(by_method, failed, source)}" for source in every]
    unequal = [f"{key}: {cell.parity}" for key, cell in cells.items() if cell.parity not in (None, "ok")]
    parts += [f"**Unequal budgets:** {'; '.join(unequal)}"] if unequal else []
    parts.append(f"{len(seeds)} seeds per method; deviation and range are over seeds. {_SEED}")
    return "\n\n".join(parts) + "\n"


@command
def main(arguments: Sequence[str] | None) -> None:
    options, evaluation, overrides = split_arguments(sys.argv[1:] if arguments is None else arguments)
    run: Runner = run_here
    if options.ray:
        from agon_verl.matrix.jobs import Jobs

        run = Jobs(options.ray)
    print(matrix(options, evaluation, overrides, run))


if __name__ == "__main__":
    raise SystemExit(main())
