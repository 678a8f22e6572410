"""`results.json`, everything that one evaluation measured, as typed records.

Keys in the file are the field names, with two exceptions: `pass_at_1` is written as `pass@1` and `pass_at_k` as
`pass@k`. `samples` of a mode is written in place, not as an object of its own. A key is left out where a mode has no
drafts (`draft`, `exchange`) or one sample per problem (`first_sample`, `pass@k`, `majority`).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

from agon_verl.errors import AgonError
from agon_verl.evaluate.statistics import Interval
from agon_verl.files import write_atomically

RESULTS = "results.json"
Outcomes = Mapping[str, Sequence[int]]  # by problem, 1 or 0 for each sample that was judged

_KEYS = {"pass_at_1": "pass@1", "pass_at_k": "pass@k"}
_OMITTED_IF_NONE = ("draft", "exchange", "samples")


class ResultsError(AgonError, ValueError):
    """A file is not the `results.json` of an evaluation; the message says why."""


@dataclass(frozen=True)
class Tokens:
    generated: float
    prefilled: float


@dataclass(frozen=True)
class Ledger:
    """The tokens of each stage over all answers, and of all stages for one pass over one problem."""

    draft: Tokens | None
    final: Tokens
    per_pass: Tokens


@dataclass(frozen=True)
class FirstSample:
    """The first sample of each problem, which has an exact interval."""

    pass_at_1: float | None
    interval: Interval | None


@dataclass(frozen=True)
class SampleResults:
    """What several samples per problem add."""

    first_sample: FirstSample
    pass_at_k: Mapping[int, float | None]
    majority: float | None


@dataclass(frozen=True)
class Exchange:
    """What the second stage made of right and of wrong drafts, and how long it is after either."""

    right_drafts: int
    wrong_drafts: int
    converted: int
    damaged: int
    conversion: float | None
    damage: float | None
    length_given_right_draft: float | None
    length_given_wrong_draft: float | None


@dataclass(frozen=True)
class ModeResults:
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
    samples: SampleResults | None
    exchange: Exchange | None


@dataclass(frozen=True)
class ModeTest:
    """The paired test of one mode against another."""

    first: str
    second: str
    problems: int
    difference: float
    interval: Interval | None
    p: float
    test: str


@dataclass(frozen=True)
class SetResults:
    """One data set. `post_hoc` is the direction that was better on these very problems."""

    problems: int
    modes: Mapping[str, ModeResults]
    tests: Sequence[ModeTest]
    post_hoc: str | None
    outcomes: Mapping[str, Outcomes]


@dataclass(frozen=True)
class Direction:
    """The direction of the cascade that was chosen without these problems, and the reason."""

    chosen: str | None
    why: str


@dataclass(frozen=True)
class Generated:
    """All generations of an evaluation, each counted once."""

    generations: int
    generated: int
    prefilled: int


@dataclass(frozen=True)
class Results:
    target: str
    samples: int
    settings: Mapping[str, Any]  # as in settings.json
    versions: Mapping[str, Any]
    direction: Direction
    sets: Mapping[str, SetResults]
    development: SetResults | None
    ledger: Generated
    left_out: int

    @classmethod
    def read(cls, path: Path) -> "Results":
        """`path` is the file, or the folder of the evaluation."""
        path = path / RESULTS if path.is_dir() else path
        try:
            return cls.from_json(json.loads(path.read_text()))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
            raise ResultsError(f"{path} is not a results.json of an evaluation: {reason}") from None

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Results":
        return cls(
            **{
                **data,
                "direction": Direction(**data["direction"]),
                "sets": {source: _set_results(each) for source, each in data["sets"].items()},
                "development": _set_results(data["development"]) if data["development"] else None,
                "ledger": Generated(**data["ledger"]),
            }
        )

    def write(self, path: Path) -> None:
        write_atomically(path, json.dumps(to_json(self), indent=1) + "\n")


def to_json(value: Any) -> Any:
    """Records as objects with the keys of the file; other values as they are."""
    if isinstance(value, Mapping):
        return {str(key): to_json(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(each) for each in value]
    if not is_dataclass(value):
        return value
    data: dict[str, Any] = {}
    for name in [field.name for field in fields(value)]:
        each = to_json(getattr(value, name))
        if isinstance(getattr(value, name), SampleResults):
            data |= each
        elif each is not None or name not in _OMITTED_IF_NONE:
            data[_KEYS.get(name, name)] = each
    return data


def _set_results(data: Mapping[str, Any]) -> SetResults:
    modes = {mode: _mode_results(dict(each)) for mode, each in data["modes"].items()}
    tests = [ModeTest(**{**test, "interval": _interval(test["interval"])}) for test in data["tests"]]
    return SetResults(**{**data, "modes": modes, "tests": tests})


def _mode_results(data: dict[str, Any]) -> ModeResults:
    samples = None
    if "pass@k" in data:
        first, pass_at_k = data.pop("first_sample"), data.pop("pass@k")
        samples = SampleResults(
            FirstSample(first["pass@1"], _interval(first["interval"])),
            {int(k): share for k, share in pass_at_k.items()},
            data.pop("majority"),
        )
    exchange = data.pop("exchange", None)
    ledger = {stage: Tokens(**tokens) for stage, tokens in data.pop("ledger").items()}
    return ModeResults(
        pass_at_1=data.pop("pass@1"),
        interval=_interval(data.pop("interval")),
        ledger=Ledger(ledger.get("draft"), ledger["final"], ledger["per_pass"]),
        samples=samples,
        exchange=Exchange(**exchange) if exchange else None,
        **data,
    )


def _interval(data: Mapping[str, Any] | None) -> Interval | None:
    return Interval(**data) if data else None
