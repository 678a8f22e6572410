"""A model of random weights ends its completions at the length asked for, and never leaves its tokenizer."""

import math
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

from agon_verl.trainer.memory import DecoderShape
from benchmarks import step_model
from benchmarks.random_model import COMMON, SHAPES, write
from tests.tiny import make_model

SMALL = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=2)
SMALL |= dict(num_key_value_heads=1, head_dim=32, vocab_size=1024)


@pytest.mark.parametrize(("shape", "parameters"), [("qwen3-0.6b", 0.596), ("qwen3-1.7b", 1.72), ("qwen3-4b", 4.02)])
def test_shapes_have_the_released_models_number_of_parameters(shape: str, parameters: float) -> None:
    with torch.device("meta"):
        model = Qwen3ForCausalLM(Qwen3Config(**COMMON, **SHAPES[shape]))
    assert sum(p.numel() for p in model.parameters()) / 1e9 == pytest.approx(parameters, rel=0.005)
    assert DecoderShape.of({**COMMON, **SHAPES[shape]}) == step_model.SHAPES[shape]


@pytest.mark.parametrize("mean", [20, 2000])
def test_every_token_may_end_the_completion(tmp_path: Path, mean: int) -> None:
    tokenizer = AutoTokenizer.from_pretrained(make_model(tmp_path / "tokenizer"))
    write(tmp_path / "model", {**COMMON, **SMALL}, tokenizer, mean)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32)
    assert len(AutoTokenizer.from_pretrained(tmp_path / "model")) == len(tokenizer)
    ids = torch.randint(len(tokenizer), (4, 64), generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        shares = model(ids).logits.softmax(-1)
    ends = shares[..., tokenizer.eos_token_id]
    assert float(ends.min()) * mean > 0.9 and float(ends.max()) * mean < 1.1
    assert float(shares[..., len(tokenizer) :].max()) < math.exp(-20)


def test_without_a_length_the_weights_are_as_transformers_draws_them(tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(make_model(tmp_path / "tokenizer"))
    write(tmp_path / "model", {**COMMON, **SMALL}, tokenizer, None)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert model.dtype == torch.bfloat16
    assert model.get_input_embeddings().weight.detach().float().std().item() == pytest.approx(0.02, rel=0.1)
