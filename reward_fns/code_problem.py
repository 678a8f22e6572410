r"""The ground truth of a programming problem: its tests and how output is judged, checked when it is read.

    {"inputs": ["1 2\n", ...], "outputs": ["3\n", ...], "time_limit": 2.0, "memory_limit": 256, "checker": "..."}

as a dict or as JSON. The last three are optional: CPU seconds per test, megabytes, and, where more than one output is
correct, a Python program called like testlib's checkers: with three paths (input, program's output, expected output),
exit code 0 to accept. Tests that any program would pass are refused here.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agon_verl.errors import AgonError

_KEYS = {"inputs", "outputs", "time_limit", "memory_limit", "checker"}
_LARGEST_TIME = 3600  # seconds
_LARGEST_MEMORY = 65536  # megabytes; a larger number was probably meant in bytes


class GroundTruthError(AgonError, ValueError):
    """A problem's ground truth cannot be used; the message names the data source and the field."""


@dataclass(frozen=True, slots=True)
class CodeProblem:
    """`memory_limit` in megabytes."""

    cases: tuple[tuple[bytes, bytes], ...]
    time_limit: float
    memory_limit: int
    checker: str | None

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
        inputs, outputs = (_texts(fields, name, source) for name in ("inputs", "outputs"))
        checker = fields.get("checker")
        if checker is not None and not (isinstance(checker, str) and checker.strip()):
            raise GroundTruthError(f"checker={checker!r} of a {source!r} problem must be a Python program")
        if len(inputs) != len(outputs):
            raise GroundTruthError(f"a {source!r} problem has {len(inputs)} inputs but {len(outputs)} outputs")
        if not inputs:
            raise GroundTruthError(f"a {source!r} problem has no tests: remove it from the data")
        if checker is None and not any(output.strip() for output in outputs):
            raise GroundTruthError(f"every output of a {source!r} problem is blank: a program that does nothing passes")
        fields = {"time_limit": time_limit, "memory_limit": memory_limit} | fields
        return cls(
            cases=tuple(zip(inputs, outputs, strict=True)),
            time_limit=_number(fields, "time_limit", source, _LARGEST_TIME),
            memory_limit=math.ceil(_number(fields, "memory_limit", source, _LARGEST_MEMORY)),
            checker=checker,
        )


def _texts(fields: Mapping[str, Any], name: str, source: str) -> list[bytes]:
    values: Any = fields.get(name)
    if hasattr(values, "tolist"):  # an array, as a parquet column of lists is read
        values = values.tolist()
    if not isinstance(values, Sequence) or isinstance(values, str) or not all(isinstance(v, str) for v in values):
        raise GroundTruthError(f"{name} of a {source!r} problem must be a list of strings")
    return [value.encode("utf-8", "surrogatepass") for value in values]


def _number(fields: Mapping[str, Any], name: str, source: str, most: float) -> float:
    value = fields[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
        raise GroundTruthError(f"{name}={value!r} of a {source!r} problem must be a number above 0 and at most {most}")
    return float(value)
