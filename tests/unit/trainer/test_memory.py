from dataclasses import replace

import pytest

from agon_verl.trainer.memory import GIB, SPARE, DecoderShape, MemorySettings, estimate, tokens_that_fit

QWEN3_06B = {
    "hidden_size": 1024,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 3072,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
}
PAPER = MemorySettings(tokens=32768)


def shape() -> DecoderShape:
    known = DecoderShape.of(QWEN3_06B)
    assert known is not None
    return known


def test_parameters_are_those_of_the_model() -> None:
    """Its card says 0.6B, 0.44B of them outside the embeddings; only the norms of heads are left out here."""
    assert shape().parameters == pytest.approx(596_049_920, rel=1e-4)
    assert shape().layers * shape().block == pytest.approx(440_466_432, rel=1e-4)


def test_an_adapter_has_a_row_and_a_column_per_rank_of_each_linear_layer() -> None:
    query, key, mlp = 2 * (1024 + 2048), 2 * (1024 + 1024), 3 * (1024 + 3072)
    assert shape().adapter(16) == 28 * 16 * (query + key + mlp) == 10_092_544


def test_the_logits_of_a_micro_batch_by_hand() -> None:
    """32,768 tokens: 9.3 GiB of logits in bfloat16 and as much gradient; padded rows have one more copy."""
    one = 32768 * 151936 * 2
    chunks = estimate(shape(), replace(PAPER, tokens=0)).logits
    assert estimate(shape(), PAPER).logits == 2 * one + chunks
    assert estimate(shape(), replace(PAPER, packed=False)).logits == 3 * one + chunks
    assert estimate(shape(), replace(PAPER, fused=True)).logits == chunks
    assert one / GIB == pytest.approx(9.27, abs=0.01)


def test_weights_are_shared_out_and_vllm_sleeps_during_an_update() -> None:
    settings = replace(PAPER, vllm=60 * GIB)
    one, two = estimate(shape(), settings), estimate(shape(), replace(settings, gpus=2))
    assert one.base - two.base == 4 * shape().parameters // 2
    assert one.adapters == 2 * two.adapters
    assert one.logits > one.block
    assert one.update == one.base + one.adapters + one.activations + one.logits + SPARE
    assert one.sampling == one.base + one.adapters + 60 * GIB
    awake = estimate(shape(), replace(settings, vllm_sleeps=False))
    assert awake.update == one.update + 60 * GIB > awake.sampling


def test_checkpointing_keeps_one_block_in_place_of_all() -> None:
    with_it, without = (estimate(shape(), replace(PAPER, checkpointing=on)).activations for on in (True, False))
    assert without > 8 * with_it


# Peak in GiB of one update by benchmarks/update_memory.py, and the tokens of its largest micro-batch; commit eec8bbb.
MEASURED = [
    ("0.6b", 9718, True, 9.25),
    ("0.6b", 26581, True, 19.77),
    ("0.6b", 18960, False, 17.03),
    ("0.6b", 30464, False, 27.56),
    ("1.7b", 9718, True, 14.1),
    ("1.7b", 26581, True, 25.58),
    ("1.7b", 18960, False, 22.41),
    ("1.7b", 30464, False, 33.67),
    ("4b", 9718, True, 23.56),
    ("4b", 26581, True, 36.17),
    ("4b", 18960, False, 32.49),
    ("4b", 30464, False, 44.6),
]
SHAPES = {
    "0.6b": DecoderShape(1024, 28, 16, 8, 128, 3072, 151936, tied=True),
    "1.7b": DecoderShape(2048, 28, 16, 8, 128, 6144, 151936, tied=True),
    "4b": DecoderShape(2560, 36, 32, 8, 128, 9728, 151936, tied=True),
}


@pytest.mark.parametrize(("model", "tokens", "packed", "peak"), MEASURED)
def test_the_estimate_is_little_above_what_was_measured(model: str, tokens: int, packed: bool, peak: float) -> None:
    computed = estimate(SHAPES[model], MemorySettings(tokens, packed=packed)).update / GIB
    assert peak < computed < (1.1 if packed else 1.25) * peak


@pytest.mark.parametrize("packed", [True, False])
def test_tokens_that_fit_fit(packed: bool) -> None:
    settings = replace(PAPER, packed=packed)
    most = tokens_that_fit(shape(), settings, 40 * GIB)
    assert estimate(shape(), replace(settings, tokens=most)).update <= 40 * GIB
    assert estimate(shape(), replace(settings, tokens=most + 100)).update > 40 * GIB
    assert tokens_that_fit(shape(), settings, GIB) == 0


def test_a_multimodal_config_is_read_by_its_text_part() -> None:
    assert DecoderShape.of({"text_config": QWEN3_06B, "vision_config": {"hidden_size": 9}}) == shape()


@pytest.mark.parametrize(
    "other",
    [
        {"num_experts": 128},
        {"hidden_size": None},
        {"intermediate_size": [3072] * 28},  # Gemma 3n
        {"hidden_size_per_layer_input": 256},  # Gemma 3n and 4: embeddings in every layer
        {"global_head_dim": 512},  # Gemma 4: layers with full attention have larger heads
        {"layer_types": ["linear_attention", "full_attention"] * 14},  # Qwen3.5
        {"kv_lora_rank": 256},  # attention over compressed keys and values
    ],
)
def test_other_shapes_are_not_guessed(other: dict) -> None:
    config = {key: value for key, value in {**QWEN3_06B, **other}.items() if value is not None}
    assert DecoderShape.of(config) is None


def test_windows_of_attention_change_no_shape() -> None:
    assert DecoderShape.of({**QWEN3_06B, "layer_types": ["sliding_attention", "full_attention"] * 14}) == shape()


def test_what_is_offloaded_is_not_there_while_vllm_samples() -> None:
    """An update needs all of it; with FSDP2's own offloading only what is gathered for a block."""
    settings = replace(PAPER, vllm=20 * GIB)
    stays = estimate(shape(), settings)
    one = 4 * shape().adapter(16)
    assert stays.adapters == (2 + 4 + 1) * one  # weights, moments, gradients
    weights = estimate(shape(), replace(settings, param_offload=True))
    moments = estimate(shape(), replace(settings, optimizer_offload=True))
    both = estimate(shape(), replace(settings, param_offload=True, optimizer_offload=True))
    assert (weights.update, moments.update, both.update) == (stays.update,) * 3
    assert weights.sampling == 4 * one + 20 * GIB
    assert moments.sampling == stays.base + 3 * one + 20 * GIB
    assert both.sampling == 20 * GIB
    never = estimate(shape(), replace(settings, offload_policy=True))
    assert never.update == stays.update - stays.base - stays.adapters and never.sampling == 20 * GIB


def test_the_estimate_reads_as_one_line() -> None:
    line = str(estimate(shape(), replace(PAPER, vllm=70 * GIB)))
    assert "GiB in an update (base 2.2, adapters 0.3, activations " in line
    assert line.endswith("72 GiB while sampling (vLLM 70)")
    assert str(estimate(shape(), PAPER)) == line.removesuffix(", 72 GiB while sampling (vLLM 70)")
