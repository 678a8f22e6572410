"""`results.json`, everything that one evaluation measured, as typed records.

Keys in the file are the field names, with two exceptions: `pass_at_1` is written as `pass@1` and `pass_at_k` as
`pass@k`. A field that is not set is not written: `draft` and `exchange` of a mode without drafts, and `first_sample`,
`pass@k` and `majority` with one sample per problem.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from agon_verl.errors import AgonError
from agon_verl.files import write_atomically

RESULTS = "results.json"
Outcomes = dict[str, list[int]]  # by problem, 1 or 0 for each sample that was judged


class ResultsError(AgonError, ValueError):
    """A file is not the `results.json` of an evaluation; the message says why."""


def _key(field: str) -> str:
    return field.replace("pass_at_", "pass@")


class Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=_key, populate_by_name=True)

    def to_json(self) -> dict[str, Any]:
        return self.model_dump(by_alias=True, exclude_unset=True)


class Interval(Record):
    low: float
    high: float
    method: str


class Tokens(Record):
    generated: int | float
    prefilled: int | float


class Ledger(Record):
    """The tokens of each stage over all answers, and of all stages for one pass over one problem."""

    draft: Tokens | None = None
    final: Tokens
    per_pass: Tokens


class FirstSample(Record):
    """The first sample of each problem, which has an exact interval."""

    pass_at_1: float | None
    interval: Interval | None


class Exchange(Record):
    """What the second stage made of right and of wrong drafts, and how long it is after either.

    `no_summary` counts drafts of which nothing was read, `no_reasoning` those of which everything was.
    """

    right_drafts: int
    wrong_drafts: int
    converted: int
    damaged: int
    conversion: float | None
    damage: float | None
    length_given_right_draft: float | None
    length_given_wrong_draft: float | None
    no_summary: int = 0
    no_reasoning: int = 0


class ModeResults(Record):
    """One mode on one data set. `left_out` counts answers that the judge failed on; they are only in the ledger."""

    problems: int
    answers: int
    left_out: int
    pass_at_1: float | None
    interval: Interval | None
    length: float | None
    truncated: float | None
    format: float | None
    ledger: Ledger
    first_sample: FirstSample | None = None
    pass_at_k: dict[int, float | None] = {}
    majority: float | None = None
    exchange: Exchange | None = None


class Paired(Record):
    """How much better the first is than the second on the same problems, in pass@1.

    `first` and `second` are modes, if both are of one evaluation. There is no interval where every problem has the same
    difference: a bootstrap interval would have no width.
    """

    first: str = ""
    second: str = ""
    problems: int
    difference: float
    interval: Interval | None
    p: float
    test: str


class SetResults(Record):
    """One data set. `post_hoc` is the direction that was better on these very problems."""

    problems: int
    modes: dict[str, ModeResults]
    tests: list[Paired]
    post_hoc: str | None
    outcomes: dict[str, Outcomes]


class Direction(Record):
    """The direction of the cascade that was chosen without these problems, and the reason."""

    chosen: str | None
    why: str


class Generated(Record):
    """All generations of an evaluation, each counted once."""

    generations: int
    generated: int
    prefilled: int


class Results(Record):
    target: str
    samples: int
    settings: Mapping[str, Any]  # as in settings.json
    versions: Mapping[str, Any]
    direction: Direction
    sets: dict[str, SetResults]
    development: SetResults | None
    ledger: Generated
    left_out: int

    @classmethod
    def read(cls, path: Path) -> "Results":
        """`path` is the file, or the folder of the evaluation."""
        path = path / RESULTS if path.is_dir() else path
        try:
            return cls.model_validate_json(path.read_bytes())
        except OSError as error:
            reason = str(error)
        except ValidationError as error:
            first = error.errors()[0]
            reason = ": ".join([*map(str, first["loc"]), first["msg"]])
        raise ResultsError(f"{path} is not a results.json of an evaluation: {reason}")

    def write(self, path: Path) -> None:
        write_atomically(path, json.dumps(self.to_json(), indent=1) + "\n")
