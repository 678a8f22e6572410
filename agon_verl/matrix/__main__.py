r"""`python -m agon_verl.matrix`: methods x seeds, trained where missing, evaluated, in one table.

    python -m agon_verl.matrix --recipe agon_math --methods grpo coop adv --seeds 0 1 2 --out runs/main \
      --evaluate --data deepmath math500 --dev-share 0.2 -- trainer.n_gpus_per_node=8

What follows `--evaluate` goes to `python -m agon_verl.evaluate`, what follows `--` to verl. Cells run one after the
other; with `--ray ADDRESS` each is a job of a Ray cluster, `--at-once` of them at a time.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import recipes
from agon_verl.errors import AgonError
from agon_verl.evaluate.results import RESULTS, Results
from agon_verl.evaluate.summary import sources
from agon_verl.files import write_atomically
from agon_verl.matrix.cells import BASE, MatrixError, Plan, Runner, evaluate, run_here, train
from agon_verl.matrix.parity import parity, steps
from agon_verl.matrix.rows import MODES, PAIR, main_table
from agon_verl.program import program_name

METHODS = sorted(path.stem for path in (Path(recipes.__file__).parent / "method").glob("*.yaml"))


def arguments(given: Sequence[str]) -> tuple[argparse.Namespace, list[str], list[str]]:
    """The options, then what is for the evaluation, then what is for verl."""
    own, overrides = _divide(list(given), "--")
    own, evaluation = _divide(own, "--evaluate")
    parser = argparse.ArgumentParser(
        prog=program_name("matrix"),
        usage="%(prog)s [options] --evaluate --data SET … [-- verl's overrides]",
        description="Train methods x seeds, evaluate all, and write one table.",
    )
    parser.add_argument("--recipe", default="agon", help="what the cells have in common (agon)")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=["grpo", "coop", "adv"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--untrained", action=argparse.BooleanOptionalAction, default=True, help="also the base itself")
    parser.add_argument("--ray", metavar="ADDRESS", help="submit each command as a job, as http://head:8265")
    parser.add_argument("--at-once", type=int, default=1, help="cells at a time (1)")
    asked = parser.parse_args(own)
    if "--data" not in evaluation:
        parser.error("say what to evaluate on: --evaluate --data SET")
    return asked, evaluation, overrides


def _divide(given: list[str], mark: str) -> tuple[list[str], list[str]]:
    at = given.index(mark) if mark in given else len(given)
    return given[:at], given[at + 1 :]


def configured(plan: Plan, method: str, seed: int) -> Any:
    """The cell's config as verl would see it."""
    import verl.trainer
    from hydra import compose, initialize_config_dir
    from hydra.errors import HydraException

    folder = Path(verl.trainer.__file__).parent / "config"
    try:
        with initialize_config_dir(str(folder), version_base=None):
            return compose("ppo_trainer", overrides=plan.training(method, seed))
    except HydraException as error:
        raise MatrixError(f"the overrides do not compose: {error}") from error


def cell(plan: Plan, method: str, seed: int, run: Runner) -> dict[str, str]:
    """Train and evaluate one; what became of it."""
    folder = plan.folder(method, seed)
    try:
        train(plan, method, seed, run)
        evaluate(plan, folder / "checkpoints", folder / "eval", seed, MODES.get(method, PAIR), run)
    except MatrixError as error:
        trained = (folder / "trained.json").exists()
        return {"state": "trained" if trained else "failed", "error": str(error)}
    return {"state": "evaluated"}


def budget(plan: Plan, methods: Sequence[str], seeds: Sequence[int], cells: dict[str, dict[str, str]]) -> None:
    """Check each trained cell against the others: the same rollouts for the same number of problems."""
    n = configured(plan, methods[0], seeds[0]).actor_rollout_ref.rollout.n
    logged = {key: steps(plan.out / key / "metrics.jsonl") for key, told in cells.items() if told["state"] != "failed"}
    problems = max((sum(int(s["ledger/problems"]) for s in each) for each in logged.values()), default=0)
    for key, each in logged.items():
        cells[key]["parity"] = parity(each, n, problems)


def matrix(asked: argparse.Namespace, evaluation: list[str], overrides: list[str], run: Runner) -> str:
    plan = Plan(asked.out.absolute(), asked.recipe, overrides, evaluation)
    base = configured(plan, asked.methods[0], asked.seeds[0]).actor_rollout_ref.model.path
    keys = [(method, seed) for seed in asked.seeds for method in asked.methods]
    cells: dict[str, dict[str, str]] = {f"{m}/seed_{s}": {"state": "missing"} for m, s in keys}

    def done(method: str, seed: int) -> None:
        told = cell(plan, method, seed, run)
        cells[f"{method}/seed_{seed}"] = told
        print(f"{method}, seed {seed}: {told['state']}{' - ' + told['error'] if 'error' in told else ''}", flush=True)

    plan.out.mkdir(parents=True, exist_ok=True)
    if asked.untrained:
        try:
            evaluate(plan, base, plan.out / BASE / "eval", 0, MODES[BASE], run)
        except MatrixError as error:
            print(f"{BASE}: failed - {error}", flush=True)
    with ThreadPoolExecutor(asked.at_once) as pool:
        list(pool.map(lambda key: done(*key), keys))
    budget(plan, asked.methods, asked.seeds, cells)
    told = {"recipe": asked.recipe, "methods": asked.methods, "seeds": asked.seeds, "overrides": overrides}
    write_atomically(plan.out / "matrix.json", json.dumps({**told, "cells": cells}, indent=1) + "\n")
    text = summary(plan.out, asked.methods, asked.seeds, cells)
    write_atomically(plan.out / "matrix.md", text)
    return text


def summary(out: Path, methods: Sequence[str], seeds: Sequence[int], cells: dict[str, dict[str, str]]) -> str:
    found: dict[str, list[Results]] = {}
    for method in (BASE, *methods):
        folders = [out / BASE] if method == BASE else [out / method / f"seed_{seed}" for seed in seeds]
        read = [folder / "eval" / RESULTS for folder in folders]
        usable = [file for file, folder in zip(read, folders, strict=True) if _counts(file, folder, out, cells)]
        found[method] = [Results.read(file) for file in usable]
    failed = {m: sum(cells[f"{m}/seed_{s}"]["state"] != "evaluated" for s in seeds) for m in methods}
    every = sources([run for runs in found.values() for run in runs])
    parts = [f"## {source}\n\n{main_table(found, failed, source)}" for source in every]
    unequal = {key: told["parity"] for key, told in cells.items() if told.get("parity", "ok") != "ok"}
    if unequal:
        parts.append("**Unequal budgets:** " + "; ".join(f"{key}: {why}" for key, why in unequal.items()))
    parts.append(
        f"{len(seeds)} seeds a method; deviation and range are over seeds, which train, sample and order anew."
    )
    return "\n\n".join(parts) + "\n"


def _counts(file: Path, folder: Path, out: Path, cells: dict[str, dict[str, str]]) -> bool:
    key = str(folder.relative_to(out))
    return file.exists() and (key == BASE or cells[key]["state"] == "evaluated")


def main(given: Sequence[str] | None = None) -> int:
    asked, evaluation, overrides = arguments(sys.argv[1:] if given is None else given)
    try:
        run: Runner = run_here
        if asked.ray:
            from agon_verl.matrix.jobs import Jobs

            run = Jobs(asked.ray)
        print(matrix(asked, evaluation, overrides, run))
    except AgonError as error:
        print(f"agon-verl: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
