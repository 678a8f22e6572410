"""Programming problems judged by what a program prints: CodeContests, and the rules for every table of such tests.

The reward is 1 if a program passes every test, by comparing tokens; so a problem is kept only where that decides
whether a program is right. Removed are problems that

- read or write named files, or are interactive: the judge uses standard input and output only;
- accept any of several right outputs: there is no checker, and a right program could be judged wrong;
- give one input two outputs: one of them is wrong;
- have fewer than 5 tests left, no test beyond those in the statement, or the same output for all: a program that prints
  what it read, or a guess, would pass.

Removed are tests with a blank output, of more than 100,000 bytes, or with a repeated input. If there are more than
`--max-tests`, public ones are kept first, then the contest's own, then generated ones; of a kind that does not fit
completely, tests at even distances are kept, because contests order tests by size.

Limits: contests set theirs for C++, so time is multiplied (`--time-factor`, at most 10 s), and memory is at least
256 MB. A limit of 0 means none; the judge then uses its own.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from agon_verl.data.problem import DataError, Problem, Unusable
from agon_verl.data.sources import Source
from agon_verl.game.domains.code import CODE

DIFFICULTIES = (
    *("UNKNOWN_DIFFICULTY", "EASY", "MEDIUM", "HARD", "HARDER", "HARDEST", "EXTERNAL"),
    *"ABCDEFGHIJKLMNOPQRSTUV",
)
KINDS = ("public_tests", "private_tests", "generated_tests")
FEWEST_TESTS, LONGEST_TEST = 5, 100_000
_LONGEST_TIME, _LEAST_MEMORY = 10.0, 256  # seconds, megabytes

_ANY = re.compile(
    r"\bany of (?:them|these|those)\b|(?<!not )(?<!n't )"
    r"\b(?:print|output|return) (?:any|(?:one|either) of (?:them|these))\b"
    r"|\bany (?:valid|correct|suitable|acceptable|optimal|possible)? ?(?:answer|solution|output)s?\b"
    r"|\b(?:print|output|return)\b.{0,80}\bin (?:any|arbitrary) order\b|\bspecial (?:judge|checker)\b",
    re.I,
)
_SEVERAL = re.compile(
    r"\b(?:multiple|several|many|more than one|different)(?: \w+){0,2} (?:answer|solution|output|way|variant)s?\b"
    r"|\b(?:answer|solution)s? (?:is|are|may|might) not (?:be )?(?:necessarily )?unique\b",
    re.I,
)
_OF_SEVERAL = re.compile(r"\bif\b|\bcan be\b|\bmay be\b|\bunique\b", re.I)
_ONE_OF_THEM = re.compile(
    r"\b(?:small|larg|quick|fast|best|great|short|long|earli|minim|maxim|lexicograph|least|first|last)", re.I
)
_INTERACTIVE = re.compile(r"\binteract(?:ive|or|ion)\b|\bflush(?:ing)?\b", re.I)
_Test = TypeVar("_Test")
_FILES = re.compile(r"\b(?:input|output)\.txt\b", re.I)


def codecontests(difficulty: str, max_tests: int, time_factor: float) -> Source:
    wanted = [label.strip().upper() for label in difficulty.split(",")]
    for label in wanted:
        if label not in DIFFICULTIES:
            raise DataError(f"--difficulty {label} is unknown: use one or more of {', '.join(DIFFICULTIES)}")

    def convert(row: Mapping[str, Any]) -> Problem:
        level = row["difficulty"]
        label = DIFFICULTIES[level] if isinstance(level, int) and 0 <= level < len(DIFFICULTIES) else str(level)
        if label not in wanted:
            raise Unusable(f"of another difficulty than {','.join(wanted)}")
        if row.get("input_file") or row.get("output_file"):
            raise Unusable("that read or write named files")
        tests = [pairs(row[kind], kind) for kind in KINDS]
        limits = {}
        if (seconds := _seconds(row.get("time_limit"))) > 0:
            limits["time_limit"] = min(seconds * time_factor, _LONGEST_TIME)
        if memory := row.get("memory_limit_bytes"):
            limits["memory_limit"] = max(memory // 1_000_000, _LEAST_MEMORY)
        return program(row["description"], tests, limits, max_tests, name=row["name"], level=label)

    return Source(
        name="codecontests",
        table="deepmind/code_contests",
        convert=convert,
        needed=("name", "description", "difficulty", *KINDS),
        optional=("time_limit", "memory_limit_bytes", "input_file", "output_file"),
        heldout=300,
        domain=CODE,
    )


def pairs(tests: Any, column: str) -> list[tuple[str, str]]:
    """Tests as (input, output), from the layouts that tables use, JSON text included:

    {"input": [...], "output": [...]} (or with an s), or a list of {"input": ..., "output": ...}; an input or output may
    itself be {"stdin": ...} or {"stdout": ...}.
    """
    tests = parsed(tests)
    if isinstance(tests, Mapping):
        sides = [parsed(tests.get(side) or tests.get(f"{side}s") or []) for side in ("input", "output")]
        if not all(isinstance(side, Sequence) and not isinstance(side, str) for side in sides):
            raise DataError(
                f"{column} has inputs and outputs that are not lists: use one input and one output per test"
            )
        if len(sides[0]) != len(sides[1]):
            raise Unusable("with more inputs than outputs, or fewer")
        return [(_text(sent, "stdin"), _text(expected, "stdout")) for sent, expected in zip(*sides, strict=True)]
    if not isinstance(tests, Sequence) or not all(isinstance(test, Mapping) for test in tests):
        raise DataError(f"{column} contains no tests: use a list of input and output, or lists of inputs and outputs")
    return [(_text(test.get("input"), "stdin"), _text(test.get("output"), "stdout")) for test in tests]


def program(
    text: Any, kinds: Sequence[Sequence[tuple[str, str]]], more: Mapping[str, Any], max_tests: int, **extra: Any
) -> Problem:
    """`kinds` are the tests in the order in which they are kept; the first kind is in the statement.

    `more` is the rest of the ground truth: limits, or what the judge must know of a function.
    """
    text = str(text or "").strip()
    if not text:
        raise Unusable("without a text")
    if _FILES.search(text):
        raise Unusable("that read or write named files")
    if _INTERACTIVE.search(text):
        raise Unusable("that are interactive")
    if any(map(_allows_several, re.split(r"[.!?\n]", text))):
        raise Unusable("with several right outputs and no checker")
    usable, removed = _usable(kinds)
    if not any(usable):
        raise Unusable("without a test that can be judged")
    chosen: list[list[tuple[str, str]]] = []
    for tests in usable:
        chosen.append(spread(tests, max_tests - sum(map(len, chosen))))
    tests = [test for kind in chosen for test in kind]
    if len(tests) < FEWEST_TESTS or not any(chosen[1:]):
        raise Unusable(f"with fewer than {FEWEST_TESTS} tests, or none beyond those in the statement")
    if len({output.strip() for _, output in tests}) == 1:
        raise Unusable("with the same output in every test")
    removed["over the most tests a problem may have"] = sum(map(len, usable)) - len(tests)
    truth = {"inputs": [sent for sent, _ in tests], "outputs": [expected for _, expected in tests], **more}
    stated = json.dumps(truth, ensure_ascii=False)
    return Problem(text, stated, {"tests": len(tests), **extra}, removed, calls="fn_name" in more)


def _allows_several(sentence: str) -> bool:
    """ "Print any of them"; or "if there are several answers", unless the sentence says which of them is wanted."""
    if _ANY.search(sentence):
        return True
    return bool(_SEVERAL.search(sentence) and _OF_SEVERAL.search(sentence) and not _ONE_OF_THEM.search(sentence))


def _usable(kinds: Sequence[Sequence[tuple[str, str]]]) -> tuple[list[list[tuple[str, str]]], Counter[str]]:
    removed: Counter[str] = Counter()
    outputs: dict[str, str] = {}
    usable: list[list[tuple[str, str]]] = []
    for kind in kinds:
        usable.append([])
        for sent, expected in kind:
            if not expected.strip():
                removed["with a blank output"] += 1
            elif len(sent.encode()) + len(expected.encode()) > LONGEST_TEST:
                removed[f"of more than {LONGEST_TEST:,} bytes"] += 1
            elif (earlier := outputs.get(sent.strip())) is None:
                outputs[sent.strip()] = expected
                usable[-1].append((sent, expected))
            elif earlier.split() != expected.split():
                raise Unusable("that give one input two outputs")
            else:
                removed["repeated"] += 1
    return usable, removed


def spread(tests: list[_Test], room: int) -> list[_Test]:
    """At most `room` tests, at even distances, the last one among them."""
    if len(tests) <= room:
        return tests
    return [tests[(place + 1) * len(tests) // room - 1] for place in range(room)]


def _seconds(limit: Any) -> float:
    if isinstance(limit, Mapping):
        return (limit.get("seconds") or 0) + (limit.get("nanos") or 0) / 1e9
    return float(limit or 0)


def parsed(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise DataError(f"tests are text, but not JSON ({error}): use a list or JSON") from None


def _text(side: Any, key: str) -> str:
    side = side.get(key) if isinstance(side, Mapping) else side
    return "" if side is None else str(side)
