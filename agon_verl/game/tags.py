"""Decodes completions so that reasoning tags survive, special tokens or not."""

from collections.abc import Sequence
from typing import Any


class TagKeeper:
    """A tokenizer's `decode` that drops every special token except those of the reasoning tags."""

    def __init__(self, tokenizer: Any, tags: Sequence[str]) -> None:
        special = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
        kept = {number for tag in tags for number in tokenizer.encode(tag, add_special_tokens=False)}
        self._tokenizer, self._dropped, self._ordinary = tokenizer, special - kept, not special & kept
        self._opening = tags[0]

    def decode(self, ids: Any, skip_special_tokens: bool = True) -> str:
        if self._ordinary or not skip_special_tokens:
            return str(self._tokenizer.decode(ids, skip_special_tokens=skip_special_tokens))
        ids = ids.tolist() if hasattr(ids, "tolist") else ids
        return str(self._tokenizer.decode([number for number in ids if number not in self._dropped]))

    def opened_by(self, prompt_ids: Sequence[int]) -> bool:
        """Whether the chat template has opened the reasoning block at the end of the prompt."""
        return str(self._tokenizer.decode(prompt_ids[-16:])).rstrip().endswith(self._opening)
