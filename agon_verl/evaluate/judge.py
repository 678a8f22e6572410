"""The verifier of an evaluation: the one that the run was trained with, or another with the same interface.

A failure of the judge does not make an answer wrong: it is recorded as an error, and the answer is left out.
"""

import asyncio
import importlib
import importlib.util
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agon_verl.evaluate.problems import EvaluationProblem
from agon_verl.game.domains import DOMAINS
from agon_verl.game.transcript import OPENED
from agon_verl.inference.players import InferenceError, Players


@dataclass(frozen=True, slots=True)
class Verdict:
    """`acc` is `None` where the judge failed, and `error` says why."""

    acc: float | None
    format: float | None = None
    pred: str = ""
    verdict: str = ""
    error: str = ""


class Judge:
    def __init__(self, players: Players, verifier: str | None = None, kwargs: Mapping[str, Any] | None = None) -> None:
        """`verifier` is `pkg://module` or a file, followed by `:function` unless that is compute_score."""
        trained = {} if verifier else players.verifier
        place, _, name = (verifier or trained.get("path") or DOMAINS[players.domain].verifier).rpartition(":")
        if not place or name.startswith("//"):
            place, name = f"{place}:{name}" if place else name, trained.get("name") or "compute_score"
        self._score = _load(place, name)
        takes_tags = "reasoning_tags" in inspect.signature(self._score).parameters
        tags = {"reasoning_tags": list(players.tags)} if takes_tags else {}
        self._kwargs = {**tags, **(trained.get("reward_kwargs") or {}), **(kwargs or {})}
        self._timeout = players.timeout
        self.settings = {"function": f"{place}:{name}", "kwargs": self._kwargs}

    async def verdict(self, problem: EvaluationProblem, text: str, opened: bool) -> Verdict:
        arguments = {
            "data_source": problem.source,
            "solution_str": text,
            "ground_truth": problem.ground_truth,
            "extra_info": {**problem.extra_info, OPENED: opened},
            **self._kwargs,
        }
        try:
            score = await asyncio.wait_for(self._call(arguments), self._timeout)
        except asyncio.TimeoutError:
            return Verdict(None, error=f"no verdict within {self._timeout:g} seconds")
        except Exception as error:  # an exception of the verifier does not make the answer wrong
            return Verdict(None, error=f"{type(error).__name__}: {error}"[:300])
        if not isinstance(score, Mapping) or "acc" not in score:
            raise InferenceError(f"{self.settings['function']} must return a dict with acc, the correctness in [0, 1]")
        return Verdict(
            acc=float(score["acc"]),
            format=float(score["format"]) if "format" in score else None,
            pred=str(score.get("pred") or ""),
            verdict=str(score.get("verdict") or ""),
        )

    async def _call(self, arguments: Mapping[str, Any]) -> Any:
        if inspect.iscoroutinefunction(self._score):
            return await self._score(**arguments)
        return await asyncio.to_thread(self._score, **arguments)


def _load(place: str, name: str) -> Callable[..., Any]:
    try:
        if place.startswith("pkg://"):
            module = importlib.import_module(place.removeprefix("pkg://").replace("/", "."))
        else:
            spec = importlib.util.spec_from_file_location("agon_verifier", Path(place).expanduser())
            if spec is None or spec.loader is None:
                raise ImportError(f"{place} is not a Python file")
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        score: Callable[..., Any] = getattr(module, name)
        return score
    except (ImportError, OSError, AttributeError) as error:
        raise InferenceError(
            f"the verifier {place}:{name} cannot be loaded: name one with --reward ({error})"
        ) from None
