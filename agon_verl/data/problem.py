"""A problem of any source, and the errors and counts of the conversion."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from agon_verl.errors import AgonError


class DataError(AgonError, ValueError):
    """The data cannot be prepared."""


class Unusable(Exception):
    """A row that is removed; the text is the reason under which it is counted."""


@dataclass(frozen=True, slots=True)
class Problem:
    """`row` is its number in the input. `extra` has the same keys for all problems of a source."""

    text: str
    ground_truth: str
    row: int
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass
class Removed:
    """How many rows were removed for each reason, in the order in which the reasons first occurred."""

    rows: Counter[str] = field(default_factory=Counter)
    tests: Counter[str] = field(default_factory=Counter)  # of programming problems that were kept
