"""verl's reward manager, for models whose reasoning tags are special tokens.

verl's reward managers drop special tokens when they decode. The private reasoning would then count as the summary: it
would be shown to the opponent and graded. A recipe for such a model sets `TagKeepingRewardManager` instead.
"""

from typing import Any

from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager

from agon_verl.game.tags import TagKeeper


class TagKeepingRewardManager(NaiveRewardManager):
    """The only change: decoded text keeps the tags of `agon.reasoning_tags`."""

    def __init__(self, config: Any, tokenizer: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, TagKeeper(tokenizer, config.agon.reasoning_tags), *args, **kwargs)
