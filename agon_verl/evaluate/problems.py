"""The problems of an evaluation, from the parquet files that training uses.

A problem's name is a digest of its prompt and reference, so that two evaluations agree on it whatever the order of
their files; a second copy of a problem counts as another one.
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
class Problem:
    id: str
    source: str
    messages: Sequence[Mapping[str, Any]]
    ground_truth: Any
    extra_info: Mapping[str, Any]


def locate(given: str) -> Path:
    """A file, or by its name a set that `python -m agon_verl.data` has prepared."""
    path = Path(given).expanduser()
    if path.is_file():
        return path
    if (prepared := PREPARED / given / "heldout.parquet").is_file():
        return prepared
    raise InferenceError(
        f"{given} is neither a parquet file nor a prepared set: run python -m agon_verl.data {Path(given).stem}"
    )


def read(given: Sequence[str]) -> list[Problem]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    found: list[Problem] = []
    seen: Counter[str] = Counter()
    for path in map(locate, given):
        try:
            rows = pq.read_table(path).to_pylist()
        except (pa.ArrowInvalid, OSError) as error:
            raise InferenceError(f"{path} cannot be read as parquet: {error}") from None
        for number, row in enumerate(rows):
            found.append(_problem(row, seen, f"row {number} of {path}"))
    if not found:
        raise InferenceError(f"{', '.join(given)} holds no problems")
    return found


def _problem(row: Mapping[str, Any], seen: Counter[str], where: str) -> Problem:
    try:
        messages, truth = row["prompt"], row["reward_model"]["ground_truth"]
        chat = bool(messages) and messages[-1]["role"] == "user" and isinstance(messages[-1]["content"], str)
    except (KeyError, TypeError):
        raise InferenceError(f"{where} needs a prompt, as chat messages, and reward_model.ground_truth") from None
    if not chat:
        raise InferenceError(f"{where} has a prompt whose last message is not a text of the user's")
    digest = hashlib.sha256(json.dumps([messages, truth], sort_keys=True, default=str).encode()).hexdigest()[:16]
    seen[digest] += 1
    name = digest if seen[digest] == 1 else f"{digest}#{seen[digest]}"
    return Problem(name, str(row.get("data_source") or "unnamed"), messages, truth, row.get("extra_info") or {})
