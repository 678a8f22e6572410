r"""The mathematical sources, and any table by a mapping of its columns.

A `Source` has the location of its rows, the columns that it needs, and a function from a row to a `Problem`, which
raises `Unusable` with the reason for a row that cannot be judged. Removed from every mathematical source: problems
without a text, references that are blank, and references longer than 300 characters, which are explanations rather than
answers. If a reference is a box, its content is used.

DeepMath-103K: difficulty 8, binary answers removed (the paper's choice): yes, no, true, false, correct and incorrect,
alone or with an explanation after a comma. A guess is right half of the time on these.
"""

import json
import operator
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agon_verl.data.problem import DataError, Problem, Unusable
from agon_verl.game.boxes import boxes
from agon_verl.game.domains.domain import Domain
from agon_verl.game.domains.math import MATH

GSM8K, MATH500 = "openai/gsm8k:main", "HuggingFaceH4/MATH-500"
_LONGEST = 300  # characters of a reference
_BINARY = re.compile(r"(?:yes|no|true|false|correct|incorrect)(?:$|[,.;:].*)", re.S)
_MARKUP = re.compile(r"\\(?:text|textbf|mathrm|mbox|boxed)\b|[\s${}()*\\.]")
_CONDITION = re.compile(r"\s*([\w.\- ]+?)\s*(>=|<=|==|!=|=|>|<)\s*(.*?)\s*")
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "=": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}


@dataclass(frozen=True)
class Source:
    """What to prepare: a source's own settings, some of which the command's options replace.

    `heldout_split` is the dataset's own evaluation set; without one, and without a `heldout_table`, a part of the data
    is held out. A number of problems that is `None` means all there are.
    """

    name: str
    table: str
    convert: Callable[[Mapping[str, Any]], Problem]
    needed: Collection[str]
    optional: Collection[str] = ()
    data_source: str = ""  # the name, if empty
    split: str = "train"
    heldout_table: str | None = None
    heldout_split: str | None = None
    train: int | None = None
    heldout: int | None = None
    against: Collection[str] = ()
    domain: Domain = MATH
    text_column: str = ""  # of a table that the user describes
    revision: str | None = None
    seed: int = 0


def deepmath(difficulty: str) -> Source:
    low, high = _range(difficulty)

    def convert(row: Mapping[str, Any]) -> Problem:
        level = row["difficulty"]
        if level is None or not low <= float(level) <= high:
            raise Unusable(f"of another difficulty than {difficulty}")
        problem = _math(row["question"], row["final_answer"], difficulty=float(level), topic=row.get("topic") or "")
        if is_binary(problem.ground_truth):
            raise Unusable("with a binary answer")
        return problem

    return Source(
        name="deepmath",
        table="zwhe99/DeepMath-103K",
        convert=convert,
        needed=("question", "final_answer", "difficulty"),
        optional=("topic",),
        train=3000,
        heldout=300,
        against=(GSM8K, MATH500),
    )


def gsm8k() -> Source:
    def convert(row: Mapping[str, Any]) -> Problem:
        _, marked, answer = str(row["answer"] or "").rpartition("####")
        if not marked:
            raise Unusable("without an answer behind ####")
        return _math(row["question"], answer)

    return Source(
        name="gsm8k",
        table=GSM8K,
        convert=convert,
        needed=("question", "answer"),
        heldout_split="test",
        against=(MATH500,),
    )


def math500() -> Source:
    def convert(row: Mapping[str, Any]) -> Problem:
        return _math(row["problem"], row["answer"], subject=row.get("subject") or "", level=int(row.get("level") or 0))

    return Source(
        name="math500",
        table=MATH500,
        convert=convert,
        needed=("problem", "answer"),
        optional=("subject", "level"),
        heldout_split="test",
        train=0,
    )


def custom(
    table: str, columns: Sequence[str], where: Iterable[str], make: Callable[..., Problem], **settings: Any
) -> Source:
    """Any table. `make` builds a problem from the values of `columns`, of which the first is the text.

    `where` has conditions on a row. Numbers are compared as numbers, everything else as text.
    """
    conditions = []
    for text in where:
        if (match := _CONDITION.fullmatch(text)) is None:
            raise DataError(f"--where {text!r} is not a condition: write it as difficulty>=5 or source==AMC")
        column, sign, wanted = match.groups()
        conditions.append((column, sign, wanted.strip("'\"")))

    def convert(row: Mapping[str, Any]) -> Problem:
        for column, sign, wanted in conditions:
            actual = _value(row, column)
            try:
                good = actual is not None and _COMPARE[sign](float(actual), float(wanted))
            except (TypeError, ValueError):
                good = _COMPARE[sign](str(actual), wanted)
            if not good:
                raise Unusable(f"not {column}{sign}{wanted}")
        return make(*(_value(row, column) for column in columns))

    names = (*columns, *(column for column, _, _ in conditions))
    needed = list(dict.fromkeys(name.partition(".")[0] for name in names))  # for `a.b`, the column is `a`
    return Source("custom", table, convert, needed, heldout=300, text_column=columns[0], **settings)


def custom_math(table: str, name: str, problem: str, answer: str, where: Iterable[str]) -> Source:
    return custom(table, (problem, answer), where, _math, data_source=name, against=(GSM8K, MATH500))


def is_binary(answer: str) -> bool:
    text = answer.casefold().strip()
    return any(_BINARY.fullmatch(form) for form in (text, _MARKUP.sub("", text)))


def _value(row: Mapping[str, Any], column: str) -> Any:
    """A column of a row; `a.b` is a field of a struct or of JSON text."""
    result: Any = row
    for part in [column] if column in row else column.split("."):
        if isinstance(result, str):
            try:
                result = json.loads(result)
            except ValueError:
                raise DataError(f"the column of {column} has text that is not JSON: name the column itself") from None
        if not isinstance(result, Mapping) or part not in result:
            raise DataError(f"a row has no {column}: name a column that every row has")
        result = result[part]
    return result


def _math(text: Any, answer: Any, **extra: Any) -> Problem:
    text, reference = str(text or "").strip(), "" if answer is None else str(answer).strip()
    if (box := boxes(reference)) and box[0].end - box[0].start == len(reference):
        reference = box[0].content.strip()
    if not text:
        raise Unusable("without a text")
    if not reference.strip("$ .\n\t"):
        raise Unusable("without a reference answer")
    if len(reference) > _LONGEST:
        raise Unusable(f"with a reference of more than {_LONGEST} characters")
    return Problem(text, reference, extra)


def _range(text: str) -> tuple[float, float]:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(?:-(\d+(?:\.\d+)?))?", text)
    if match is None:
        raise DataError(f"--difficulty {text} is not a range: write it as 8 or 5-7")
    low, high = float(match[1]), float(match[2] or match[1])
    if high < low:
        raise DataError(f"--difficulty {text} is empty: write the lower number first")
    return low, high
