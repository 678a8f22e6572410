"""The files that benchmarks/lora_kernels.py writes, as vLLM reads them. The kernels themselves need a GPU."""

import argparse
from pathlib import Path

import pytest
import torch
from transformers import Qwen2Config, Qwen3Config
from vllm.lora.ops.triton_ops.utils import get_lora_op_configs, load_lora_op_config

from benchmarks.lora_kernels import Best, Layer, jobs_of, layers_of, settings, table, write

QWEN = Qwen2Config(hidden_size=1536, intermediate_size=8960, num_attention_heads=12, num_key_value_heads=2)


def found(tokens: int) -> list[Best]:
    """A setting of its own for each kernel."""
    return [
        Best(kernel, layer, tokens, 10.0, 6.0, {**setting, "block_m": tokens})
        for (kernel, layer), setting in zip(jobs_of(QWEN), settings("shrink"), strict=False)
    ]


def test_the_layers_are_those_that_vllm_computes_together() -> None:
    assert layers_of(QWEN) == [
        Layer("qkv", 1536, (1536, 256, 256)),
        Layer("o", 1536, (1536,)),
        Layer("gate_up", 1536, (8960, 8960)),
        Layer("down", 8960, (1536,)),
    ]
    # The outputs of `o` and `down` have the same sizes.
    assert [layer.name for kernel, layer in jobs_of(QWEN) if kernel == "expand"] == ["qkv", "o", "gate_up"]
    wide = Qwen3Config(hidden_size=1024, num_attention_heads=16, num_key_value_heads=8, head_dim=128)
    assert layers_of(wide)[1] == Layer("o", 2048, (1024,))


def test_vllm_finds_each_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA Some-GPU")
    monkeypatch.setenv("VLLM_TUNED_CONFIG_FOLDER", str(tmp_path))
    bests = [*found(64), *found(256)]
    write(bests, argparse.Namespace(out=tmp_path, rank=16, adapters=2))
    try:
        for clear in (load_lora_op_config, get_lora_op_configs):
            clear.cache_clear()
        for best in bests:
            shrink, layer = best.kernel == "shrink", best.layer
            width = layer.width if shrink else max(layer.slices)
            adds = None if shrink else True
            found_by_vllm = get_lora_op_configs(best.kernel, 3, best.tokens, width, 16, len(layer.slices), adds)
            assert found_by_vllm == best.setting
        nearest = get_lora_op_configs("shrink", 2, 200, 1536, 16, 3)  # one adapter, 200 tokens
        assert nearest["block_m"] == 256
    finally:
        for clear in (load_lora_op_config, get_lora_op_configs):
            clear.cache_clear()


def test_the_table_has_a_row_per_kernel() -> None:
    lines = table(found(64)).splitlines()
    assert len(lines) == 2 + 7
    assert lines[2].startswith("| shrink | qkv | 64 | 10.0 | 6.0 | block_m=64 ")
