"""The verifier of an evaluation: the one that the run was trained with, or another of the same interface.

A judge that fails says nothing about the answer: the failure is returned in words, and the answer is left out.
"""

import asyncio
import importlib
import importlib.util
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agon_verl.evaluate.problems import Problem
from agon_verl.game.domains import DOMAINS
from agon_verl.game.transcript import OPENED
from agon_verl.inference.players import InferenceError, Players


@dataclass(frozen=True, slots=True)
class Verdict:
    """`acc` is `None` where the judge failed, which `error` tells."""

    acc: float | None
    format: float | None = None
    pred: str = ""
    verdict: str = ""
    error: str = ""


class Judge:
    def __init__(self, players: Players, given: str | None = None, more: Mapping[str, Any] | None = None) -> None:
        """`given` is `pkg://module` or a file, with `:function` behind it where it is not compute_score."""
        trained = {} if given else players.verifier
        place, _, name = (given or trained.get("path") or DOMAINS[players.domain].verifier).rpartition(":")
        if not place or name.startswith("//"):
            place, name = f"{place}:{name}" if place else name, trained.get("name") or "compute_score"
        self._score = _load(place, name)
        known = inspect.signature(self._score).parameters
        kwargs = {"reasoning_tags": list(players.tags)} if "reasoning_tags" in known else {}
        self._kwargs = {**kwargs, **(trained.get("reward_kwargs") or {}), **(more or {})}
        self._timeout = players.timeout
        self.settings = {"function": f"{place}:{name}", "kwargs": self._kwargs}

    async def verdict(self, problem: Problem, text: str, opened: bool) -> Verdict:
        told = {**problem.extra_info, OPENED: opened}
        arguments = {
            "data_source": problem.source,
            "solution_str": text,
            "ground_truth": problem.ground_truth,
            "extra_info": told,
            **self._kwargs,
        }
        try:
            found = await asyncio.wait_for(self._call(arguments), self._timeout)
        except asyncio.TimeoutError:
            return Verdict(None, error=f"no verdict within {self._timeout:g} seconds")
        except Exception as error:  # whatever a verifier raises is its failure, not the answer's
            return Verdict(None, error=f"{type(error).__name__}: {error}"[:300])
        if not isinstance(found, Mapping) or "acc" not in found:
            raise InferenceError(f"{self.settings['function']} must return a dict with acc, the correctness in [0, 1]")
        return Verdict(
            acc=float(found["acc"]),
            format=float(found["format"]) if "format" in found else None,
            pred=str(found.get("pred") or ""),
            verdict=str(found.get("verdict") or ""),
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
                raise ImportError(f"{place} is no Python file")
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        found: Callable[..., Any] = getattr(module, name)
        return found
    except (ImportError, OSError, AttributeError) as error:
        raise InferenceError(
            f"the verifier {place}:{name} cannot be loaded: name one with --reward ({error})"
        ) from None
