"""From rows to the train and held-out problems: convert, compare, split.

Problems are sorted by a hash of the seed and their text. So the split depends only on the seed and the problems: not on
the order of the input, nor on how many are requested; an added problem moves no other one. The held-out set comes
first, and the training set is compared with it as with every other evaluation set.
"""

import hashlib
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agon_verl.data.load import InputTable, open_table
from agon_verl.data.overlap import same_as, tokens
from agon_verl.data.problem import DataError, Problem, Unusable
from agon_verl.data.sources import Source

_TEXT_COLUMNS = ("question", "problem", "prompt", "description", "content", "text", "question_content")


@dataclass(frozen=True)
class Prepared:
    train: list[Problem]
    heldout: list[Problem]
    tables: dict[str, InputTable]  # by their use
    rows: int  # read for training and held-out
    removed: Counter[str]  # rows, by reason in the order in which the reasons first occurred
    tests_removed: Counter[str]


def prepare(source: Source) -> Prepared:
    removed: Counter[str] = Counter()
    tables: dict[str, InputTable] = {}
    if source.train == 0 and source.heldout == 0:
        raise DataError("--train 0 and --heldout 0 leave nothing to prepare: set one of them to a number above 0")
    if source.heldout_table is None and source.heldout is None:
        raise DataError(
            "--heldout all would leave nothing to train on: use a number, or a set of its own with --heldout-from"
        )
    separate: list[Problem] = []
    compared: list[tuple[str, list[str]]] = []
    pool: list[Problem] = []
    count = source.heldout or 0
    if source.heldout_table is not None:
        separate = _problems(source, source.heldout_table, "heldout", tables, removed)
        if len(separate) < count:
            raise DataError(f"{source.heldout_table} has {len(separate)} problems: lower --heldout {count} to that")
        count = 0
    if source.train != 0 or source.heldout_table is None:
        compared = [(name, _texts(source, name, tables)) for name in source.against]
        pool = _problems(source, source.table, "train", tables, removed)
    tests_removed = sum((problem.tests_removed for problem in (*separate, *pool)), Counter[str]())
    read = len(pool) + len(separate) + sum(removed.values())
    pool = _distinct(pool, [*compared, ("the held-out set", [problem.text for problem in separate])], removed)
    wanted = count + (1 if source.train is None else source.train)
    if len(pool) < wanted:
        requested = [f"--heldout {count}"] if count else []
        requested += ["1 or more to train on"] if source.train is None else [f"--train {source.train}"]
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in removed.most_common())
        raise DataError(
            f"{len(pool):,} of {read:,} problems remain, but {wanted:,} are requested ({', '.join(requested)}): lower "
            f"that, or accept more problems (--difficulty, --where); removed were {reasons or 'none'}"
        )
    heldout, pool = (pool[:count], pool[count:]) if source.heldout_table is None else (separate[: source.heldout], pool)
    return Prepared(pool[: source.train], heldout, tables, read, removed, tests_removed)


def _problems(
    source: Source, where: str, role: str, tables: dict[str, InputTable], removed: Counter[str]
) -> list[Problem]:
    """The problems of one table, in the order of their hashes."""
    split = source.heldout_split if role == "heldout" else source.split
    tables[role] = open_table(
        where, split=split, needed=source.needed, optional=source.optional, revision=source.revision
    )
    problems = []
    for number, row in enumerate(progress(tables[role].rows, f"reading {where}")):
        try:
            problems.append(replace(source.convert(row), row=number))
        except Unusable as reason:
            removed[str(reason)] += 1
        except DataError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{where} has a row {number} of another layout ({error!r}): correct or remove it"
            ) from error

    def rank(problem: Problem) -> tuple[bytes, str, int]:
        digest = hashlib.sha256(f"{source.seed}:{' '.join(tokens(problem.text))}".encode()).digest()
        return digest, problem.ground_truth, problem.row

    return sorted(problems, key=rank)


def _distinct(
    pool: list[Problem], compared: Iterable[tuple[str, Sequence[str]]], removed: Counter[str]
) -> list[Problem]:
    """The problems of the pool that are in none of the other sets and are not like an earlier one."""
    names = [name for name, texts in compared for _ in texts]
    others = [tokens(text) for _, texts in compared for text in texts]
    mine = [tokens(problem.text) for problem in progress(pool, "normalising")]
    same = same_as(others + mine, len(others))
    answers: dict[tuple[str, ...], set[str]] = {}
    for words, problem in zip(mine, pool, strict=True):
        answers.setdefault(tuple(words), set()).add(problem.ground_truth)
    kept = []
    for number, problem in enumerate(pool):
        other, how = same.get(len(others) + number, (None, ""))
        if other is not None and other < len(others):
            removed[f"{how} to one of {names[other]}"] += 1
        elif len(answers[tuple(mine[number])]) > 1:
            removed["equal to another with another reference"] += 1
        elif other is not None:
            removed[f"{how} to another"] += 1
        else:
            kept.append(problem)
    return kept


def _texts(source: Source, where: str, tables: dict[str, InputTable]) -> list[str]:
    """The texts of an evaluation set's problems."""
    try:
        table = open_table(where, split=None, needed=(), optional=(source.text_column, *_TEXT_COLUMNS))
        rows = list(progress(table.rows, f"reading {where}"))
    except DataError as error:
        raise DataError(
            f"the training problems must be compared with {where}, but {error}; or use another set with --against, or "
            "none with --against none"
        ) from error
    column = next((name for name in (source.text_column, *_TEXT_COLUMNS) if rows and name in rows[0]), None)
    if column is None:
        raise DataError(f"--against {where} has none of the columns {', '.join(_TEXT_COLUMNS)}: rename one")
    tables[f"compared with {where}"] = table
    return [_text(row[column]) for row in rows]


def _text(value: Any) -> str:
    """A text, or the last of the chat messages in a verl file."""
    return str(value[-1]["content"]) if isinstance(value, list) and value else str(value or "")


def progress(items: Iterable[Any], doing: str) -> Any:
    from tqdm import tqdm

    return tqdm(items, desc=doing, unit=" rows", leave=False, disable=not sys.stderr.isatty())
