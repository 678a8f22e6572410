"""How long a token took in the course of a step, fitted to the times and lengths of all its requests.

    python benchmarks/token_times.py OUT/plain/pairs/7.jsonl OUT/agon/pairs/7.jsonl

The arguments are pair records of one step each (`trainer.rollout_data_dir`). vLLM decodes one token of each running
sequence at a time, so a request's length is the sum of one rate over the time of the request. The rate of every half
second is found by least squares over all requests, with a term that keeps neighbours alike: a sudden change is spread
over about a second on each side. Prompts are not modelled: their time is a part of the tokens'.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from pathlib import Path
from typing import Any

import numpy as np

Span = tuple[float, float]
WIDTH = 0.5  # seconds
ALIKE = 0.3  # weight of the difference between neighbours


@dataclass(frozen=True)
class Interval:
    begin: float  # seconds since the first draft began
    sequences: int  # that run in its middle
    drafts: int  # of these
    milliseconds: float  # per token
    training: float  # share of the interval in which gradients are computed


def overlap(span: Span, begin: float, end: float) -> float:
    return max(0.0, min(span[1], end) - max(span[0], begin))


def rates(requests: Sequence[tuple[Span, int]], count: int) -> np.ndarray:
    """Tokens per second of a sequence in each of `count` intervals; spans begin with the first interval."""
    lasted = np.array([[overlap(span, WIDTH * n, WIDTH * (n + 1)) for n in range(count)] for span, _ in requests])
    alike = ALIKE * sqrt(len(requests) / count) * np.diff(np.eye(count), axis=0)
    lengths = np.array([length for _, length in requests] + [0] * (count - 1))
    return np.linalg.lstsq(np.vstack([lasted, alike]), lengths, rcond=None)[0]


def intervals(pairs: Sequence[dict[str, Any]]) -> list[Interval]:
    first = min(pair["draft_span"][0] for pair in pairs)

    def since(span: Sequence[float]) -> Span:
        return span[0] - first, span[1] - first

    drafts = [(since(pair["draft_span"]), pair["pair"]["draft"]["length"]) for pair in pairs]
    challenges = [(since(pair["challenge_span"]), pair["pair"]["challenge"]["length"]) for pair in pairs]
    updates = {tuple(pair[f"{role}_update_span"] or ()) for pair in pairs for role in ("draft", "challenge")} - {()}
    count = ceil(max(span[1] for span, _ in challenges) / WIDTH)
    found = []
    for number, rate in enumerate(rates([*drafts, *challenges], count)):
        begin = WIDTH * number
        running = [sum(a <= begin + WIDTH / 2 < b for (a, b), _ in stage) for stage in (drafts, challenges)]
        trained = sum(overlap(since(span), begin, begin + WIDTH) for span in updates)
        found.append(Interval(begin, sum(running), running[0], 1000 / float(rate), trained / WIDTH))
    return found


def table(found: Sequence[Interval]) -> str:
    lines = ["| from, s | sequences | of which drafts | ms per token | training |", "|---|---|---|---|---|"]
    lines += [
        f"| {i.begin:.1f} | {i.sequences} | {i.drafts} | {i.milliseconds:.1f} | {i.training:.0%} |" for i in found
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="How long a token took in the course of a step.")
    parser.add_argument("records", type=Path, nargs="+", help="pair records of a step, RUN/pairs/<step>.jsonl")
    for path in parser.parse_args().records:
        print(f"\n{path}\n\n{table(intervals([json.loads(line) for line in path.read_text().splitlines()]))}")
