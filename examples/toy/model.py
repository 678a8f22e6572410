"""The toy model: a Qwen3 with 0.4 million weights, pre-trained in about two minutes on two slow cores.

Each of these was needed in experiments. Without Qwen3's normalised queries and keys, and without a large enough
initializer range, such a narrow model never learns to copy a number from its prompt. Small batches give more updates.
Drills teach the sums of single columns.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch.nn import functional
from tqdm import tqdm
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from examples.toy.corpus import Row, drills, encode, solutions
from examples.toy.problems import DIGITS
from examples.toy.tokenizer import train_tokenizer
from examples.toy.traces import SlipRates


@dataclass(frozen=True)
class ToySettings:
    """Everything that determines the model and its data."""

    seed: int = 0
    digits: tuple[int, ...] = DIGITS
    held_out: int = 200
    train_problems: int = 1024
    solutions: int = 12_800
    drills: int = 4_160
    slips: SlipRates = field(default_factory=SlipRates)
    batch_size: int = 16
    lr: float = 4e-3
    hidden: int = 96
    layers: int = 3
    heads: int = 3  # 32 wide each, the smallest size that vLLM's CPU attention supports
    mlp: int = 256


def make_model(vocabulary: int, tokenizer: PreTrainedTokenizerFast, settings: ToySettings) -> Qwen3ForCausalLM:
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=vocabulary,
            hidden_size=settings.hidden,
            intermediate_size=settings.mlp,
            num_hidden_layers=settings.layers,
            num_attention_heads=settings.heads,
            num_key_value_heads=settings.heads,
            head_dim=settings.hidden // settings.heads,
            max_position_embeddings=512,
            initializer_range=0.08,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )


def pretrain(folder: Path, held_out: set[tuple[int, str, int]], settings: ToySettings) -> None:
    """Train tokenizer and model from scratch and save both in `folder`, in Hugging Face's format."""
    rng = random.Random(settings.seed)
    texts = list(solutions(rng, settings.solutions, settings.slips, held_out, settings.digits))
    tokenizer = train_tokenizer(part for t in texts[:3000] for part in (t.messages[-1]["content"], t.completion))
    rows = encode(texts + list(drills(rng, settings.drills)), tokenizer)
    torch.manual_seed(settings.seed)
    model = make_model(len(tokenizer), tokenizer, settings)
    batches = _batches(rows, settings.batch_size, rng)
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95))
    for step, batch in enumerate(bar := tqdm(batches, desc="pre-training the toy model", unit="batch", smoothing=0.05)):
        optimizer.param_groups[0]["lr"] = settings.lr * min((step + 1) / 20, 1 - step / len(batches))
        loss = _loss(model, batch, tokenizer.pad_token_id)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % 20 == 0:
            bar.set_postfix(loss=f"{loss.item():.2f}")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _batches(rows: Sequence[Row], size: int, rng: random.Random) -> list[list[Row]]:
    """Batches of rows of similar length, so that there is little padding, in random order."""
    mixed = list(rows)
    rng.shuffle(mixed)
    batches = []
    for start in range(0, len(mixed), 10 * size):
        near = sorted(mixed[start : start + 10 * size], key=lambda row: len(row.ids))
        batches += [near[i : i + size] for i in range(0, len(near), size)]
    rng.shuffle(batches)
    return batches


def _loss(model: Qwen3ForCausalLM, batch: Sequence[Row], pad: int) -> torch.Tensor:
    width = max(len(row.ids) for row in batch)
    ids = torch.tensor([row.ids + [pad] * (width - len(row.ids)) for row in batch])
    learn = torch.tensor([row.learn + [False] * (width - len(row.learn)) for row in batch])[:, 1:]
    # Padding is on the right, where a causal model does not attend to it: no attention mask is needed.
    hidden = model.model(ids, use_cache=False).last_hidden_state[:, :-1]
    return functional.cross_entropy(model.lm_head(hidden[learn]), ids[:, 1:][learn])
