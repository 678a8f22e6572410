"""Prompts and completions as tokens and as text: everything that needs the base's tokenizer but no engine."""

from collections.abc import Mapping, Sequence
from typing import Any

from agon_verl.game import transcript
from agon_verl.game.control_tokens import ControlTokens
from agon_verl.game.tags import TagKeeper
from agon_verl.inference.players import InferenceError, Players

STOP = "stop"  # the finish reason of a completion that the model ended; "length": the token limit did
Messages = Sequence[Mapping[str, Any]]


class Chat:
    def __init__(self, players: Players) -> None:
        from transformers import AutoTokenizer

        self.players = players
        self.tokenizer = AutoTokenizer.from_pretrained(players.base)
        self.tokenizer.chat_template = players.template or self.tokenizer.chat_template
        if self.tokenizer.chat_template is None:
            raise InferenceError(f"{players.base} has no chat template: use an instruction-tuned model")
        self.reader = TagKeeper(self.tokenizer, players.tags)
        self.control = ControlTokens(self.tokenizer, players.tags)
        self._in_messages = ControlTokens(self.tokenizer, (), spared=players.tags)

    def as_text(self, messages: Messages) -> list[dict[str, Any]]:
        """Messages of a stranger, whose control tokens become text. Reasoning tags stay: training's prompts name them
        (`agon data --reasoning-tags`), and they end no turn."""
        return [{**message, "content": self._in_messages.break_up(message["content"])} for message in messages]

    def prompt_ids(self, messages: Messages) -> list[int]:
        ids = self.tokenizer.apply_chat_template(
            [dict(message) for message in messages], add_generation_prompt=True, return_dict=False, **self.players.chat
        )
        return list(ids)

    def count(self, text: str) -> int:
        return len(self.tokenizer.encode(text, add_special_tokens=False))

    def excess(self, messages: Messages) -> int:
        """The number of tokens by which a prompt exceeds the limit; negative if it fits."""
        return len(self.prompt_ids(messages)) - self.players.max_prompt

    def read(self, text: str, opened: bool, finish: str) -> transcript.Transcript:
        return transcript.read(text, opened=opened, ended=finish == STOP, tags=self.players.tags)


class StreamDecoder:
    """Decodes a growing list of tokens piece by piece; an incomplete character waits for its other tokens.

    Only the tokens since the piece before the last are decoded again, so the cost is linear in the length.
    """

    def __init__(self, reader: TagKeeper) -> None:
        self._reader, self._start, self._end = reader, 0, 0

    def new_text(self, ids: Sequence[int], last: bool) -> str:
        """The text that the tokens since the last call add. `ids` are all tokens so far."""
        before = self._reader.decode(ids[self._start : self._end])
        text = self._reader.decode(ids[self._start :])
        if len(text) <= len(before) or (text.endswith("\ufffd") and not last):
            return ""
        self._start, self._end = self._end, len(ids)
        return text[len(before) :]
