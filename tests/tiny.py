"""A model of 100,000 random weights with a chat tokenizer, and toy problems: enough for the machinery, in a second."""

from pathlib import Path

import pandas as pd
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from agon_verl.game.prompts import CHALLENGE

TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def make_folder(folder: Path) -> Path:
    """`model/`, `train.parquet` (64 problems) and `val.parquet` (8)."""
    make_model(folder / "model")
    make_data(folder / "train.parquet", 64)
    make_data(folder / "val.parquet", 8)
    return folder


def make_model(folder: Path) -> Path:
    special = ["<|pad|>", "<|end|>", "<|user|>", "<|assistant|>"]
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    corpus = [CHALLENGE] * 20 + [f"What is {a}+{b}?" for a in range(30) for b in range(30)]
    bpe.train_from_iterator(
        corpus,
        trainers.BpeTrainer(vocab_size=512, special_tokens=special, initial_alphabet=alphabet, show_progress=False),
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe, eos_token="<|end|>", pad_token="<|pad|>", additional_special_tokens=special[2:]
    )
    tokenizer.add_tokens(["<think>", "</think>", "<answer>", "</answer>"])
    tokenizer.chat_template = TEMPLATE
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            vocab_size=len(tokenizer),
            max_position_embeddings=512,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            tie_word_embeddings=True,
        )
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_data(path: Path, rows: int) -> Path:
    problems = [(number % 10, number) for number in range(rows)]
    pd.DataFrame(
        [
            {
                "data_source": "toy/sums",
                "prompt": [{"role": "user", "content": f"What is {a}+{b}?"}],
                "ability": "math",
                "reward_model": {"style": "rule", "ground_truth": str(a + b)},
                "extra_info": {"index": b},
            }
            for a, b in problems
        ]
    ).to_parquet(path)
    return path
