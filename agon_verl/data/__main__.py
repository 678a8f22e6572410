"""The command line of `python -m agon_verl.data`: docs/data.md has examples."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agon_verl.data import functions, programs, sources
from agon_verl.data.prepare import prepare
from agon_verl.data.problem import DataError
from agon_verl.data.sources import Source
from agon_verl.data.write import write
from agon_verl.game.transcript import REASONING_TAGS
from agon_verl.program import command, program_name

_EPILOG = (
    "PATH_OR_NAME is a file (.parquet, .jsonl, .json, .csv), a folder of them, a saved dataset, or a dataset of the \
Hugging Face hub, followed by :CONFIG if it has several."
)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=program_name("data"),
        description="Prepare verl parquet files: train.parquet, heldout.parquet and a report.",
        epilog=_EPILOG,
    )
    commands = parser.add_subparsers(dest="source", required=True, metavar="SOURCE")
    deepmath = _command(commands, "deepmath", "DeepMath-103K: difficulty 8 without binary answers, as in the paper")
    deepmath.add_argument("--difficulty", default="8", help="a level or a range such as 5-7 (8)")
    contests = _command(commands, "codecontests", "CodeContests: problems that can be judged by their tests")
    contests.add_argument("--difficulty", default="EASY,A", help="labels, separated by commas (EASY,A)")
    contests.add_argument("--time-factor", type=float, default=3.0, help="factor on the contest's time limit (3)")
    benchmarks = [
        _command(commands, "humaneval", "HumanEval: for evaluation only; its asserts are judged outside the program"),
        _command(commands, "mbpp", "MBPP: its train split; its test split is the held-out set"),
        _command(commands, "livecodebench", "LiveCodeBench: for evaluation only; programs and functions"),
    ]
    _command(commands, "gsm8k", "GSM8K: its train split; its test split is the held-out set")
    _command(commands, "math500", "MATH-500: for evaluation only")
    custom = _command(commands, "custom", "any table, by a mapping of its columns")
    custom.add_argument("--problem", required=True, metavar="COLUMN", help="the text; a.b is field b of column a")
    truth = custom.add_mutually_exclusive_group(required=True)
    truth.add_argument("--answer", metavar="COLUMN", help="the reference answer")
    truth.add_argument("--tests", metavar="COLUMN", help="a program's tests: one column, or INPUTS,OUTPUTS")
    custom.add_argument("--where", metavar="CONDITION", action="append", default=[], help="'difficulty>=5'; repeatable")
    custom.add_argument("--name", help="data_source of the rows (the table's name)")
    for code in (contests, custom, *benchmarks):
        code.add_argument("--max-tests", type=int, default=20, help="tests per problem (20)")
    return parser.parse_args(arguments)


def _command(commands: Any, name: str, what: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=what, description=what, epilog=_EPILOG)
    add, place = parser.add_argument, "PATH_OR_NAME"
    add("--from", dest="table", metavar=place, required=name == "custom", help="in place of the hub's dataset")
    add("--split", help="split to read if there are several")
    add("--revision", help="commit or tag of the hub's dataset")
    add("--heldout-from", metavar=place, help="hold out this set instead of a part of the data")
    add("--train", metavar="N", help="problems to train on, or all")
    add("--heldout", metavar="N", help="problems to hold out, or all of --heldout-from")
    add("--against", metavar=place, nargs="+", help="evaluation sets that training must not contain, or none")
    add("--seed", type=int, default=0, help="of the split and the order (0)")
    add("--prompt", metavar="TEXT", help="the prompt, with {problem} where the text goes")
    tags = (
        f"ask for reasoning between these tags ({' '.join(REASONING_TAGS)}), for models that do not think by themselves"
    )
    add("--reasoning-tags", nargs="*", metavar="TAG", help=tags)
    add("--out", type=Path, metavar="FOLDER", help="(~/data/agon/SOURCE, where the recipes look)")
    add("--overwrite", action="store_true", help="replace files that have other rows")
    return parser


def source_of(options: argparse.Namespace) -> Source:
    if options.source == "deepmath":
        return sources.deepmath(options.difficulty)
    if options.source == "codecontests":
        return programs.codecontests(options.difficulty, options.max_tests, options.time_factor)
    if options.source == "custom":
        name = options.name or Path(options.table).stem
        if options.answer:
            return sources.custom_math(options.table, name, options.problem, options.answer, options.where)
        return functions.custom_code(
            options.table, name, options.problem, options.tests, options.where, options.max_tests
        )
    benchmarks = {"humaneval": functions.humaneval, "mbpp": functions.mbpp, "livecodebench": functions.livecodebench}
    if options.source in benchmarks:
        return benchmarks[options.source](options.max_tests)
    return sources.gsm8k() if options.source == "gsm8k" else sources.math500()


def with_options(source: Source, options: argparse.Namespace) -> Source:
    table = options.table or source.table
    heldout_table = options.heldout_from
    if heldout_table is None and source.heldout_split is not None and options.heldout != "0":
        heldout_table = table
        if source.train != 0 and Path(table).expanduser().is_file():
            raise DataError(
                f"--from {table} is one file: name the file of the test split with --heldout-from, or use --heldout 0"
            )
    against = source.against if options.against is None else options.against
    return replace(
        source,
        table=table,
        heldout_table=heldout_table,
        train=_count("--train", options.train, source.train),
        heldout=_count("--heldout", options.heldout, None if heldout_table else source.heldout),
        against=[] if list(against) == ["none"] else against,
        seed=options.seed,
        split=options.split or source.split,
        revision=options.revision,
    )


def _count(flag: str, value: str | None, default: int | None) -> int | None:
    if value is None or value == "all":
        return None if value else default
    if not value.isdecimal():
        raise DataError(f"{flag} {value} is not a number of problems: use a number, or all")
    return int(value)


def prompt_of(options: argparse.Namespace, source: Source) -> str:
    tags, prompt = options.reasoning_tags, options.prompt
    if prompt is not None and tags is not None:
        raise DataError("--prompt replaces the prompt that --reasoning-tags asks for: write the tags into --prompt")
    if prompt is not None and "{problem}" not in prompt:
        raise DataError(f"--prompt {prompt!r} does not contain the problem: write {{problem}} where it goes")
    if tags is None:
        return str(prompt or source.domain.prompt)
    if len(tags) not in (0, 2):
        raise DataError(f"--reasoning-tags {' '.join(tags)} is not an opening and a closing tag: give both, or none")
    opening, closing = tags or REASONING_TAGS
    return source.domain.tagged_prompt.replace("{opening}", opening).replace("{closing}", closing)


@command
def main(arguments: Sequence[str] | None) -> None:
    options = parse(arguments)
    source = source_of(options)
    prompt = prompt_of(options, source)
    source = with_options(source, options)
    folder = (options.out or Path("~/data/agon") / options.source).expanduser()
    print(write(folder, source, prepare(source), prompt, options.overwrite))
    print(f"Written to {folder}")


if __name__ == "__main__":
    raise SystemExit(main())
