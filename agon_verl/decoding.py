"""A completion as text, with its reasoning tags whatever kind of token they are.

Some model families put their reasoning between special tokens, and text that is decoded for a reader leaves special
tokens out: the private reasoning would pass for the summary, shown to the opponent and graded. verl's reward managers
decode so; a recipe for such a model sets `TagKeepingRewardManager` in their place.
"""

from collections.abc import Sequence
from typing import Any

from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager


class TagKeeper:
    """A tokenizer's `decode` that drops every special token but those of the reasoning tags."""

    def __init__(self, tokenizer: Any, tags: Sequence[str]) -> None:
        special = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
        kept = {number for tag in tags for number in tokenizer.encode(tag, add_special_tokens=False)}
        self._tokenizer, self._dropped, self._ordinary = tokenizer, special - kept, not special & kept

    def decode(self, ids: Any, skip_special_tokens: bool = True) -> str:
        if self._ordinary or not skip_special_tokens:
            return str(self._tokenizer.decode(ids, skip_special_tokens=skip_special_tokens))
        ids = ids.tolist() if hasattr(ids, "tolist") else ids
        return str(self._tokenizer.decode([number for number in ids if number not in self._dropped]))


class TagKeepingRewardManager(NaiveRewardManager):
    """verl's own, but what it decodes still has the tags of `agon.reasoning_tags`."""

    def __init__(self, config: Any, tokenizer: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, TagKeeper(tokenizer, config.agon.reasoning_tags), *args, **kwargs)
