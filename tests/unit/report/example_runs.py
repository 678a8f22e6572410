"""Made-up folders of training and evaluation, for the tests of reports and to look at one.

`python -m tests.unit.report.example_runs FOLDER` makes a matrix of nine methods and three seeds, with invented
numbers.
"""

import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SOURCE = "toy/sums"
METHODS = ("grpo", "self_refine", "coop", "adv", "margin", "shared_hidden", "hidden", "fixed", "tiebreak")
HIDDEN = ("grpo", "shared_hidden", "hidden")
ONE = ("grpo", "self_refine")


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def pair(step: int, draft: bool, challenge: bool, method: str = "adv", /, **texts: Any) -> dict[str, Any]:
    """A line of pairs/<step>.jsonl."""
    reward = 2.0 * challenge + (challenge and not draft and method not in ("grpo", "self_refine", "coop"))
    reward = 3.0 * challenge - draft if method == "margin" else reward
    problem, answer = "What is 17 + 25?", "42" if draft else "32"
    shown = "Ones 12, tens 3. [answer withheld]"
    record = {
        "uid": "u",
        "step": step,
        "drafter": "A" if method in ONE else "AB"[step % 2],
        "challenger": "A" if method in ONE else "BA"[step % 2],
        "problem": f"user\n{problem}\nassistant\n",
        "ground_truth": "42",
        "draft": f"<think>7+5=12. 1+2=3.</think>Ones 12, tens 3. <answer>{answer}</answer>",
        "attempt": {"shown": shown, "tokens": 9, "leaked": False, "cut": False},
        "challenge": f"<think>7+5=12, carry 1.</think>So <answer>{'42' if challenge else '32'}</answer>",
        "pair": {
            "group": "u",
            "draft": {"correct": float(draft), "format": 1.0, "length": 31},
            "challenge": {"correct": float(challenge), "format": 1.0, "length": 29},
            "draft_reward": 2.0 * draft + 0.5,
            "challenge_reward": reward + 0.5,
            "draft_prompt_tokens": 12,
            "challenge_prompt_tokens": 60,
            "opponent_tokens": 9,
            "copied": 0.25,
            "guest": False,
        },
        "draft_span": [0.0, 1.0],
        "challenge_span": [1.0, 2.0],
        "format_weight": 0.5,
        "reasoning_tags": ["<think>", "</think>"],
    }
    return {**record, **texts}


def write_pairs(folder: Path, step: int, records: Sequence[dict[str, Any]]) -> None:
    write(folder / "pairs" / f"{step}.jsonl", "".join(json.dumps(record) + "\n" for record in records))


def metrics(step: int, skill: float, rng: random.Random, reads: bool = True, one: bool = False) -> dict[str, float]:
    def near(value: float, by: float = 0.05) -> float:
        return min(1.0, max(0.0, rng.gauss(value, by)))

    drafter, challenger = ("A", "A") if one else ("AB"[step % 2], "BA"[step % 2])
    logged = {
        "draft/acc": near(skill),
        "challenge/acc": near(skill + 0.06),
        "draft/length": rng.gauss(300 - 60 * skill, 8),
        "challenge/length": rng.gauss(280 - 80 * skill, 8),
        "ledger/draft_generated": rng.gauss(64 * 300, 300),
        "ledger/challenge_generated": rng.gauss(64 * 280, 300),
        "ledger/draft_prefilled": 64 * 40.0,
        "ledger/challenge_prefilled": 64 * (120.0 if reads else 40.0),
        "ledger/opponent_prefilled": 64 * (60.0 if reads else 0.0),
        "ledger/problems": 8.0,
        f"{drafter}/draft/acc": near(skill),
        f"health/{drafter}/entropy_trend": rng.gauss(1.1 - 0.5 * skill, 0.03),
        f"health/{challenger}/entropy_trend": rng.gauss(1.05 - 0.4 * skill, 0.03),
        "health/alarms": 0.0,
        "training/global_step": step,
    }
    if reads:
        logged |= {
            "pair/conversion": near(0.2 + 0.5 * skill),
            "pair/damage": near(0.4 - 0.4 * skill),
            "health/error_overlap": near(0.5 - 0.4 * skill),
            "health/error_overlap_if_independent": near(0.4 - 0.35 * skill),
            "health/error_correlation": rng.gauss(0.3, 0.12),
            "health/copy_of_wrong": near(0.3 - 0.2 * skill),
            "health/wrong_answer_kept": near(0.35 - 0.2 * skill),
        }
    both = {"health/distance": near(1 - 0.3 * skill, 0.01), "health/strength_gap": near(0.05)}
    return logged if one else logged | both


def validation(skill: float, rng: random.Random, one: bool = False) -> dict[str, float]:
    ways = (
        {"A_to_A": 0.05, "A_alone": 0.0} if one else {"A_to_B": 0.07, "B_to_A": 0.05, "A_alone": 0.0, "B_alone": 0.01}
    )
    return {f"val-core/{SOURCE}/{way}/acc/mean@1": skill + more + rng.gauss(0, 0.02) for way, more in ways.items()}


def mode(right: Sequence[int], length: float, cascade: bool) -> dict[str, Any]:
    n = len(right)
    stages = {"draft": {"generated": n * 300, "prefilled": n * 40}} if cascade else {}
    stages["final"] = {"generated": int(n * length), "prefilled": n * (120 if cascade else 40)}
    per_pass = {kind: sum(s[kind] for s in stages.values()) / n for kind in ("generated", "prefilled")}
    return {
        "problems": n,
        "answers": n,
        "left_out": 0,
        "pass@1": sum(right) / n,
        "interval": None,
        "length": length,
        "truncated": 0.0,
        "format": 1.0,
        "ledger": {**stages, "per_pass": per_pass},
    }


def results(skills: dict[str, float], rng: random.Random, n: int = 200) -> dict[str, Any]:
    """results.json of an evaluation with one sample per problem."""
    outcomes = {m: {f"p{i}": [int(rng.random() < skill)] for i in range(n)} for m, skill in skills.items()}
    right = {m: [row[0] for row in rows.values()] for m, rows in outcomes.items()}
    both = {"A_to_B", "B_to_A"} <= set(skills)
    data = {
        "problems": n,
        "modes": {m: mode(r, rng.gauss(260, 25), "_to_" in m or m == "moa") for m, r in right.items()},
        "tests": [],
        "post_hoc": max(("A_to_B", "B_to_A"), key=lambda m: sum(right[m])) if both else None,
        "outcomes": outcomes,
    }
    return {
        "target": "t",
        "samples": 1,
        "settings": {"sampling": {"temperature": 0.6, "top_p": 0.95, "top_k": -1, "max_tokens": 512}, "seed": 0},
        "versions": {},
        "direction": {"chosen": "A_to_B" if both else None, "why": "by the run's own validation"},
        "sets": {SOURCE: data},
        "development": None,
        "ledger": {"generations": n, "generated": n, "prefilled": n},
        "left_out": 0,
    }


def write_run(folder: Path, method: str = "adv", seed: int = 0, steps: int = 40, n: int = 200) -> Path:
    rng = random.Random(f"{method}{seed}")
    reads, one = method not in HIDDEN, method in ONE
    top = 0.45 + 0.05 * METHODS.index(method) % 0.23 + rng.gauss(0, 0.015)
    lines = []
    for step in range(steps + 1):
        skill = 0.25 + (top - 0.25) * step / max(1, steps)
        logged = metrics(step, skill, rng, reads, one) if step else {}
        logged |= validation(skill, rng, one) if step % 10 == 0 else {}
        lines.append(json.dumps({"step": step, "data": logged}) + "\n")
        if step:
            records = [pair(step, rng.random() < skill, rng.random() < skill + 0.1, method) for _ in range(16)]
            for record in records if not reads else []:
                record["attempt"] = {"shown": None, "tokens": 0, "leaked": False, "cut": False}
                record["pair"] |= {"challenge_prompt_tokens": 12, "opponent_tokens": 0}
            write_pairs(folder, step, records)
    write(folder / "metrics.jsonl", "".join(lines))
    modes = {"A": top, "A_to_A": top + 0.04}
    modes |= {} if one else {"A_to_B": top + 0.08, "B_to_A": top + 0.06, "B": top + 0.01}
    write(folder / "eval" / "results.json", json.dumps(results(modes, rng, n)))
    return folder


def write_matrix(folder: Path, methods: Sequence[str] = METHODS, seeds: int = 3, **sizes: int) -> Path:
    """With one failed cell, one that failed the parity check, and the untrained model."""
    cells: dict[str, dict[str, Any]] = {}
    for method in methods:
        for seed in range(seeds):
            cells[f"{method}/seed_{seed}"] = {"state": "evaluated", "error": None, "parity": "ok"}
            write_run(folder / method / f"seed_{seed}", method, seed, **sizes)
    failed = f"{methods[-1]}/seed_{seeds - 1}"  # its folder has the results of an earlier attempt
    cells[failed] = {"state": "failed", "error": "CUDA out of memory <b>now</b>", "parity": None}
    cells[f"{methods[0]}/seed_0"]["parity"] = "ledger/rollouts is 120, not 128, at step 7"
    untrained = results({"base": 0.25, "moa": 0.3}, random.Random(0), sizes.get("n", 200))
    write(folder / "base" / "eval" / "results.json", json.dumps(untrained))
    logged = {"recipe": "agon_cpu", "methods": list(methods), "seeds": list(range(seeds)), "cells": cells}
    write(folder / "matrix.json", json.dumps(logged))
    return folder


if __name__ == "__main__":
    print(write_matrix(Path(sys.argv[1])))
