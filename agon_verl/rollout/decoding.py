"""verl's reward manager, for models whose reasoning stands between special tokens.

Text that is decoded for a reader leaves special tokens out: the private reasoning would pass for the summary, shown to
the opponent and graded. verl's reward managers decode so; a recipe for such a model sets `TagKeepingRewardManager` in
their place.
"""

from typing import Any

from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager

from agon_verl.rollout.tags import TagKeeper


class TagKeepingRewardManager(NaiveRewardManager):
    """verl's own, but what it decodes still has the tags of `agon.reasoning_tags`."""

    def __init__(self, config: Any, tokenizer: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, TagKeeper(tokenizer, config.agon.reasoning_tags), *args, **kwargs)
