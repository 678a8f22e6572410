r"""The ground truth of a programming problem: its tests and how output is judged, checked when it is read.

    {"inputs": ["1 2\n", ...], "outputs": ["3\n", ...], "time_limit": 2.0, "memory_limit": 256, "checker": "..."}

as a dict or as JSON. The last three are optional: CPU seconds per test, megabytes, and, where more than one output is
correct, a Python program called like testlib's checkers: with three paths (input, program's output, expected output),
exit code 0 to accept.

With `fn_name` the tests call that function of the program (or that method of its `class Solution`) in place of running
it. They are asserts, or inputs with one JSON value per line and argument and outputs that are JSON, as in
LiveCodeBench; `setup` is Python that runs before the program, such as imports:

    {"fn_name": "add", "asserts": ["assert add(1, 2) == 3", ...], "setup": "from typing import List"}
    {"fn_name": "add", "inputs": ["1\n2", ...], "outputs": ["3", ...]}

reward_fns/calls/assertions.py says which asserts can be judged. Tests that any program would pass are refused here.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agon_verl.errors import AgonError
from reward_fns.calls.assertions import Call, NotConvertible, from_assert, from_json

_KEYS = {"inputs", "outputs", "time_limit", "memory_limit", "checker", "fn_name", "asserts", "setup"}
_LARGEST_TIME = 3600  # seconds
_LARGEST_MEMORY = 65536  # megabytes; a larger number was probably meant in bytes


class GroundTruthError(AgonError, ValueError):
    """A problem's ground truth cannot be used; the message names the data source and the field."""


@dataclass(frozen=True, slots=True)
class CodeProblem:
    """`memory_limit` in megabytes. There are either `cases`, or `calls` of `fn_name`."""

    cases: tuple[tuple[bytes, bytes], ...]
    time_limit: float
    memory_limit: int
    checker: str | None
    fn_name: str = ""
    calls: tuple[Call, ...] = ()
    setup: str = ""

    @classmethod
    def read(cls, ground_truth: Any, source: str, *, time_limit: float, memory_limit: int) -> "CodeProblem":
        """The arguments `time_limit` and `memory_limit` apply to problems that set none."""
        if isinstance(ground_truth, str | bytes):
            try:
                ground_truth = json.loads(ground_truth)
            except ValueError as error:
                raise GroundTruthError(f"ground_truth of a {source!r} problem is not JSON: {error}") from None
        if not isinstance(ground_truth, Mapping):
            raise GroundTruthError(f"ground_truth of a {source!r} problem must be a dict, not {type(ground_truth)}")
        fields = {key: value for key, value in ground_truth.items() if value is not None}  # Arrow fills gaps with None
        if unknown := fields.keys() - _KEYS:
            raise GroundTruthError(f"ground_truth of a {source!r} problem has unknown keys: {sorted(unknown)}")
        fn_name, calls = _calls(fields, source)
        cases = () if calls else _cases(fields, source)
        fields = {"time_limit": time_limit, "memory_limit": memory_limit} | fields
        return cls(
            cases=cases,
            time_limit=_number(fields, "time_limit", source, _LARGEST_TIME),
            memory_limit=math.ceil(_number(fields, "memory_limit", source, _LARGEST_MEMORY)),
            checker=fields.get("checker"),
            fn_name=fn_name,
            calls=calls,
            setup=fields.get("setup", ""),
        )


def _cases(fields: Mapping[str, Any], source: str) -> tuple[tuple[bytes, bytes], ...]:
    for name in ("asserts", "setup"):
        if name in fields:
            raise GroundTruthError(f"{name} of a {source!r} problem needs the name of the function: add fn_name")
    inputs, outputs = _tests(fields, source)
    checker = fields.get("checker")
    if checker is not None and not (isinstance(checker, str) and checker.strip()):
        raise GroundTruthError(f"checker={checker!r} of a {source!r} problem must be a Python program")
    if checker is None and not any(output.strip() for output in outputs):
        raise GroundTruthError(f"every output of a {source!r} problem is blank: a program that does nothing passes")
    encoded = ([text.encode("utf-8", "surrogatepass") for text in texts] for texts in (inputs, outputs))
    return tuple(zip(*encoded, strict=True))


def _calls(fields: Mapping[str, Any], source: str) -> tuple[str, tuple[Call, ...]]:
    """The function's name and the calls; none if programs read input and print."""
    name = fields.get("fn_name")
    if name is None:
        return "", ()
    if not (isinstance(name, str) and name.isidentifier()):
        raise GroundTruthError(f"fn_name={name!r} of a {source!r} problem must be the name of a function")
    if not isinstance(fields.get("setup", ""), str):
        raise GroundTruthError(f"setup of a {source!r} problem must be Python code, not {type(fields['setup'])}")
    if "checker" in fields:
        raise GroundTruthError(f"a {source!r} problem has fn_name and checker, which reads printed output: remove one")
    if "asserts" in fields and fields.keys() & {"inputs", "outputs"}:
        raise GroundTruthError(f"a {source!r} problem has asserts and inputs or outputs: remove one kind")
    calls: list[Call] = []
    if "asserts" in fields:
        for text in _texts(fields, "asserts", source):
            try:
                calls += from_assert(text, name)
            except NotConvertible as reason:
                raise GroundTruthError(
                    f"{text[:200]!r} of a {source!r} problem cannot be judged ({reason}): rewrite or remove it"
                ) from None
    else:
        for sent, expected in zip(*_tests(fields, source), strict=True):
            try:
                calls.append(from_json(sent, expected))
            except NotConvertible as reason:
                raise GroundTruthError(f"a {source!r} problem cannot be judged: {reason}") from None
    if not calls:
        raise GroundTruthError(f"a {source!r} problem has no tests: remove it from the data")
    if all(call.expectation.holds(None) for call in calls):
        raise GroundTruthError(f"every test of a {source!r} problem accepts None: a function that does nothing passes")
    return name, tuple(calls)


def _tests(fields: Mapping[str, Any], source: str) -> tuple[list[str], list[str]]:
    inputs, outputs = (_texts(fields, name, source) for name in ("inputs", "outputs"))
    if len(inputs) != len(outputs):
        raise GroundTruthError(f"a {source!r} problem has {len(inputs)} inputs but {len(outputs)} outputs")
    if not inputs:
        raise GroundTruthError(f"a {source!r} problem has no tests: remove it from the data")
    return inputs, outputs


def _texts(fields: Mapping[str, Any], name: str, source: str) -> list[str]:
    values: Any = fields.get(name)
    if hasattr(values, "tolist"):  # an array, as a parquet column of lists is read
        values = values.tolist()
    if not isinstance(values, Sequence) or isinstance(values, str) or not all(isinstance(v, str) for v in values):
        raise GroundTruthError(f"{name} of a {source!r} problem must be a list of strings")
    return list(values)


def _number(fields: Mapping[str, Any], name: str, source: str, most: float) -> float:
    value = fields[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
        raise GroundTruthError(f"{name}={value!r} of a {source!r} problem must be a number above 0 and at most {most}")
    return float(value)
