"""The verifier of an evaluation: the one that the run was trained with, or another with the same interface.

A failure of the judge does not make an answer wrong: it is recorded as an error, and the answer is left out.

`pair.json` names the run's verifier, and anybody may have written it. Without the user's word only our own verifiers
are taken from there, and of their settings only those that change a verdict: neither where programs run, nor with which
interpreter, nor on how many cores.
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

FUNCTION = "compute_score"
OURS = {domain.verifier for domain in DOMAINS.values()}
HARMLESS = {"format_weight", "opened", "reasoning_tags", "needs_summary", "finished"}
LARGEST = {"time_limit": 60, "memory_limit": 4096, "total_time": 600}  # seconds, megabytes, seconds


class Judge:
    def __init__(
        self,
        players: Players,
        verifier: str | None = None,
        kwargs: Mapping[str, Any] | None = None,
        trust: bool = False,
    ) -> None:
        """`verifier` is `pkg://module` or a file, followed by `:function` unless that is compute_score.

        With `trust` the target's own verifier is loaded, whatever it is.
        """
        trained = {} if verifier else players.verifier
        if not trust:
            _check_named_by_target(players.target, trained, kwargs or {})
        place, _, name = (verifier or trained.get("path") or DOMAINS[players.domain].verifier).rpartition(":")
        if not place or name.startswith("//"):
            place, name = f"{place}:{name}" if place else name, trained.get("name") or FUNCTION
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


def _check_named_by_target(target: str, trained: Mapping[str, Any], chosen: Mapping[str, Any]) -> None:
    """Refuse what a target's `pair.json` may not decide; the user's own `chosen` arguments replace the target's."""
    path, name = trained.get("path"), trained.get("name") or FUNCTION
    if (path and path not in OURS) or name != FUNCTION:
        raise InferenceError(
            f"{target} names the verifier {path}:{name}. Its code would run on this machine with your rights. If you "
            f"know it, add --trust-verifier or name it with --reward; ours are {' and '.join(sorted(OURS))}"
        )
    settings = trained.get("reward_kwargs") or {}
    if others := {key: value for key, value in settings.items() if key not in chosen and not _harmless(key, value)}:
        shown = " ".join(f"{key}={value}" for key, value in others.items())
        raise InferenceError(
            f"{target} sets {shown} for its verifier, which decides how programs run on this machine. If you want "
            "that, add --trust-verifier; otherwise choose your own values with --reward-kwargs"
        )


def _harmless(key: str, value: Any) -> bool:
    return key in HARMLESS or (key in LARGEST and isinstance(value, int | float) and 0 < value <= LARGEST[key])


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
