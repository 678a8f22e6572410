"""Other callers of math-verify that `math_verifier.py` compares with: verl's reward, the settings of TRL and open-r1.

Each gets its usual input: the completion with the answer in a box, and the reference between dollar signs if it parses
that itself. They run in a separate process, which is killed if one pair takes longer than `PATIENCE_S`.
"""

import logging
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

PATIENCE_S = 60.0  # twice the longest time limit of any of them


class Graded(NamedTuple):
    """`verdict` is whether the answer was accepted; `None` if it was not judged: skipped, raised or hung."""

    verdict: bool | None
    seconds: float


def verl(gold: str, completion: str) -> bool:
    from verl.utils.reward_score.math_verify import compute_score

    return compute_score(completion, gold) == 1.0


def trl(gold: str, completion: str) -> bool | None:
    """Gold by the defaults; the answer from the box first, units dropped, the first match or none."""
    from latex2sympy2_extended import NormalizationConfig
    from math_verify import LatexExtractionConfig, parse, verify

    reference = parse(f"${gold}$")
    if not reference:
        return None
    config = LatexExtractionConfig(
        normalization_config=NormalizationConfig(units=True), boxed_match_priority=0, try_extract_without_anchor=False
    )
    return verify(reference, parse(completion, [config], extraction_mode="first_match"))


def open_r1(gold: str, completion: str) -> bool | None:
    """As TRL's, with its own normalisation."""
    from latex2sympy2_extended import NormalizationConfig
    from math_verify import LatexExtractionConfig, parse, verify

    reference = parse(f"${gold}$", [LatexExtractionConfig()], extraction_mode="first_match")
    if not reference:
        return None
    normalization = NormalizationConfig(
        nits=False, malformed_operators=False, basic_latex=True, equations=True, boxed="all", units=True
    )
    config = LatexExtractionConfig(
        normalization_config=normalization, boxed_match_priority=0, try_extract_without_anchor=False
    )
    return verify(reference, parse(completion, [config], extraction_mode="first_match"))


GRADERS: dict[str, Callable[[str, str], bool | None]] = {"verl": verl, "TRL": trl, "open-r1": open_r1}


def grade(name: str, pairs: list[tuple[str, str]]) -> list[Graded]:
    """All pairs by one grader. If a pair kills or hangs it, only that pair is lost."""
    graded: list[Graded] = []
    while len(graded) < len(pairs):
        ours, theirs = multiprocessing.Pipe()
        child = multiprocessing.get_context("spawn").Process(target=_serve, args=(name, theirs))
        child.start()
        theirs.close()
        ours.recv()  # its imports are done
        for gold, completion in pairs[len(graded) :]:
            began = time.perf_counter()
            ours.send((gold, completion))
            try:
                verdict = ours.recv() if ours.poll(PATIENCE_S) else None
                alive = ours.poll(0) is False and time.perf_counter() - began < PATIENCE_S
            except EOFError:
                verdict, alive = None, False
            graded.append(Graded(verdict, time.perf_counter() - began))
            if not alive:
                break
        ours.close()
        os.killpg(child.pid, signal.SIGKILL)  # including verl's process pool
        child.join()
    return graded


def _serve(name: str, pairs: Connection) -> Any:
    os.setsid()
    logging.disable(logging.CRITICAL)
    GRADERS[name]("1", r"$\boxed{2}$")
    pairs.send("ready")
    while True:
        try:
            gold, completion = pairs.recv()
        except EOFError:
            return
        try:
            pairs.send(GRADERS[name](gold, completion))
        except Exception:  # counts as not judged; the others must go on
            pairs.send(None)
