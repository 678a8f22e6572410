"""The generations of an evaluation on disk, one line each, written as they are made.

    DIR/
      settings.json       what determines the generations; a command with other settings is refused
      generations.jsonl   one line each; of two lines with the same key the last counts (a repeated verdict)
      versions.json       of the packages that generated: a list, with another entry if other versions went on
      results.json, results.md

A line is written in one call and ends with a line break, so after a kill only the last line can be torn. It is dropped.
"""

import json
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agon_verl.files import lock, write_atomically
from agon_verl.inference.players import InferenceError
from agon_verl.pair.checkpoint import versions

Key = tuple[str, str, int]


@dataclass(frozen=True)
class Generation:
    """`mode`, `problem` and `sample` are its key. The mode of a first stage is the player's name.

    `acc` is `None` before the verdict and where the judge failed; `error` says why. `shown` is the part of the draft in
    the prompt, and `reasoned` whether the draft has reasoning, which is not.
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
    acc: float | None = None
    format: float | None = None
    pred: str = ""
    verdict: str = ""
    error: str = "not judged"
    shown: str | None = None
    leaked: bool | None = None
    cut: bool | None = None
    reasoned: bool | None = None

    @property
    def key(self) -> Key:
        return self.mode, self.problem, self.sample


class Store(AbstractContextManager["Store"]):
    """The folder is locked while this is open: two commands at once would generate everything twice."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self._path, self._versions = folder, folder / "generations.jsonl", folder / "versions.json"
        self._file = self._path.open("ab")
        try:
            lock(self._file)
        except BlockingIOError:
            raise InferenceError(f"{folder} is in use by another evaluation: wait, or use another --out") from None
        try:
            self._check_settings(json.loads(json.dumps(settings)))
            self.generations = self._read()
            self._noted = False
        except InferenceError:
            self._file.close()
            raise

    def _check_settings(self, settings: Mapping[str, Any]) -> None:
        path = self.folder / "settings.json"
        if not path.exists():
            write_atomically(path, json.dumps(settings, indent=1) + "\n")
            return
        before = json.loads(path.read_text())
        changed = [name for name in sorted({*before, *settings}) if before.get(name) != settings.get(name)]
        if changed:
            changes = "; ".join(f"{name} was {before.get(name)!r}, now {settings.get(name)!r}" for name in changed)
            raise InferenceError(f"{self.folder} was made with other settings: {changes}. Use those, or another --out")

    def _read(self) -> dict[Key, Generation]:
        content = self._path.read_bytes()
        complete = content.rfind(b"\n") + 1
        if complete < len(content):
            self._file.truncate(complete)
        generations = {}
        for number, line in enumerate(content[:complete].splitlines(), 1):
            try:
                fields = dict(json.loads(line))
                fields.pop("stated", None)  # a field of earlier versions
                generation = Generation(**fields)
            except (ValueError, TypeError) as error:
                raise InferenceError(f"line {number} of {self._path} cannot be read: remove it ({error})") from None
            generations[generation.key] = generation
        return generations

    def add(self, generation: Generation) -> None:
        if generation.key not in self.generations and not self._noted:
            self._note_versions()
        line = json.dumps(asdict(generation), ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"
        os.write(self._file.fileno(), line)
        self.generations[generation.key] = generation

    def _note_versions(self) -> None:
        made_with, now = self._made_with(), versions()
        if now not in made_with:
            write_atomically(self._versions, json.dumps([*made_with, now], indent=1) + "\n")
        self._noted = True

    def _made_with(self) -> list[dict[str, str]]:
        return json.loads(self._versions.read_text()) if self._versions.exists() else []

    @property
    def versions(self) -> dict[str, str]:
        """Of the packages that generated, which need not be those that are installed where the results are written.

        Several versions of one package are joined by commas. Empty for folders that were made before this was noted.
        """
        made_with = self._made_with()
        names = dict.fromkeys(name for each in made_with for name in each)
        return {name: ", ".join(dict.fromkeys(each[name] for each in made_with if name in each)) for name in names}

    def close(self) -> None:
        self._file.close()

    def __exit__(self, *_: object) -> None:
        self.close()
