"""What every reward function does around its verdict: parse the completion, and return the same keys each time.

verl averages every number that a reward function returns, by its key, so all completions must have the same keys.
docs/rewards.md shows how to write a reward function with these two functions.
"""

from collections.abc import Sequence
from typing import Any

from agon_verl.game.rewards import Outcome, standalone_reward
from agon_verl.game.transcript import ENDED, OPENED, Transcript, read


def read_completion(
    solution_str: str,
    extra_info: dict[str, Any] | None,
    reasoning_tags: Sequence[str],
    opened: bool = False,
    needs_summary: bool = False,
) -> Transcript:
    """Split a completion into reasoning, summary and answer, by the rules of `agon_verl.game.transcript`.

    A reward function does not see the prompt, where a chat template may already have opened the reasoning, nor why the
    completion ended. Agon's rollout and evaluation report both in `extra_info`; under another trainer set `opened`
    (`reward.custom_reward_function.reward_kwargs.opened=true`).
    """
    opening, closing = reasoning_tags
    info = extra_info or {}
    started, ended = bool(info.get(OPENED, opened)), info.get(ENDED)
    return read(solution_str, opened=started, ended=ended, tags=(opening, closing), needs_summary=needs_summary)


def score_dict(verdict: str, transcript: Transcript, pred: str | None, format_weight: float) -> dict[str, float | str]:
    """`score` is 2c + lambda phi, `acc` c, `format` phi, `pred` what was graded ("" if nothing), `verdict` a word."""
    correct, well_formed = float(verdict == "correct"), float(transcript.well_formed)
    return {
        "score": standalone_reward(Outcome(correct, well_formed, length=0), format_weight),
        "acc": correct,
        "format": well_formed,
        "pred": pred or "",
        "verdict": verdict,
    }
