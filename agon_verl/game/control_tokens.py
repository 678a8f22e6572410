"""What a draft writes stays text when another model reads it: it is never tokenized as control tokens.

A tokenizer turns the text of a control token, such as `<|im_end|>`, into that token wherever it occurs. A draft that
writes it in ordinary tokens would end the user's turn in the challenger's prompt, open another one, or open a reasoning
block. So a space is put after the first visible character of every such text: `< |im_end|>`. The text is changed, not
the tokens: one rule then serves verl's prompt builder, our own chat, and programs that send text to a server, and a
text without control tokens is tokenized exactly as before.

A control token is one that the tokenizer calls special, one with a bar as in `<|fim_prefix|>` (Qwen's is not special),
an added token that the chat template writes (`<think>`, `<tool_call>`), or a reasoning tag. Other added tokens, such as
runs of spaces and Gemma's HTML tags, are ordinary text.
"""

import re
from collections.abc import Sequence
from typing import Any

_WITH_BAR = ("<|", "<｜")
_FIRST_VISIBLE = re.compile(r"\S")


class ControlTokens:
    """The control tokens of a tokenizer. `tags`: the reasoning tags, which may be several tokens each; `spared` ones
    stay as they are."""

    def __init__(self, tokenizer: Any, tags: Sequence[str], spared: Sequence[str] = ()) -> None:
        template = str(tokenizer.chat_template or "")
        texts = {
            token.content
            for token in tokenizer.added_tokens_decoder.values()
            if token.special or token.content.startswith(_WITH_BAR) or _written_by(template, token.content)
        }
        # One character cannot be broken up; no tokenizer of a chat model has such a control token.
        chosen = (texts | set(tags)) - set(spared)
        breakable = sorted((text for text in chosen if len(text.strip()) > 1), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, breakable)) or r"(?!)")

    def break_up(self, text: str) -> str:
        """The text without any control token."""
        while self._pattern.search(text):  # more than once only where two overlap
            text = self._pattern.sub(lambda match: _FIRST_VISIBLE.sub(r"\g<0> ", match[0], count=1), text)
        return text


def _written_by(template: str, token: str) -> bool:
    """A token that is a word may be in the template for another reason."""
    return token in template and not token[0].isalnum()
