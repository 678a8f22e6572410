"""What a reward function does around its verdict: it takes the completion apart, and answers in the same keys always.

verl averages every number that a reward function returns, by its key, so a key may not come and go. docs/rewards.md
shows how to write a reward function of one's own with these two.
"""

from collections.abc import Sequence
from typing import Any

from agon_verl.game.rewards import Outcome, standalone_reward
from agon_verl.game.transcript import OPENED, Transcript, read


def take_apart(
    solution_str: str, extra_info: dict[str, Any] | None, reasoning_tags: Sequence[str], opened: bool = False
) -> Transcript:
    """The completion's reasoning, summary and answer. Nothing inside the reasoning is ever graded.

    The one thing a reward function cannot see is the prompt, where a chat template may have opened the reasoning; a
    completion cut off inside it then looks like one that has none. Agon's rollout says so in `extra_info`; under
    another trainer `opened` has to (`reward.custom_reward_function.reward_kwargs.opened=true`).
    """
    opening, closing = reasoning_tags
    return read(solution_str, opened=bool((extra_info or {}).get(OPENED, opened)), tags=(opening, closing))


def scored(verdict: str, transcript: Transcript, pred: str | None, format_weight: float) -> dict[str, float | str]:
    """`score` is 2c + lambda phi, `acc` c, `format` phi, `pred` what was judged ("" if nothing), `verdict` a word."""
    correct, well_formed = float(verdict == "correct"), float(transcript.well_formed)
    return {
        "score": standalone_reward(Outcome(correct, well_formed, length=0), format_weight),
        "acc": correct,
        "format": well_formed,
        "pred": pred or "",
        "verdict": verdict,
    }
