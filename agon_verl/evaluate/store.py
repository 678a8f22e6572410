"""What an evaluation has generated so far, on disk: one line a generation, written as it comes.

    DIR/
      settings.json       what decides the generations; a command with others is refused
      generations.jsonl   one line each; of two lines with the same key the last counts (a verdict given anew)
      results.json, results.md

A line is written in one call and ends with a line break, so after a kill only the last one can be torn: it is dropped.
"""

import fcntl
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agon_verl.files import write_atomically
from agon_verl.inference.players import InferenceError

Key = tuple[str, str, int]


@dataclass(frozen=True)
class Generation:
    """`mode`, `problem` and `sample` are its key: a player's own name for a first stage, and `moa` for a refined one.

    `acc` is `None` where the judge failed, as `error` tells. `shown` is what was read of the other's attempt.
    """

    mode: str
    stage: int
    player: str
    problem: str
    sample: int
    prompt_tokens: int
    tokens: int
    finish: str
    opened: bool
    text: str
    acc: float | None
    format: float | None
    pred: str
    verdict: str
    error: str
    shown: str | None = None
    leaked: bool | None = None
    cut: bool | None = None

    @property
    def key(self) -> Key:
        return self.mode, self.problem, self.sample


class Store:
    """The folder is held while this is open: two commands at once would generate everything twice."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self._path = folder, folder / "generations.jsonl"
        self._file = self._path.open("ab")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InferenceError(f"{folder} is in use by another evaluation: wait, or give another --out") from None
        try:
            self._same(json.loads(json.dumps(settings)))
            self._known = self._read()
        except InferenceError:
            self._file.close()
            raise

    def _same(self, settings: Mapping[str, Any]) -> None:
        path = self.folder / "settings.json"
        if not path.exists():
            write_atomically(path, json.dumps(settings, indent=1) + "\n")
            return
        before = json.loads(path.read_text())
        changed = [name for name in sorted({*before, *settings}) if before.get(name) != settings.get(name)]
        if changed:
            told = "; ".join(f"{name} was {before.get(name)!r}, now {settings.get(name)!r}" for name in changed)
            raise InferenceError(f"{self.folder} was made with other settings: {told}. Use those, or another --out")

    def _read(self) -> dict[Key, Generation]:
        content = self._path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            self._file.truncate(whole)
        known = {}
        for number, line in enumerate(content[:whole].splitlines(), 1):
            try:
                generation = Generation(**json.loads(line))
            except (ValueError, TypeError) as error:
                raise InferenceError(f"line {number} of {self._path} cannot be read: remove it ({error})") from None
            known[generation.key] = generation
        return known

    def get(self, key: Key) -> Generation | None:
        return self._known.get(key)

    def all(self) -> list[Generation]:
        return list(self._known.values())

    def add(self, generation: Generation) -> None:
        line = json.dumps(asdict(generation), ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"
        os.write(self._file.fileno(), line)
        self._known[generation.key] = generation

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
