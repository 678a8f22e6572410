"""What fits on one GPU: a run's settings from the model's shape, the GPU's memory and the lengths. Pure arithmetic.

Two programs share the card. The trainer keeps the base model and, while it updates, the activations of one micro-batch
(`agon_verl/trainer/memory.py` has the estimate). vLLM keeps its own copy of the base in half precision and a cache of
keys and values.
"""

import math
from dataclasses import dataclass

from agon_verl.trainer.memory import GIB, MARGIN, USABLE, DecoderShape, MemorySettings, estimate, tokens_that_fit

VLLM = 3.5 * GIB  # besides weights and cache: CUDA context and graphs, workspaces, adapters
TOKENS = 16_384  # in a micro-batch; larger ones are not faster
TOKENS_KEPT = 8_192  # where all activations are kept; streamed updates begin earlier with smaller ones
GRAPH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 384, 512, 640, 768, 1024, 1536, 2048, 3072, 4096)


class TooSmall(ValueError):
    """The message says by how much, and what to lower."""


@dataclass(frozen=True)
class Work:
    """The sizes of a step."""

    problems: int
    n: int
    prompt: int
    response: int

    @property
    def row(self) -> int:
        return self.prompt + self.response


@dataclass(frozen=True)
class GpuSettings:
    tokens: int  # of a micro-batch
    share: float  # vLLM's, of the card
    frees_cache: bool  # whether vLLM gives its memory back while the trainer updates
    checkpointing: bool  # of activations: a third more to compute in an update
    training: float  # GiB that the trainer needs at its peak
    total: float  # GiB that are needed at a time, with a margin
    # Bytes of vLLM's keys and values: it need not capture graphs once more to measure them.
    cache: int

    def overrides(self, work: Work) -> list[str]:
        sequences = min(512, max(256, work.problems * work.n))  # a validation plays more than a step
        sizes = graph_sizes(sequences, work.prompt)
        return [
            f"data.train_batch_size={work.problems}",
            f"data.max_prompt_length={work.prompt}",
            f"data.max_response_length={work.response}",
            "data.dataloader_num_workers=0",
            f"actor_rollout_ref.rollout.n={work.n}",
            f"actor_rollout_ref.rollout.max_model_len={work.row}",
            f"actor_rollout_ref.rollout.max_num_seqs={sequences}",
            f"actor_rollout_ref.rollout.cudagraph_capture_sizes={sizes}".replace(" ", ""),
            f"actor_rollout_ref.rollout.gpu_memory_utilization={self.share}",
            f"+actor_rollout_ref.rollout.engine_kwargs.vllm.kv_cache_memory_bytes={self.cache}",
            f"actor_rollout_ref.rollout.free_cache_engine={str(self.frees_cache).lower()}",
            "actor_rollout_ref.rollout.agent.num_workers=4",
            f"actor_rollout_ref.actor.ppo_max_token_len_per_gpu={self.tokens}",
            f"actor_rollout_ref.model.enable_gradient_checkpointing={str(self.checkpointing).lower()}",
            "actor_rollout_ref.actor.fsdp_config.model_dtype=bf16",
            "actor_rollout_ref.actor.use_torch_compile=false",
            "actor_rollout_ref.actor.fsdp_config.use_torch_compile=false",
            "reward.num_workers=4",
            "transfer_queue.backend.SimpleStorage.num_data_storage_units=2",
            "++ray_kwargs.ray_init.include_dashboard=false",
            "trainer.n_gpus_per_node=1",
            "trainer.nnodes=1",
        ]


def graph_sizes(sequences: int, prompt: int) -> list[int]:
    """Tokens of the batches for which vLLM captures a graph: up to one in which a prompt joins all that are decoded.

    Challenges begin one by one while others are decoded. A batch without a graph took 28 ms more on an H200.
    """
    largest = next((size for size in GRAPH_SIZES if size >= sequences + prompt), GRAPH_SIZES[-1])
    return [size for size in GRAPH_SIZES if size <= largest]


def prompt_length(response: int) -> int:
    """Room for a problem and its instructions, and for a summary of half a response, at most the paper's 4,096."""
    return 1024 + min(response // 2, 3072)


def cached_token(shape: DecoderShape) -> int:
    """Bytes per token in vLLM's cache: a key and a value per layer, in half precision."""
    return 2 * 2 * shape.layers * shape.key_heads * shape.head


def fit(shape: DecoderShape, memory: float, work: Work) -> GpuSettings:
    """The first of these that fits: both programs keep their memory, vLLM's cache has room for all pairs, and all
    activations are kept; gradient checkpointing, and a cache of at least a tenth of the card; vLLM gives its memory
    back during updates; the same with smaller micro-batches. `memory` in bytes."""
    usable = int(USABLE * memory)
    vllm = 2 * shape.parameters + VLLM
    cache = cached_token(shape) * work.problems * work.n * work.row / 2
    least_cache = cached_token(shape) * 2 * work.row  # fewer sequences at a time than two are of no use
    small = tokens_that_fit(shape, MemorySettings(0, weight_bytes=2), int(usable / MARGIN))
    for frees_cache, checkpointing, tokens in (
        (False, False, TOKENS_KEPT),
        (False, True, TOKENS),
        (True, True, TOKENS),
        (True, True, min(TOKENS, small)),
    ):
        tokens = max(tokens, work.row)
        trainer = estimate(shape, MemorySettings(tokens, weight_bytes=2, checkpointing=checkpointing))
        update, sampling = MARGIN * trainer.update, MARGIN * trainer.sampling
        room = usable - vllm - (sampling if frees_cache else update)
        wanted = least_cache if frees_cache else max(least_cache, min(cache, usable / 10) if checkpointing else cache)
        if update <= usable and room >= wanted:
            cached = int(min(room, 2 * max(cache, least_cache)))
            own = vllm + cached
            total = max(update, sampling + own) if frees_cache else update + own
            share = math.floor(1000 * own / memory) / 1000
            return GpuSettings(tokens, share, frees_cache, checkpointing, trainer.update / GIB, total / GIB, cached)
    raise TooSmall(
        f"the GPU has {memory / GIB:.0f} GiB, and this model with a row of {work.row:,} tokens needs about "
        f"{max(update, sampling + vllm + least_cache) / USABLE / GIB:.0f}: lower --response, or use a "
        "smaller model"
    )
