"""The command line: `evaluate TARGET --data … --out DIR`, `evaluate compare R1 R2`, `evaluate average R1 R2 …`."""

import argparse
import asyncio
import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from agon_verl.errors import AgonError
from agon_verl.evaluate import compare
from agon_verl.evaluate.arguments import options
from agon_verl.evaluate.judge import Judge
from agon_verl.evaluate.markdown import percent, report
from agon_verl.evaluate.play import MOA, Play, answers, missing, modes_of, overlong, plan
from agon_verl.evaluate.problems import Problem, read
from agon_verl.evaluate.results import RESULTS, Direction, Generated, Results, SetResults
from agon_verl.evaluate.statistics import split
from agon_verl.evaluate.store import Store
from agon_verl.evaluate.tally import set_results
from agon_verl.files import write_atomically
from agon_verl.inference.chat import Chat
from agon_verl.inference.moa import REFINE
from agon_verl.inference.options import chosen_players, key_values
from agon_verl.inference.players import InferenceError, Players, Sampling
from agon_verl.inference.vllm_engine import Engine
from agon_verl.pair.checkpoint import ADAPTER_FILE, prompts, versions
from agon_verl.pair.direction import DIRECTIONS
from agon_verl.program import program_name


def judged_players(asked: argparse.Namespace) -> Players:
    found = chosen_players(asked)
    greedy = Sampling(temperature=0.0, top_p=1.0, max_tokens=found.sampling.max_tokens)
    sampling = greedy if asked.greedy else found.sampling
    return replace(found, sampling=sampling, reward_timeout=asked.reward_timeout or found.reward_timeout)


def chosen_modes(asked: argparse.Namespace, players: Players, problems: Sequence[Problem]) -> list[str]:
    """Those asked for; else all whose prompts there is room for, and a word on the others."""
    modes = list(dict.fromkeys(asked.modes or modes_of(players, asked.greedy)))
    for mode in modes:
        answers(mode, "", 0, players.names)  # says if it is unknown
    if asked.greedy and MOA in modes:
        raise InferenceError("two greedy samples of the base are the same: leave moa out, or --greedy")
    chat = Chat(players)
    over = {mode: max(overlong(chat, mode, problem) for problem in problems) for mode in modes}
    fitting = [mode for mode in modes if over[mode] <= 0]
    for mode in [mode for mode in modes if over[mode] > 0]:
        needed = players.max_prompt + over[mode]
        told = f"the longest prompt of mode {mode} takes {needed} tokens, more than --max-prompt={players.max_prompt}"
        if asked.modes or not fitting:
            raise InferenceError(f"{told}: raise it, or leave the mode or the problem out")
        print(f"agon-verl: {told}, so this mode is left out", file=sys.stderr)
    return fitting


def settings_of(players: Players, judge: Judge, seed: int) -> dict[str, Any]:
    """What decides a generation and its verdict. Modes, data and samples may grow from one command to the next."""

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
        "tags": list(players.tags),
        "chat": dict(players.chat),
        "prompts": digest(texts.encode()),
        "verifier": judge.settings,
    }


def divide(asked: argparse.Namespace) -> tuple[list[Problem], list[Problem]]:
    """The problems to choose the direction on, and the others, which are reported."""
    held_out = read(asked.data)
    if asked.dev:
        development = read(asked.dev)
        if shared := {p.id for p in development} & {p.id for p in held_out}:
            raise InferenceError(f"{len(shared)} problems of --dev are in --data too: take them out of one")
        return development, held_out
    picked: set[str] = set()
    for source in {p.source for p in held_out} if asked.dev_share else ():
        picked |= split([p.id for p in held_out if p.source == source], asked.dev_share)
    return [p for p in held_out if p.id in picked], [p for p in held_out if p.id not in picked]


def evaluate(asked: argparse.Namespace) -> str:
    players = judged_players(asked)
    development, held_out = divide(asked)
    modes = chosen_modes(asked, players, [*development, *held_out])
    if not set(DIRECTIONS) <= set(modes):  # nothing to choose, but what is reported is the same for every run
        development = []
    if not players.checked:
        print(f"agon-verl: {players.base} is not on this machine yet, so its weights are not checked", file=sys.stderr)
    judge = Judge(players, asked.reward, key_values(asked.reward_kwargs))
    jobs = [(problem, list(DIRECTIONS)) for problem in development] + [(problem, modes) for problem in held_out]
    settings = settings_of(players, judge, asked.seed)
    with Store(asked.out, settings) as store:
        units = plan(jobs, asked.samples, players.names)
        if missing(units, store):
            asyncio.run(_play(players, judge, store, units, asked))
        results = measure(store, players, settings, modes, development, held_out, asked)
    text = report(results)
    results.write(asked.out / RESULTS)
    write_atomically(asked.out / "results.md", text)
    return text


async def _play(players: Players, judge: Judge, store: Store, units: Any, asked: argparse.Namespace) -> None:
    engine = Engine(players, **key_values(asked.engine))
    try:
        play = Play(engine, judge, store, players.sampling, asked.seed, asked.max_failed)
        await play.run(units, asked.concurrency)
    finally:
        engine.close()


def measure(
    store: Store,
    players: Players,
    settings: dict[str, Any],
    modes: Sequence[str],
    development: Sequence[Problem],
    held_out: Sequence[Problem],
    asked: argparse.Namespace,
) -> Results:
    def measured(problems: Sequence[Problem], modes: Sequence[str]) -> SetResults:
        return set_results(store, [p.id for p in problems], modes, asked.samples, players.names)

    chosen_on = measured(development, DIRECTIONS) if development else None
    if chosen_on:
        shares = ", ".join(f"{d} {percent(chosen_on.modes[d].pass_at_1)} %" for d in DIRECTIONS)
        why = f"on {len(development)} problems for development: {shares}"
        direction = Direction(chosen_on.post_hoc, why)
    else:
        direction = Direction(players.direction, "by the run's own validation" if players.direction else "no data")
    sources = dict.fromkeys(p.source for p in held_out)
    made = store.all()
    return Results(
        target=asked.target,
        samples=asked.samples,
        settings=settings,
        versions=versions(),
        direction=direction,
        sets={source: measured([p for p in held_out if p.source == source], modes) for source in sources},
        development=chosen_on,
        ledger=Generated(len(made), sum(g.tokens for g in made), sum(g.prompt_tokens for g in made)),
        left_out=sum(bool(g.error) for g in made),
    )


def main(given: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if given is None else given)
    try:
        if arguments[:1] == ["compare"] or arguments[:1] == ["average"]:
            return _side_by_side(arguments[0], arguments[1:])
        print(evaluate(options(arguments)))
    except AgonError as error:
        print(f"agon-verl: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("agon-verl: stopped; the same command goes on from here", file=sys.stderr)
        return 130
    return 0


def _side_by_side(command: str, given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog=program_name(f"evaluate {command}"))
    parser.add_argument("results", nargs=2 if command == "compare" else "+", help="results.json, or its folder")
    parser.add_argument("--json", type=Path, help="write the numbers there too")
    if command == "compare":
        parser.add_argument("--modes", nargs="+", help="one of either, if not every one that both have")
    asked = parser.parse_args(given)
    if command == "compare":
        text, told = compare.compare(asked.results[0], asked.results[1], asked.modes)
    else:
        text, told = compare.average(asked.results)
    if asked.json:
        write_atomically(asked.json, json.dumps(told, indent=1) + "\n")
    print(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
