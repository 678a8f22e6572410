"""A third domain: knights-and-knaves puzzles from reasoning-gym, with their own reward function.

    pip install reasoning-gym
    python -m examples.knights --out data/knights                        # train.parquet, heldout.parquet
    python -m verl.trainer.main_ppo +recipe=agon \\
      reward.custom_reward_function.path=examples/knights.py \\
      data.train_files=data/knights/train.parquet data.val_files=data/knights/heldout.parquet \\
      actor_rollout_ref.model.path=Qwen/Qwen3-0.6B

docs/rewards.md explains it. reasoning-gym is needed only to generate the puzzles.
"""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agon_verl.game.transcript import REASONING_TAGS
from reward_fns.scoring import read_completion, score_dict

PROMPT = """\
{problem}

Reason step by step. Then summarise your solution in a few sentences, and end with the final answer alone, between \
<answer> and </answer>."""
_CLAIM = re.compile(r"(?<!\w)(\w++) is (?:an? )?(\w+)")


def claims(text: str) -> dict[str, str] | None:
    """The kind of each person; `None` if a person has two, so that listing all possibilities is not an answer."""
    kinds: dict[str, str] = {}
    for name, kind in _CLAIM.findall(text):
        if kinds.setdefault(name.lower(), kind.lower()) != kind.lower():
            return None
    return kinds


async def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: dict[str, Any] | None = None,
    *,
    format_weight: float = 0.5,
    reasoning_tags: Sequence[str] = REASONING_TAGS,
    **kwargs: Any,
) -> dict[str, float | str]:
    truth = claims(str(ground_truth))
    if not truth:
        raise ValueError(f"ground_truth of a {data_source!r} puzzle must have 'NAME is a KIND': {ground_truth!r}")
    transcript = read_completion(solution_str, extra_info, reasoning_tags)
    if transcript.answer is None:
        verdict = "no_answer"
    else:
        verdict = "correct" if claims(transcript.answer) == truth else "wrong"
    return score_dict(verdict, transcript, transcript.answer, format_weight)


def puzzles(count: int, people: int, seed: int, split: str) -> list[dict[str, Any]]:
    import reasoning_gym

    made = reasoning_gym.create_dataset("knights_knaves", size=count, seed=seed, n_people=people)
    return [
        {
            "data_source": "knights",
            "prompt": [{"role": "user", "content": PROMPT.replace("{problem}", puzzle["question"])}],
            "ability": "logic",
            "reward_model": {"style": "rule", "ground_truth": puzzle["answer"]},
            "extra_info": {"index": number, "split": split},
        }
        for number, puzzle in enumerate(made)
    ]


def main() -> None:
    import pandas as pd

    parser = argparse.ArgumentParser(description="Knights-and-knaves puzzles as Parquet files for verl.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--people", type=int, default=3)
    parser.add_argument("--train", type=int, default=2000)
    parser.add_argument("--heldout", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    heldout = puzzles(options.heldout, options.people, 2 * options.seed, "heldout")
    heldout_prompts = {row["prompt"][0]["content"] for row in heldout}
    train = puzzles(options.train, options.people, 2 * options.seed + 1, "train")
    fresh = [row for row in train if row["prompt"][0]["content"] not in heldout_prompts]
    for name, rows in (("heldout", heldout), ("train", fresh)):
        pd.DataFrame(rows).to_parquet(options.out / f"{name}.parquet")
    print(f"training puzzles: {len(fresh)}, held out: {len(heldout)}, in both and dropped: {len(train) - len(fresh)}")


if __name__ == "__main__":
    main()
