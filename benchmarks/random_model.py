"""A model folder with random weights in the shape of a released model: for memory and speed, where none is at hand.

    python benchmarks/random_model.py --shape qwen3-0.6b --tokenizer PATH --out DIR [--mean-length 4500]

`--tokenizer` is a folder or hub name with a tokenizer and a chat template. With `--mean-length` every token ends the
completion with probability 1 / MEAN, so lengths vary as a model's do; without it completions run to their limit. That
holds for the base and adapter A: with the recipe's `agon.init_noise` of 0.01 adapter B's mean is 50,000 tokens or more.
"""

import argparse
import math
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

SHAPES: dict[str, dict[str, Any]] = {  # from the models' own config.json
    "qwen3-0.6b": dict(hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16),
    "qwen3-1.7b": dict(hidden_size=2048, intermediate_size=6144, num_hidden_layers=28, num_attention_heads=16),
    "qwen3-4b": dict(hidden_size=2560, intermediate_size=9728, num_hidden_layers=36, num_attention_heads=32),
}
COMMON = dict(
    num_key_value_heads=8,
    head_dim=128,
    vocab_size=151_936,
    max_position_embeddings=40_960,
    rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0},
    tie_word_embeddings=True,
)
CARRIER = 0.1  # the first entry of each token's embedding, fifty times the others' standard deviation


def write(folder: Path, shape: dict[str, Any], tokenizer: Any, mean_length: float | None, seed: int = 0) -> None:
    config = Qwen3Config(**shape, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)
    if len(tokenizer) > config.vocab_size:
        raise SystemExit(f"the tokenizer has {len(tokenizer)} tokens, more than the shape's {config.vocab_size}")
    torch.manual_seed(seed)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = Qwen3ForCausalLM(config).to(torch.bfloat16).eval()
    if mean_length:
        set_lengths(model, len(tokenizer), tokenizer.eos_token_id, mean_length)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@torch.no_grad()
def set_lengths(model: Qwen3ForCausalLM, tokens: int, end: int, mean: float) -> None:
    """Give the end token the probability 1 / mean after any text, and rows without a token none.

    The first entry of every embedding is the same and large, and the layers add next to nothing: after the last norm
    the first entry is the same number h at each position, and no token prefers itself as the next one. The output layer
    is the embedding, so raising the first entry of one token by d raises its logit by d h, and d follows from the sum
    of the others' exponentials.
    """
    table = model.get_input_embeddings().weight
    table.mul_(0.1)
    table[:, 0] = CARRIER
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight.mul_(0.01)
        layer.mlp.down_proj.weight.mul_(0.01)
    sample = torch.randint(tokens, (8, 64), generator=torch.Generator().manual_seed(1)).to(table.device)
    hidden = model.model(sample).last_hidden_state[:, 8:].flatten(0, 1).float()
    h = float(hidden[:, 0].mean())
    logits = hidden @ table.float().T
    logits[:, tokens:] = -torch.inf
    own = logits[:, end].clone()
    logits[:, end] = -torch.inf
    rest = float((torch.logsumexp(logits, dim=1) - own).mean())
    table[end, 0] += (rest - math.log(mean - 1)) / h
    table[tokens:, 0] = -100 / h


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--mean-length", type=float, metavar="TOKENS")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(args.tokenizer)
    write(args.out, {**COMMON, **SHAPES[args.shape]}, tokenizer, args.mean_length, args.seed)
    print(f"wrote {args.out}")


if __name__ == "__main__":
    main()
