"""A problem of any source, and the errors of the conversion."""

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
    """`extra` has the same keys for all problems of a source. `tests_removed` counts by reason; `row` is its number.

    `calls`: the tests call a function, which the prompt has to ask for.
    """

    text: str
    ground_truth: str
    extra: dict[str, Any] = field(default_factory=dict)
    tests_removed: Counter[str] = field(default_factory=Counter)
    row: int = 0
    calls: bool = False
