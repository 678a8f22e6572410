"""From rows to the train and held-out problems: convert, compare, split.

Problems are sorted by a hash of the seed and their text. So the split depends only on the seed and the problems: not on
the order of the input, nor on how many are requested; an added problem moves no other one. The held-out set comes
first, and the training set is compared with it as with every other evaluation set.
"""

import hashlib
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from agon_verl.data.load import InputTable, open_table
from agon_verl.data.overlap import same_as, tokens
from agon_verl.data.problem import DataError, Problem, Removed, Unusable
from agon_verl.data.sources import Source

_TEXT_COLUMNS = ("question", "problem", "prompt", "description", "content", "text")


@dataclass(frozen=True)
class Request:
    """The options of the command; `None` means all there are."""

    source: Source
    table: str
    heldout_table: str | None
    train: int | None
    heldout: int | None
    against: Sequence[str]
    seed: int
    split: str | None
    revision: str | None
    text_column: str | None = None


@dataclass(frozen=True)
class Prepared:
    train: list[Problem]
    heldout: list[Problem]
    tables: dict[str, InputTable]  # by their use
    rows: int  # read for training and held-out
    removed: Removed


def prepare(request: Request) -> Prepared:
    removed = Removed()
    tables: dict[str, InputTable] = {}
    if request.train == 0 and request.heldout == 0:
        raise DataError("--train 0 and --heldout 0 leave nothing to prepare: set one of them to a number above 0")
    if request.heldout_table is None and request.heldout is None:
        raise DataError(
            "--heldout all would leave nothing to train on: use a number, or a set of its own with --heldout-from"
        )
    separate: list[Problem] = []
    compared: list[tuple[str, list[str]]] = []
    pool: list[Problem] = []
    if request.heldout_table is not None:
        separate = _problems(request, request.heldout_table, "heldout", tables, removed)
    if request.train != 0 or request.heldout_table is None:
        compared = [(name, _texts(request, name, tables)) for name in request.against]
        pool = _problems(request, request.table, "train", tables, removed)
    read = len(pool) + len(separate) + sum(removed.rows.values())
    if request.heldout_table is None:
        count = request.heldout or 0
        pool = _distinct(pool, compared, removed)
        _enough(len(pool), request, read, removed)
        heldout, pool = pool[:count], pool[count:]
    else:
        if len(separate) < (request.heldout or 0):
            raise DataError(
                f"{request.heldout_table} has {len(separate)} problems: lower --heldout {request.heldout} to that"
            )
        pool = _distinct(pool, [*compared, ("the held-out set", [problem.text for problem in separate])], removed)
        _enough(len(pool), request, read, removed)
        heldout = separate[: request.heldout]
    return Prepared(pool[: request.train], heldout, tables, read, removed)


def _problems(
    request: Request, where: str, role: str, tables: dict[str, InputTable], removed: Removed
) -> list[Problem]:
    """The problems of one table, in the order of their hashes."""
    source = request.source
    split = source.heldout_split if role == "heldout" else request.split or source.split
    tables[role] = open_table(
        where, split=split, needed=source.needed, optional=source.optional, revision=request.revision
    )
    problems = []
    for number, row in enumerate(progress(tables[role], f"reading {where}")):
        try:
            problems.append(source.convert(row, number, removed))
        except Unusable as reason:
            removed.rows[str(reason)] += 1
        except DataError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{where} has a row {number} of another layout ({error!r}): correct or remove it"
            ) from error
    return sorted(problems, key=lambda problem: (_rank(problem, request.seed), problem.ground_truth, problem.row))


def _distinct(pool: list[Problem], compared: Iterable[tuple[str, Sequence[str]]], removed: Removed) -> list[Problem]:
    """The problems of the pool that are in none of the other sets and are not like an earlier one."""
    names = [name for name, texts in compared for _ in texts]
    others = [tokens(text) for _, texts in compared for text in texts]
    mine = [tokens(problem.text) for problem in progress(pool, "normalising")]
    same = same_as(others + mine, len(others), lambda numbers: progress(numbers, "comparing"))
    answers: dict[tuple[str, ...], set[str]] = {}
    for words, problem in zip(mine, pool, strict=True):
        answers.setdefault(tuple(words), set()).add(problem.ground_truth)
    kept = []
    for number, problem in enumerate(pool):
        other, how = same.get(len(others) + number, (None, ""))
        if other is not None and other < len(others):
            removed.rows[f"{how} to one of {names[other]}"] += 1
        elif len(answers[tuple(mine[number])]) > 1:
            removed.rows["equal to another with another reference"] += 1
        elif other is not None:
            removed.rows[f"{how} to another"] += 1
        else:
            kept.append(problem)
    return kept


def _texts(request: Request, where: str, tables: dict[str, InputTable]) -> list[str]:
    """The texts of an evaluation set's problems."""
    try:
        table = open_table(where, split=None, needed=(), optional=(*_TEXT_COLUMNS, request.text_column or ""))
        rows = list(progress(table, f"reading {where}"))
    except DataError as error:
        raise DataError(
            f"the training problems must be compared with {where}, but {error}; or use another set with --against, or "
            "none with --against none"
        ) from error
    column = next((name for name in (request.text_column, *_TEXT_COLUMNS) if rows and name in rows[0]), None)
    if column is None:
        raise DataError(f"--against {where} has none of the columns {', '.join(_TEXT_COLUMNS)}: rename one")
    tables[f"compared with {where}"] = table
    return [_text(row[column]) for row in rows]


def _text(value: Any) -> str:
    """A text, or the last of the chat messages in a verl file."""
    return str(value[-1]["content"]) if isinstance(value, list) and value else str(value or "")


def _enough(left: int, request: Request, read: int, removed: Removed) -> None:
    heldout = request.heldout or 0 if request.heldout_table is None else 0
    wanted = heldout + (1 if request.train is None else request.train)
    if left < wanted:
        requested = [f"--heldout {heldout}"] if heldout else []
        requested += ["1 or more to train on"] if request.train is None else [f"--train {request.train}"]
        raise DataError(
            f"{left:,} of {read:,} problems remain, but {wanted:,} are requested ({', '.join(requested)}): lower that, "
            f"or accept more problems (--difficulty, --where); removed were {removed.in_words()}"
        )


def _rank(problem: Problem, seed: int) -> bytes:
    return hashlib.sha256(f"{seed}:{' '.join(tokens(problem.text))}".encode()).digest()


def progress(items: Iterable[Any], doing: str) -> Any:
    from tqdm import tqdm

    return tqdm(items, desc=doing, unit=" rows", leave=False, disable=not sys.stderr.isatty())
