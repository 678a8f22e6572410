"""The command line: `evaluate TARGET --data … --out DIR`, `evaluate compare R1 R2`, `evaluate average R1 R2 …`.

`evaluate TARGET … --and TARGET …` evaluates several targets over one base with one vLLM, each with its own arguments.
"""

import argparse
import asyncio
import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from agon_verl.errors import AgonError
from agon_verl.evaluate import compare
from agon_verl.evaluate.judge import Judge
from agon_verl.evaluate.markdown import percent, report
from agon_verl.evaluate.play import MOA, Play, answers, missing, modes_of, overlong, plan
from agon_verl.evaluate.problems import EvaluationProblem, read_problems
from agon_verl.evaluate.results import RESULTS, Direction, Generated, Results, SetResults
from agon_verl.evaluate.statistics import split
from agon_verl.evaluate.store import Store
from agon_verl.evaluate.tally import set_results
from agon_verl.files import write_atomically
from agon_verl.inference.chat import Chat
from agon_verl.inference.moa import REFINE
from agon_verl.inference.options import add_players, chosen_players, key_values
from agon_verl.inference.players import InferenceError, Players, Sampling
from agon_verl.inference.vllm_engine import DIED, Engine
from agon_verl.pair.checkpoint import ADAPTER_FILE, prompts
from agon_verl.pair.direction import DIRECTIONS
from agon_verl.program import command, program_name

AND = "--and"


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=program_name("evaluate"),
        description="Evaluate a run, checkpoint, export or base model. Several over one base share a vLLM: put --and "
        "between the arguments of each. See also: compare --help, average --help.",
    )
    add_players(parser)
    add = parser.add_argument
    add("--data", nargs="+", required=True, metavar="SET", help="parquet files, or names of prepared sets")
    add("--out", type=Path, required=True, help="folder for generations and results; an existing one is continued")
    add("--modes", nargs="+", help="A_to_B B_to_A A_to_A B_to_B A B base moa (default: all that the target has)")
    add("--samples", type=int, default=1, help="samples per problem (default: 1)")
    add("--greedy", action="store_true", help="temperature 0")
    add("--seed", type=int, default=0, help="seed of the samples (default: 0)")
    development = parser.add_mutually_exclusive_group()
    development.add_argument("--dev", nargs="+", metavar="SET", help="sets to choose the cascade's direction on")
    development.add_argument("--dev-share", type=float, metavar="X", help="choose it on this share of each set instead")
    add("--reward", help="verifier: pkg://module or file.py, then :function (default: the run's, or the domain's)")
    add("--reward-kwargs", nargs="+", default=[], metavar="KEY=VALUE", help="arguments of the verifier")
    add("--trust-verifier", action="store_true", help="run the verifier that the target names, whatever code that is")
    add("--reward-timeout", type=float, help="seconds per verdict (default: the run's, or 90; 600 for code)")
    add("--max-failed", type=float, default=0.1, help="stop above this share of failed verdicts (default: 0.1)")
    add("--concurrency", type=int, default=512, help="requests in vLLM at a time, approximately (default: 512)")
    options = parser.parse_args(arguments)
    if options.samples < 1 or (options.greedy and options.samples > 1):
        parser.error("--samples must be 1 or more, and 1 with --greedy: greedy samples are all the same")
    if options.dev_share is not None and not 0 < options.dev_share < 1:
        parser.error("--dev-share must lie between 0 and 1")
    return options


def split_at(mark: str, arguments: Sequence[str]) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for argument in arguments:
        if argument == mark:
            parts.append([])
        else:
            parts[-1].append(argument)
    return parts


def players_of(options: argparse.Namespace) -> Players:
    players = chosen_players(options)
    greedy = Sampling(temperature=0.0, top_p=1.0, max_tokens=players.sampling.max_tokens)
    sampling = greedy if options.greedy else players.sampling
    return replace(players, sampling=sampling, reward_timeout=options.reward_timeout or players.reward_timeout)


def chosen_modes(options: argparse.Namespace, players: Players, problems: Sequence[EvaluationProblem]) -> list[str]:
    """`--modes`, or every mode whose prompts fit; a mode that is left out is reported on standard error."""
    modes = list(dict.fromkeys(options.modes or modes_of(players, options.greedy)))
    for mode in modes:
        answers(mode, "", 0, players.names)  # raises if it is unknown
    if options.greedy and MOA in modes:
        raise InferenceError("two greedy samples of the base are the same: leave out moa or --greedy")
    chat = Chat(players)
    over = {mode: max(overlong(chat, mode, problem) for problem in problems) for mode in modes}
    fitting = [mode for mode in modes if over[mode] <= 0]
    for mode in [mode for mode in modes if over[mode] > 0]:
        needed = players.max_prompt + over[mode]
        reason = f"the longest prompt of mode {mode} takes {needed} tokens, more than --max-prompt={players.max_prompt}"
        if options.modes or not fitting:
            raise InferenceError(f"{reason}: raise it, or leave out the mode or the problem")
        print(f"agon-verl: {reason}, so this mode is left out", file=sys.stderr)
    return fitting


def settings_of(players: Players, judge: Judge, seed: int) -> dict[str, Any]:
    """Everything that determines a generation and its verdict. Modes, data and samples may be added later."""

    def digest(content: bytes) -> str:
        return hashlib.sha256(content).hexdigest()[:16]

    texts = json.dumps([*prompts().values(), REFINE, players.template])
    return {
        "base": players.base_hash or players.base,
        "adapters": {name: digest((path / ADAPTER_FILE).read_bytes()) for name, path in players.adapters.items()},
        "sampling": {name: value for name, value in asdict(players.sampling).items() if name != "seed"},
        "seed": seed,
        "max_prompt": players.max_prompt,
        "domain": players.domain,
        **({} if players.withhold == "announced" else {"withhold": players.withhold}),  # older folders have none
        "tags": list(players.tags),
        "chat": dict(players.chat),
        "prompts": digest(texts.encode()),
        "verifier": judge.settings,
    }


def divide(options: argparse.Namespace) -> tuple[list[EvaluationProblem], list[EvaluationProblem]]:
    """The problems to choose the direction on, and the problems to report on."""
    held_out = read_problems(options.data)
    if options.dev:
        development = read_problems(options.dev)
        if shared := {p.id for p in development} & {p.id for p in held_out}:
            raise InferenceError(f"{len(shared)} problems of --dev are also in --data: remove them from one of the two")
        return development, held_out
    picked: set[str] = set()
    for source in {p.source for p in held_out} if options.dev_share else ():
        picked |= split([p.id for p in held_out if p.source == source], options.dev_share)
    return [p for p in held_out if p.id in picked], [p for p in held_out if p.id not in picked]


class Evaluation(AbstractContextManager["Evaluation"]):
    """One target: what has to be generated for it, and its results once that is done. Its folder is locked."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.players = options, players_of(options)
        development, self._held_out = divide(options)
        self._modes = chosen_modes(options, self.players, [*development, *self._held_out])
        # Without both directions there is none to choose; the reported problems stay the same.
        self._development = development if set(DIRECTIONS) <= set(self._modes) else []
        base = self.players.base
        if not self.players.checked:
            print(f"agon-verl: {base} is not on this machine yet, so its weights are not checked", file=sys.stderr)
        self._judge = Judge(self.players, options.reward, key_values(options.reward_kwargs), options.trust_verifier)
        jobs = [(problem, list(DIRECTIONS)) for problem in self._development]
        jobs += [(problem, self._modes) for problem in self._held_out]
        self._settings = settings_of(self.players, self._judge, options.seed)
        self._units = plan(jobs, options.samples, self.players.names)
        self._store = Store(options.out, self._settings)

    def __exit__(self, *_: object) -> None:
        self._store.close()

    @property
    def complete(self) -> bool:
        return not missing(self._units, self._store)

    async def play(self, engine: Engine) -> None:
        options = self.options
        play = Play(engine, self._judge, self._store, self.players.sampling, options.seed, options.max_failed)
        await play.run(self._units, options.concurrency)

    def finish(self) -> str:
        """Write the results; returns them as Markdown."""
        players, samples = self.players, self.options.samples
        generations = self._store.generations.values()

        def measured(problems: Sequence[EvaluationProblem], modes: Sequence[str]) -> SetResults:
            return set_results(self._store, [p.id for p in problems], modes, samples, players.names)

        chosen_on = measured(self._development, DIRECTIONS) if self._development else None
        sources = dict.fromkeys(p.source for p in self._held_out)
        results = Results(
            target=self.options.target,
            samples=samples,
            settings=self._settings,
            versions=self._store.versions,
            direction=direction_of(players, chosen_on),
            sets={s: measured([p for p in self._held_out if p.source == s], self._modes) for s in sources},
            development=chosen_on,
            ledger=Generated(
                generations=len(generations),
                generated=sum(g.tokens for g in generations),
                prefilled=sum(g.prompt_tokens for g in generations),
            ),
            left_out=sum(bool(g.error) for g in generations),
        )
        text = report(results)
        results.write(self.options.out / RESULTS)
        write_atomically(self.options.out / "results.md", text)
        return text


def evaluate(several: Sequence[argparse.Namespace]) -> None:
    """Evaluate targets over one base with one vLLM, one after the other, and print the results of each.

    An error of one of several targets does not stop the others; it is raised in the end.
    """
    if len({tuple(options.engine) for options in several}) > 1:
        raise InferenceError("--engine differs between targets of one command, which share a vLLM: use the same")
    failures: dict[str, AgonError] = {}

    @contextmanager
    def reported(options: argparse.Namespace) -> Iterator[None]:
        try:
            yield
        except AgonError as error:
            if len(several) == 1:
                raise
            failures[options.target] = error
            print(f"agon-verl: {options.target}: {error}", file=sys.stderr, flush=True)

    with ExitStack() as stack:
        waiting: list[Evaluation] = []
        for options in several:
            with reported(options):
                evaluation = stack.enter_context(Evaluation(options))
                if evaluation.complete:
                    print(evaluation.finish(), flush=True)
                else:
                    waiting.append(evaluation)
        if waiting:
            asyncio.run(_play(waiting, reported))
    if failures:
        raise InferenceError(f"{len(failures)} of {len(several)} targets failed: {', '.join(failures)}")


async def _play(
    waiting: Sequence[Evaluation], reported: Callable[[argparse.Namespace], AbstractContextManager[None]]
) -> None:
    first, *others = waiting
    shared = {"others": [other.players for other in others]} if others else {}
    with closing(Engine(first.players, **shared, **key_values(first.options.engine))) as engine:
        for evaluation in waiting:
            with reported(evaluation.options):
                own = engine if evaluation is first else engine.beside(evaluation.players)
                await evaluation.play(own)
                print(evaluation.finish(), flush=True)
            if not engine.alive:
                raise InferenceError(DIED)


def direction_of(players: Players, development: SetResults | None) -> Direction:
    """The direction that was better on the problems for development; without them, the one that the run chose."""
    if development:
        shares = ", ".join(f"{d} {percent(development.modes[d].pass_at_1)} %" for d in DIRECTIONS)
        why = f"on {development.problems} problems for development: {shares}"
        return Direction(chosen=development.post_hoc, why=why)
    return Direction(chosen=players.direction, why="by the run's own validation" if players.direction else "no data")


@command
def main(arguments: Sequence[str] | None) -> None:
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    kind = arguments[0] if arguments else ""
    try:
        if kind in ("compare", "average"):
            print(_side_by_side(kind, arguments[1:]))
        else:
            evaluate([parse(part) for part in split_at(AND, arguments)])
    except KeyboardInterrupt:
        print("agon-verl: stopped; the same command continues from here", file=sys.stderr)
        raise SystemExit(130) from None


def _side_by_side(kind: str, arguments: Sequence[str]) -> str:
    """`compare` takes two results, `average` any number."""
    parser = argparse.ArgumentParser(prog=program_name(f"evaluate {kind}"))
    what = "results.json, or its folder"
    if kind == "compare":
        parser.add_argument("results", nargs=2, help=f"{what}, or an arm of a matrix: the folder of its seeds")
        modes = "one of each (default: all that both have); `alone`: A and B, mean"
        parser.add_argument("--modes", nargs="+", help=modes)
    else:
        parser.add_argument("results", nargs="+", help=what)
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    options = parser.parse_args(arguments)
    if kind == "compare":
        first, second = options.results
        text, numbers = compare.compare(first, second, options.modes)
    else:
        text, numbers = compare.average(options.results)
    if options.json:
        write_atomically(options.json, json.dumps(numbers, indent=1) + "\n")
    return text


if __name__ == "__main__":
    raise SystemExit(main())
