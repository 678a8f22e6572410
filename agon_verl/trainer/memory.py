"""Roughly how much GPU memory a run's settings take: plain arithmetic on the model's shape.

Per GPU, in bytes, with P parameters in the base, T tokens in a micro-batch, V entries in the vocabulary and G GPUs
that share the weights:

    base        (bytes per weight) P / G; one GPU alone keeps it in the dtype in which it computes
    adapters    weights, moments and the active one's gradients in float32, over G
    kept        of base and adapters while vLLM samples: less what verl offloads to CPU memory between updates
    activations with gradient checkpointing each layer's input; without, all that every layer keeps
    logits      T V and as much gradient; padded rows are copied once more, because verl cuts the padding off; none
                with verl's fused kernels
    block       all that one layer keeps for its backward pass (without gradient checkpointing only its gradients), and
                what FSDP2 gathers for it
    vLLM        its share of the GPU, or its weights and the cache that is stated

An update needs base, adapters, activations and the larger of logits and block, which are not there at the same time;
and vLLM's share if vLLM keeps it (`rollout.free_cache_engine=false`). Sampling needs what is kept and vLLM's share. The
kernels' workspaces are `SPARE`. Of twelve updates measured on an H200 (`tests/unit/trainer/test_memory.py`) the
estimate is 2 to 6 % above the peak with packed rows and 9 to 23 % with padded ones.
"""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

GIB = 2**30
SPARE = GIB // 2
USABLE = 0.92  # of a GPU; the rest is for fragments and what the driver takes
MARGIN = 1.1  # on the estimate, where a setting is derived from it
MOST_TOKENS = 2**24
LOG_PROB_CHUNKS = 3 * 2**28  # what log-probs and entropy take at a time, in float32: agon_verl/actor/log_probs.py
FLOAT32 = 4
ATTENTION = {"full_attention", "sliding_attention"}  # layers with the same weights
# Fields that are set where the weights are others: experts, embeddings in every layer, heads of two sizes, compressed
# keys and values.
OTHER_WEIGHTS = (
    "num_experts",
    "num_local_experts",
    "n_routed_experts",
    "hidden_size_per_layer_input",
    "global_head_dim",
    "kv_lora_rank",
)


@dataclass(frozen=True)
class DecoderShape:
    """A dense decoder, as Hugging Face's config.json describes it."""

    hidden: int
    layers: int
    heads: int
    key_heads: int
    head: int
    intermediate: int
    vocabulary: int
    tied: bool

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "DecoderShape | None":
        """None for a model with other weights, as its fields show, and where a field is missing or no number."""
        text = config.get("text_config") or config
        if any(text.get(name) for name in OTHER_WEIGHTS) or set(text.get("layer_types") or ()) - ATTENTION:
            return None
        heads = text.get("num_attention_heads")
        sizes: dict[str, Any] = {
            "hidden": text.get("hidden_size"),
            "layers": text.get("num_hidden_layers"),
            "heads": heads,
            "key_heads": text.get("num_key_value_heads") or heads,
            "intermediate": text.get("intermediate_size"),
            "vocabulary": text.get("vocab_size"),
        }
        if not all(isinstance(size, int) for size in sizes.values()):
            return None
        sizes["head"] = text.get("head_dim") or sizes["hidden"] // sizes["heads"]
        return cls(**sizes, tied=text.get("tie_word_embeddings", config.get("tie_word_embeddings", False)))

    @property
    def linears(self) -> list[tuple[int, int]]:
        """Inputs and outputs of the linear layers of one block."""
        query, key = self.heads * self.head, self.key_heads * self.head
        up = (self.hidden, self.intermediate)
        return [(self.hidden, query), (self.hidden, key), (self.hidden, key), (query, self.hidden), up, up, up[::-1]]

    @property
    def block(self) -> int:
        return sum(inputs * outputs for inputs, outputs in self.linears) + 2 * self.hidden

    @property
    def embeddings(self) -> int:
        return (1 if self.tied else 2) * self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        return self.layers * self.block + self.embeddings

    def adapter(self, rank: int) -> int:
        """Parameters of LoRA on all linear layers."""
        return self.layers * rank * sum(inputs + outputs for inputs, outputs in self.linears)


@dataclass(frozen=True)
class MemorySettings:
    """What of a run's config decides its memory."""

    tokens: int  # in a micro-batch at most: actor.ppo_max_token_len_per_gpu
    rank: int = 16
    adapters: int = 2
    gpus: int = 1  # that share the weights: actor.fsdp_config.fsdp_size
    weight_bytes: int = FLOAT32  # actor.fsdp_config.model_dtype
    compute_bytes: int = 2  # actor.fsdp_config.mixed_precision.param_dtype
    checkpointing: bool = True  # model.enable_gradient_checkpointing
    packed: bool = True  # model.use_remove_padding
    fused: bool = False  # model.use_fused_kernels: logits of a few hundred tokens at a time
    vllm: int = 0  # bytes
    vllm_sleeps: bool = True  # during an update: rollout.free_cache_engine
    param_offload: bool = False  # base and adapters to CPU memory between updates: actor.fsdp_config
    optimizer_offload: bool = False  # and the moments
    offload_policy: bool = False  # all of these in CPU memory, always


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes per GPU."""

    base: int
    adapters: int
    kept: int
    activations: int
    logits: int
    block: int
    vllm: int
    vllm_sleeps: bool

    @property
    def update(self) -> int:
        training = self.base + self.adapters + self.activations + max(self.logits, self.block) + SPARE
        return training if self.vllm_sleeps else training + self.vllm

    @property
    def sampling(self) -> int:
        return self.kept + self.vllm

    def __str__(self) -> str:
        """Without vLLM's share, which depends on the GPU, only the update."""
        parts = {"base": self.base, "adapters": self.adapters, "activations": self.activations, "logits": self.logits}
        listed = ", ".join(f"{name} {size / GIB:.1f}" for name, size in parts.items())
        update = f"{self.update / GIB:.0f} GiB in an update ({listed})"
        sampling = f"{self.sampling / GIB:.0f} GiB while sampling (vLLM {self.vllm / GIB:.0f})"
        return f"{update}, {sampling}" if self.vllm else update


def estimate(shape: DecoderShape, settings: MemorySettings) -> MemoryEstimate:
    gpus = settings.gpus
    adapter = 0 if settings.offload_policy else FLOAT32 * shape.adapter(settings.rank)
    base = 0 if settings.offload_policy else settings.weight_bytes * shape.parameters // gpus
    weights, moments = adapter * (settings.adapters + 1) // gpus, adapter * 2 * settings.adapters // gpus
    copies = 0 if settings.fused else 2 if settings.packed else 3
    inputs, kept, gradients = activation_bytes(shape, settings.compute_bytes)
    block = gradients + (kept if settings.checkpointing else 0)
    layers = shape.layers * (inputs if settings.checkpointing else kept) + FLOAT32 * shape.hidden
    gathered = settings.compute_bytes * (shape.embeddings + 2 * shape.block)
    return MemoryEstimate(
        base=base,
        adapters=weights + moments,
        kept=(0 if settings.param_offload else base + weights) + (0 if settings.optimizer_offload else moments),
        activations=settings.tokens * layers,
        logits=settings.tokens * shape.vocabulary * settings.compute_bytes * copies + LOG_PROB_CHUNKS,
        block=settings.tokens * block + gathered,
        vllm=settings.vllm,
        vllm_sleeps=settings.vllm_sleeps,
    )


def activation_bytes(shape: DecoderShape, compute_bytes: int) -> tuple[int, int, int]:
    """Per token: the input of a block; what it keeps (norms in float32, inputs of its linear layers, attention, gated
    MLP); and the gradients on their way back."""
    query, key = shape.heads * shape.head, shape.key_heads * shape.head
    norms = FLOAT32 * 2 * 2 * shape.hidden
    kept = 4 * shape.hidden + 3 * (query + 2 * key) + query + 4 * shape.intermediate
    gradients = 2 * shape.intermediate + 2 * shape.hidden
    return compute_bytes * shape.hidden, norms + compute_bytes * kept, compute_bytes * gradients


def tokens_that_fit(shape: DecoderShape, settings: MemorySettings, memory: int) -> int:
    """The largest `tokens` with which an update fits into `memory` bytes; 0 if none does."""

    def needed(tokens: int) -> int:
        return estimate(shape, replace(settings, tokens=tokens)).update

    return max(0, bisect_right(range(MOST_TOKENS), memory, key=needed) - 1)
