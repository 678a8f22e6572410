"""Problems whose tests call a function: HumanEval, MBPP, LiveCodeBench, and any table with tests of any kind.

The ground truth has asserts with literals (asserts.py), or inputs and outputs as JSON; the judge calls the function and
compares (reward_fns/calls). `setup` gives a program the names that the benchmark promises it: the imports and helper
functions of HumanEval's prompt, MBPP's imports, the usual imports of LeetCode.

The statement of MBPP, and of any table with asserts, does not always say what the function is called: it is shown with
the first assert, and is kept only if others remain. Removed are also problems of which every test expects the same,
which a constant passes.

LiveCodeBench packs its private tests as base64, zlib and pickle. The pickle contains one text, which is read from its
instructions without executing them; a pickle with anything else is refused.
"""

import ast
import base64
import binascii
import builtins
import json
import pickletools
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agon_verl.data.asserts import literal_asserts
from agon_verl.data.problem import DataError, Problem, Unusable
from agon_verl.data.programs import LONGEST_TEST, pairs, parsed, program, spread
from agon_verl.data.sources import Source, custom
from agon_verl.game.domains.code import CODE
from reward_fns.calls.assertions import NotConvertible, from_assert, from_json

FEWEST_ASSERTS = 2
# What LeetCode imports before a program.
LEETCODE = """\
import bisect, collections, functools, heapq, itertools, math, operator, random, re, string, sys
from bisect import *
from collections import *
from functools import *
from heapq import *
from itertools import *
from math import *
from typing import *
from builtins import *
sys.setrecursionlimit(50_000)
"""  # the last import because math has another pow
_LARGEST = 1 << 30  # bytes of unpacked tests
_TEXTS = {"BINUNICODE", "BINUNICODE8", "SHORT_BINUNICODE"}
_HARMLESS = {"PROTO", "FRAME", "MEMOIZE", "BINPUT", "LONG_BINPUT", "STOP"}


def humaneval(max_tests: int) -> Source:
    def convert(row: Mapping[str, Any]) -> Problem:
        name, prompt = str(row["entry_point"]), str(row["prompt"])
        setup = _without(prompt, name)
        text = f"Complete this Python function.\n\n```python\n{prompt.strip()}\n```"
        return _asserted(text, name, [], str(row["test"]), setup, max_tests, name=str(row.get("task_id") or ""))

    return Source(
        name="humaneval",
        table="openai/openai_humaneval",
        convert=convert,
        needed=("prompt", "test", "entry_point"),
        optional=("task_id",),
        heldout_split="test",
        train=0,
        domain=CODE,
    )


def mbpp(max_tests: int) -> Source:
    def convert(row: Mapping[str, Any]) -> Problem:
        tests = [str(test) for test in row["test_list"]]
        if not tests:
            raise Unusable("without a test that can be judged")
        name = _function_name(tests, str(row.get("code") or ""))
        setup = "\n".join(row.get("test_imports") or [str(row.get("test_setup_code") or "")])
        text = str(row.get("text") or row.get("prompt") or "").strip()
        if not text:
            raise Unusable("without a text")
        tests += row.get("challenge_test_list") or []
        return _with_example(text, name, tests, setup, max_tests, name=str(row.get("task_id") or ""))

    return Source(
        name="mbpp",
        table="google-research-datasets/mbpp:full",
        convert=convert,
        needed=("test_list",),
        optional=("text", "prompt", "code", "test_imports", "test_setup_code", "challenge_test_list", "task_id"),
        heldout_split="test",
        domain=CODE,
    )


def livecodebench(max_tests: int) -> Source:
    def convert(row: Mapping[str, Any]) -> Problem:
        kinds = [_unpacked(row[column]) for column in ("public_test_cases", "private_test_cases")]
        types = {str(test["testtype"]) for kind in kinds for test in kind}
        tests = [[(str(test["input"]), str(test["output"])) for test in kind] for kind in kinds]
        text, extra = str(row["question_content"] or "").strip(), {"name": str(row.get("question_title") or "")}
        extra["level"] = str(row.get("difficulty") or "")
        if types == {"stdin"}:
            return program(text, tests, {}, max_tests, **extra)
        if types != {"functional"}:
            raise Unusable(f"with tests of the types {', '.join(sorted(types)) or 'none'}")
        name = str(_parsed(row.get("metadata") or "{}").get("func_name") or "")
        if starter := str(row.get("starter_code") or "").strip():
            text += f"\n\nStart from:\n\n```python\n{starter}\n```"
        return _called(text, name, tests, max_tests, **extra)

    return Source(
        name="livecodebench",
        table="livecodebench/code_generation_lite",
        convert=convert,
        needed=("question_content", "public_test_cases", "private_test_cases"),
        optional=("question_title", "starter_code", "metadata", "difficulty"),
        heldout_split="test",
        train=0,
        domain=CODE,
    )


def custom_code(table: str, name: str, problem: str, tests: str, where: Iterable[str], max_tests: int) -> Source:
    """`tests` is one column with the tests, or two with inputs and outputs.

    The tests call a function if they are asserts, or if they have `fn_name` (APPS, TACO).
    """

    def make(text: Any, inputs: Any, *outputs: Any) -> Problem:
        text, both = str(text or "").strip(), {"input": inputs, "output": outputs[0]} if outputs else parsed(inputs)
        if isinstance(both, Mapping) and (function := both.get("fn_name")):
            if text and str(function) not in text:
                text += f"\n\nThe function is `{function}`."
            return _called(text, str(function), [[], _in_json(both)], max_tests)
        if isinstance(both, Sequence) and both and all(isinstance(test, str) for test in both):
            if not text:
                raise Unusable("without a text")
            return _with_example(text, _function_name(both, ""), both, "", max_tests)
        return program(text, [[], pairs(both, tests)], {}, max_tests)

    return custom(table, (problem, *tests.split(",", 1)), where, make, data_source=name, domain=CODE)


def _called(
    text: str, function: str, kinds: Sequence[Sequence[tuple[str, str]]], max_tests: int, **extra: Any
) -> Problem:
    """A problem with inputs and outputs as JSON. `function` may be a method (`Solution.f`)."""
    function = function.rpartition(".")[2]
    if not function.isidentifier():
        raise Unusable("without the name of the function")
    readable: list[list[tuple[str, str]]] = []
    removed: Counter[str] = Counter()
    for tests in kinds:
        readable.append([])
        for test in tests:
            try:
                from_json(*test)
                readable[-1].append(test)
            except NotConvertible:
                removed["with an input or output that is not JSON"] += 1
    problem = program(text, readable, {"fn_name": function, "setup": LEETCODE}, max_tests, **extra)
    problem.tests_removed.update(removed)
    return problem


def _in_json(tests: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Tests of APPS and TACO: lists of arguments, and outputs, in lists of one where every output of a problem is."""
    inputs, outputs = list(tests.get("inputs") or []), list(tests.get("outputs") or [])
    if len(inputs) != len(outputs):
        raise Unusable("with more inputs than outputs, or fewer")
    if all(isinstance(output, list) and len(output) == 1 for output in outputs):
        outputs = [output[0] for output in outputs]
    sent = [item if isinstance(item, str) else "\n".join(map(json.dumps, item)) for item in inputs]
    return list(zip(sent, map(json.dumps, outputs), strict=True))


def _with_example(text: str, function: str, tests: Sequence[str], setup: str, max_tests: int, **extra: Any) -> Problem:
    """A text that may not say what the function is called, so the first assert is shown with it."""
    text += f"\n\nThe function is `{function}`, for example:\n\n```python\n{tests[0].strip()}\n```"
    return _asserted(text, function, tests[:1], "\n".join(tests[1:]), setup, max_tests, **extra)


def _asserted(
    text: str, function: str, shown: Sequence[str], code: str, setup: str, max_tests: int, **extra: Any
) -> Problem:
    """`shown` are the asserts in the statement, `code` has the others."""
    if not function.isidentifier():
        raise Unusable("without the name of the function")
    public, removed = literal_asserts("\n".join(shown), function, setup)
    hidden, more = literal_asserts(code, function, setup)
    removed += more
    usable: list[list[str]] = []
    for asserts in (public, hidden):
        distinct = [test for test in dict.fromkeys(asserts) if not any(test in kind for kind in usable)]
        usable.append([test for test in distinct if len(test.encode("utf-8", "surrogatepass")) <= LONGEST_TEST])
        removed["repeated"] += len(asserts) - len(distinct)
        removed[f"of more than {LONGEST_TEST:,} bytes"] += len(distinct) - len(usable[-1])
    tests = [*usable[0][:max_tests], *spread(usable[1], max_tests - len(usable[0]))]
    if len(tests) < FEWEST_ASSERTS or not usable[1]:
        raise Unusable(f"with fewer than {FEWEST_ASSERTS} tests, or none beyond those in the statement")
    if len({repr(call.expectation) for test in tests for call in from_assert(test, function)}) == 1:
        raise Unusable("with the same output in every test")
    removed["over the most tests a problem may have"] = sum(map(len, usable)) - len(tests)
    truth = {"fn_name": function, "asserts": tests, "setup": setup or None}
    stated = json.dumps({key: value for key, value in truth.items() if value}, ensure_ascii=True)
    return Problem(text, stated, {"tests": len(tests), **extra}, removed, calls=True)


def _without(prompt: str, name: str) -> str:
    """The imports and helpers of a prompt, without the function that is to be written."""
    try:
        body = ast.parse(prompt).body
    except (SyntaxError, ValueError) as error:
        raise Unusable("with a prompt that is not Python") from error
    kept = [node for node in body if not (isinstance(node, ast.FunctionDef) and node.name == name)]
    return ast.unparse(ast.Module(kept, []))


def _function_name(tests: Sequence[str], code: str) -> str:
    """The function that every assert calls: the one that the reference defines, else the one that is not built in."""
    try:
        trees = [ast.parse(test) for test in tests]
        defined = {node.name for node in ast.walk(ast.parse(code)) if isinstance(node, ast.FunctionDef)}
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise Unusable("with tests that are not Python") from None
    names = [
        {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
        for tree in trees
    ]
    common = set.intersection(*names)
    common = common & defined or common - set(dir(builtins))
    if len(common) != 1:
        raise Unusable("without the name of the function")
    return common.pop()


def _unpacked(tests: Any) -> list[dict[str, Any]]:
    """Test cases as a list, as JSON, or packed."""
    if isinstance(tests, str) and tests[:1] not in ("[", ""):
        tests = _pickled_text(tests)
    parsed = _parsed(tests or "[]")
    if not isinstance(parsed, list) or not all(isinstance(test, dict) for test in parsed):
        raise DataError("test cases must be a list of input, output and testtype, as JSON or packed")
    return parsed


def _parsed(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise DataError(f"a column of tests or metadata is not JSON ({error}): download the table again") from None


def _pickled_text(packed: str) -> str:
    try:
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(base64.b64decode(packed, validate=True), _LARGEST)
        if unpacker.unconsumed_tail:
            raise Unusable(f"with tests of more than {_LARGEST:,} bytes")
        texts = []
        for instruction, argument, _ in pickletools.genops(data):
            if instruction.name in _TEXTS:
                texts.append(str(argument))
            elif instruction.name not in _HARMLESS:
                raise DataError(
                    f"packed tests contain {instruction.name}, not only a text: the table is not to be used"
                )
        [text] = texts
        return text
    except (binascii.Error, zlib.error, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"packed tests cannot be unpacked ({error}): download the table again") from None
