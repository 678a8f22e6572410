"""The verifier of an evaluation: the one that the run was trained with, or another with the same interface.

A failure of the judge does not make an answer wrong: it is recorded as an error, and the answer is left out.
"""

import asyncio
import importlib
import importlib.util
import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from agon_verl.evaluate.problems import EvaluationProblem
from agon_verl.evaluate.store import Generation
from agon_verl.game.domains import DOMAINS
from agon_verl.game.transcript import ENDED, OPENED
from agon_verl.inference.chat import STOP
from agon_verl.inference.players import InferenceError, Players


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

    async def judged(self, problem: EvaluationProblem, generation: Generation) -> Generation:
        """The generation with its verdict; without one, if the verifier fails or takes too long."""
        arguments = {
            "data_source": problem.source,
            "solution_str": generation.text,
            "ground_truth": problem.ground_truth,
            "extra_info": {**problem.extra_info, OPENED: generation.opened, ENDED: generation.finish == STOP},
            **self._kwargs,
        }
        try:
            score = await asyncio.wait_for(_call(self._score, arguments), self._timeout)
        except asyncio.TimeoutError:
            return replace(generation, error=f"no verdict within {self._timeout:g} seconds")
        except Exception as error:  # an exception of the verifier does not make the answer wrong
            return replace(generation, error=f"{type(error).__name__}: {error}"[:300])
        if not isinstance(score, Mapping) or "acc" not in score:
            raise InferenceError(f"{self.settings['function']} must return a dict with acc, the correctness in [0, 1]")
        return replace(
            generation,
            acc=float(score["acc"]),
            format=float(score["format"]) if "format" in score else None,
            pred=str(score.get("pred") or ""),
            verdict=str(score.get("verdict") or ""),
            error="",
        )


async def _call(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    if inspect.iscoroutinefunction(function):
        return await function(**arguments)
    return await asyncio.to_thread(function, **arguments)


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
