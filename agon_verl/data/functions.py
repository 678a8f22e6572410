"""Benchmarks whose tests call a function: HumanEval, MBPP, LiveCodeBench.

The ground truth has asserts with literals (asserts.py), or inputs and outputs as JSON; the judge calls the function and
compares (reward_fns/calls). `setup` gives a program the names that the benchmark promises it: the imports and helper
functions of HumanEval's prompt, MBPP's imports, the usual imports of LeetCode.

The statement of MBPP does not say what the function is called, so it is shown with the first of its asserts, and is
kept only if others remain. Removed are also problems of which every test expects the same, which a constant passes.

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
from collections.abc import Mapping, Sequence
from typing import Any

from agon_verl.data.asserts import literal_asserts
from agon_verl.data.problem import DataError, Problem, Unusable
from agon_verl.data.programs import LEETCODE, LONGEST_TEST, called, program, spread
from agon_verl.data.sources import Source
from agon_verl.game.domains.code import CODE
from reward_fns.calls.assertions import from_assert

FEWEST_ASSERTS = 2
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
        text += f"\n\nThe function is `{name}`, for example:\n\n```python\n{tests[0].strip()}\n```"
        hidden = "\n".join([*tests[1:], *(row.get("challenge_test_list") or [])])
        return _asserted(text, name, tests[:1], hidden, setup, max_tests, name=str(row.get("task_id") or ""))

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
        types = {str(test["testtype"]) for tests in kinds for test in tests}
        pairs = [[(str(test["input"]), str(test["output"])) for test in tests] for tests in kinds]
        text, extra = str(row["question_content"] or "").strip(), {"name": str(row.get("question_title") or "")}
        extra["level"] = str(row.get("difficulty") or "")
        if types == {"stdin"}:
            return program(text, pairs, {}, max_tests, **extra)
        if types != {"functional"}:
            raise Unusable(f"with tests of the types {', '.join(sorted(types)) or 'none'}")
        name = str(_parsed(row.get("metadata") or "{}").get("func_name") or "")
        if starter := str(row.get("starter_code") or "").strip():
            text += f"\n\nStart from:\n\n```python\n{starter}\n```"
        return called(text, name, pairs, LEETCODE, max_tests, **extra)

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
