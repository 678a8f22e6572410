"""What fits on a GPU, by hand arithmetic and for the models and cards that people have."""

import pytest

from agon_verl.trainer.memory import GIB, MARGIN, USABLE, DecoderShape, MemorySettings, estimate
from examples.gpu_settings import VLLM, GpuSettings, TooSmall, Work, cached_token, fit, graph_sizes, prompt_length

QWEN_CODER = DecoderShape(1536, 28, 12, 2, 128, 8960, 151_936, tied=False)
QWEN3_06 = DecoderShape(1024, 28, 16, 8, 128, 3072, 151_936, tied=True)
QWEN3_4B = DecoderShape(2560, 36, 32, 8, 128, 9728, 151_936, tied=True)
SHORT = Work(16, 8, 1536, 1024)
PAPER = Work(32, 8, 4096, 15_360)


def test_bytes_per_cached_token_by_hand() -> None:
    assert cached_token(QWEN3_06) == 28 * 2 * 2 * 8 * 128  # layers, key and value, two bytes, heads, their size


@pytest.mark.parametrize(
    ("shape", "memory", "work", "expected"),
    [
        (QWEN_CODER, 141, SHORT, (8_192, False, False)),
        (QWEN_CODER, 80, SHORT, (8_192, False, False)),
        (QWEN_CODER, 32, SHORT, (16_384, False, True)),
        (QWEN_CODER, 24, SHORT, (16_384, True, True)),
        (QWEN3_06, 192, PAPER, (19_456, False, True)),  # a micro-batch holds the longest row, and the cache comes first
        (QWEN3_4B, 141, SHORT, (8_192, False, False)),
        (QWEN3_4B, 80, SHORT, (16_384, False, True)),
        (QWEN3_4B, 40, SHORT, (16_384, True, True)),
        (QWEN3_4B, 32, SHORT, (16_384, True, True)),
    ],
)
def test_common_cards(shape: DecoderShape, memory: int, work: Work, expected: tuple) -> None:
    chosen = fit(shape, memory * GIB, work)
    assert (chosen.tokens, chosen.frees_cache, chosen.checkpointing) == expected


def test_a_small_card_gets_smaller_micro_batches() -> None:
    chosen = fit(QWEN_CODER, 16 * GIB, SHORT)
    assert chosen.frees_cache and chosen.checkpointing and SHORT.row <= chosen.tokens < 16_384


@pytest.mark.parametrize("memory", [16, 20, 24, 32, 40, 48, 80, 96, 141, 192])
@pytest.mark.parametrize("response", [256, 1024, 4096, 15_360])
@pytest.mark.parametrize("shape", [QWEN_CODER, QWEN3_06, QWEN3_4B])
def test_what_is_chosen_fits(shape: DecoderShape, memory: int, response: int) -> None:
    work = Work(16, 8, prompt_length(response), response)
    try:
        chosen = fit(shape, memory * GIB, work)
    except TooSmall:
        least = estimate(shape, MemorySettings(work.row, weight_bytes=2))
        vllm = 2 * shape.parameters + VLLM + 2 * work.row * cached_token(shape)
        assert MARGIN * max(least.update, least.sampling + vllm) > USABLE * memory * GIB
        return
    assert chosen.total <= USABLE * memory and chosen.training <= USABLE * memory
    assert chosen.tokens >= work.row and 0 < chosen.share < USABLE
    room = chosen.share * memory * GIB - 2 * shape.parameters
    assert room > chosen.cache > cached_token(shape) * work.row  # a row fits into vLLM's cache


def test_what_cannot_fit_is_refused_with_what_to_lower() -> None:
    with pytest.raises(TooSmall, match=r"the GPU has 24 GiB.* needs about \d+: lower --response, or use a smaller"):
        fit(QWEN3_4B, 24 * GIB, PAPER)


def test_room_for_a_summary() -> None:
    assert [prompt_length(response) for response in (256, 1024, 4096, 15_360)] == [1152, 1536, 3072, 4096]


@pytest.mark.parametrize("sequences, prompt, largest", [(256, 512, 768), (256, 1536, 2048), (512, 4096, 4096)])
def test_a_prompt_that_joins_decoding_has_a_graph(sequences: int, prompt: int, largest: int) -> None:
    sizes = graph_sizes(sequences, prompt)
    assert sizes[0] == 1 and sizes[-1] == largest and sequences in sizes


def test_overrides() -> None:
    settings = GpuSettings(16_384, 0.2, True, True, 30.0, 40.0, 5 * GIB)
    overrides = settings.overrides(Work(2, 4, 512, 256))
    assert "actor_rollout_ref.rollout.cudagraph_capture_sizes=[1,2,4,8,16,32,64,128,256,384,512,640,768]" in overrides
    assert "+actor_rollout_ref.rollout.engine_kwargs.vllm.kv_cache_memory_bytes=5368709120" in overrides
    assert "actor_rollout_ref.rollout.free_cache_engine=true" in overrides
    assert "actor_rollout_ref.rollout.max_model_len=768" in overrides
