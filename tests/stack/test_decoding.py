"""Reasoning between special tokens stays visible to whoever has to tell it from the summary."""

import asyncio
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from verl import DataProto

from agon_verl.game import transcript
from agon_verl.game.tags import TagKeeper
from agon_verl.rollout.decoding import TagKeepingRewardManager

TAGS = ("<|channel>thought", "<channel|>")
TEXT = "<|channel>thought I guess 4 <channel|> so <answer>5</answer> <turn|>"


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerFast:
    """As Gemma 4's: tags, and the end of a turn, are special tokens."""
    words = ["[UNK]", "thought", "I", "guess", "4", "so", "<answer>5</answer>"]
    model = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    model.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    found = PreTrainedTokenizerFast(tokenizer_object=model)
    found.add_special_tokens({"additional_special_tokens": ["<|channel>", "<channel|>", "<turn|>"]})
    return found


def test_special_tags_stay_and_other_special_tokens_go(tokenizer: Any) -> None:
    ids = tokenizer.encode(TEXT, add_special_tokens=False)
    assert "channel" not in tokenizer.decode(ids, skip_special_tokens=True)  # else there is nothing to test
    for given in (ids, torch.tensor(ids)):
        text = TagKeeper(tokenizer, TAGS).decode(given)
        assert "<turn|>" not in text
        read = transcript.read(text, tags=("<|channel>", "<channel|>"))
        assert (read.summary, read.answer) == ("so <answer>5</answer>", "5")


def test_ordinary_tags_change_nothing(tokenizer: Any) -> None:
    ids = tokenizer.encode(TEXT, add_special_tokens=False)
    plain = tokenizer.decode(ids, skip_special_tokens=True)
    assert TagKeeper(tokenizer, ("I", "guess")).decode(ids) == plain


def test_the_reward_manager_shows_them_to_the_reward_function(tokenizer: Any) -> None:
    seen = []

    async def compute_score(solution_str: str, **kwargs: Any) -> dict[str, float]:
        seen.append(solution_str)
        return {"score": 1.0}

    async def score() -> Any:
        config = OmegaConf.create({"agon": {"reasoning_tags": list(TAGS)}})
        manager = TagKeepingRewardManager(config=config, tokenizer=tokenizer, compute_score=compute_score)
        ids = torch.tensor([tokenizer.encode(TEXT, add_special_tokens=False)])
        row = DataProto.from_dict(
            tensors={"responses": ids, "attention_mask": torch.ones_like(ids)},
            non_tensors={"data_source": ["t"], "reward_model": [{"ground_truth": "5"}], "extra_info": [{}]},
        )
        return await manager.run_single(row)

    assert asyncio.run(score())["reward_score"] == 1.0
    assert seen[0].startswith("<|channel>") and "<turn|>" not in seen[0]
