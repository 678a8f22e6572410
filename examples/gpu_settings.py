"""What fits on one GPU: a run's settings from the model's shape, the GPU's memory and the lengths. Pure arithmetic.

Two programs share the card. The trainer keeps the base model and, while it updates, the activations of one micro-batch;
per token of it the logits cost most. vLLM keeps its own copy of the base in half precision and a cache of keys and
values. The estimate for Qwen2.5-Coder-1.5B and micro-batches of 16,384 tokens is 41 GB of training memory; 40 were
measured.
"""

import math
from dataclasses import dataclass

GIB = 2**30
USABLE = 0.92  # of the card; the rest is for fragments and what the driver takes
TRAINER, VLLM = 1.5 * GIB, 3.5 * GIB  # CUDA contexts, workspaces, CUDA graphs, adapters with their moments
TOKENS = 16_384  # in a micro-batch; larger ones are not faster
GRAPH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class TooSmall(ValueError):
    """The message says by how much, and what to lower."""


@dataclass(frozen=True)
class ModelShape:
    parameters: int
    layers: int
    hidden: int
    intermediate: int
    key_values: int  # heads of keys and values times their size
    vocabulary: int

    @property
    def trained_token(self) -> int:
        """Bytes per token of a micro-batch: logits in half precision and float32 with their gradients (12 per entry of
        the vocabulary), each layer's input, and one layer's activations, which are computed again for its gradient."""
        return 12 * self.vocabulary + 2 * self.layers * self.hidden + 4 * (4 * self.intermediate + 10 * self.hidden)

    @property
    def cached_token(self) -> int:
        """Bytes per token in vLLM's cache: a key and a value per layer, in half precision."""
        return 4 * self.layers * self.key_values


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
    base_dtype: str  # of the trainer's copy of the base
    training: float  # GiB that the trainer needs at its peak
    total: float  # GiB that are needed at a time

    def overrides(self, work: Work) -> list[str]:
        sequences = min(512, max(128, work.problems * work.n))
        sizes = [size for size in GRAPH_SIZES if size <= sequences]
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
            f"actor_rollout_ref.rollout.free_cache_engine={str(self.frees_cache).lower()}",
            "actor_rollout_ref.rollout.agent.num_workers=4",
            f"actor_rollout_ref.actor.ppo_max_token_len_per_gpu={self.tokens}",
            f"actor_rollout_ref.actor.fsdp_config.model_dtype={self.base_dtype}",
            "actor_rollout_ref.actor.use_torch_compile=false",
            "actor_rollout_ref.actor.fsdp_config.use_torch_compile=false",
            "reward.num_workers=4",
            "transfer_queue.backend.SimpleStorage.num_data_storage_units=2",
            "++ray_kwargs.ray_init.include_dashboard=false",
            "trainer.n_gpus_per_node=1",
            "trainer.nnodes=1",
        ]


def prompt_length(response: int) -> int:
    """Room for a problem and its instructions, and for a summary of half a response, at most the paper's 4,096."""
    return 1024 + min(response // 2, 3072)


def fit(shape: ModelShape, memory: float, work: Work) -> GpuSettings:
    """The first of these that fits: both programs keep their memory; vLLM gives its own back during updates; the same
    with the trainer's base in half precision; the same with smaller micro-batches. `memory` in bytes."""
    usable = USABLE * memory
    vllm = 2 * shape.parameters + VLLM
    cache = shape.cached_token * work.problems * work.n * work.row / 2
    least_cache = shape.cached_token * 2 * work.row  # fewer sequences at a time than two are of no use
    small = (usable - 2 * shape.parameters - TRAINER) // shape.trained_token
    for frees_cache, base_dtype, tokens in (
        (False, "fp32", TOKENS),
        (True, "fp32", TOKENS),
        (True, "bf16", TOKENS),
        (True, "bf16", min(TOKENS, small)),
    ):
        tokens = max(int(tokens), work.row)
        base = (4 if base_dtype == "fp32" else 2) * shape.parameters + TRAINER
        update = tokens * shape.trained_token
        room = usable - base - vllm - (0 if frees_cache else update)
        wanted = least_cache if frees_cache else max(least_cache, min(cache, usable / 10))
        if base + update <= usable and room >= wanted:
            own = vllm + min(room, 2 * max(cache, least_cache))
            total = base + (max(update, own) if frees_cache else update + own)
            share = math.floor(1000 * own / memory) / 1000
            return GpuSettings(tokens, share, frees_cache, base_dtype, (base + update) / GIB, total / GIB)
    raise TooSmall(
        f"the GPU has {memory / GIB:.0f} GiB, and this model with a row of {work.row:,} tokens needs about "
        f"{(base + max(update, vllm + least_cache)) / USABLE / GIB:.0f}: lower --response, or use a smaller model"
    )
