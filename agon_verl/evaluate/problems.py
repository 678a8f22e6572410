"""The problems of an evaluation, from the parquet files that training uses.

A problem's id is a digest of its prompt and reference answer, so it is the same in two evaluations whatever the order
of their files. A second copy of a problem gets an id of its own.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agon_verl.inference.players import InferenceError

PREPARED = Path("~/data/agon").expanduser()  # where `python -m agon_verl.data` writes


@dataclass(frozen=True)
class EvaluationProblem:
    id: str
    source: str
    messages: Sequence[Mapping[str, Any]]
    ground_truth: Any
    extra_info: Mapping[str, Any]


def locate(name: str) -> Path:
    """A file, or the held-out part of a set that `python -m agon_verl.data` has prepared."""
    path = Path(name).expanduser()
    if path.is_file():
        return path
    if (prepared := PREPARED / name / "heldout.parquet").is_file():
        return prepared
    raise InferenceError(
        f"{name} is neither a parquet file nor a prepared set: run python -m agon_verl.data {Path(name).stem}"
    )


def read_problems(names: Sequence[str]) -> list[EvaluationProblem]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    problems: list[EvaluationProblem] = []
    copies: Counter[str] = Counter()
    for path in map(locate, names):
        try:
            rows = pq.read_table(path).to_pylist()
        except (pa.ArrowInvalid, OSError) as error:
            raise InferenceError(f"{path} cannot be read as parquet: {error}") from None
        problems += [_problem(row, copies, f"row {number} of {path}") for number, row in enumerate(rows)]
    if not problems:
        raise InferenceError(f"there are no problems in {', '.join(names)}")
    return problems


def _problem(row: Mapping[str, Any], copies: Counter[str], place: str) -> EvaluationProblem:
    try:
        messages, truth = row["prompt"], row["reward_model"]["ground_truth"]
        chat = bool(messages) and messages[-1]["role"] == "user" and isinstance(messages[-1]["content"], str)
    except (KeyError, TypeError):
        raise InferenceError(f"{place} needs a prompt, as chat messages, and reward_model.ground_truth") from None
    if not chat:
        raise InferenceError(f"{place} has a prompt whose last message is not text from the user")
    digest = hashlib.sha256(json.dumps([messages, truth], sort_keys=True, default=str).encode()).hexdigest()[:16]
    copies[digest] += 1
    name = digest if copies[digest] == 1 else f"{digest}#{copies[digest]}"
    return EvaluationProblem(
        name, str(row.get("data_source") or "unnamed"), messages, truth, row.get("extra_info") or {}
    )
