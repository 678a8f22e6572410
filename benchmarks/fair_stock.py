"""What FlashAttention gives stock verl, on a machine where it is not installed: for the fair side of a benchmark.

verl imports this module in each of its processes (VERL_USE_EXTERNAL_MODULES=benchmarks.fair_stock). In the training
process it replaces verl's loop over tokens by log-probs of all tokens at once, and lets rows be packed with
`attn_implementation=packed_sdpa`. Where FlashAttention is installed it changes nothing: verl uses its kernels.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import wrapt


def improve(transformer_impl: Any) -> None:
    """`transformer_impl` is verl's module of that name."""
    from agon_verl.actor.log_probs import token_entropy, token_log_probs
    from agon_verl.actor.packed_attention import flash_attention_installed

    if flash_attention_installed():
        return
    transformer_impl.logprobs_from_logits = token_log_probs
    transformer_impl.verl_F.entropy_from_logits = token_entropy
    engine = transformer_impl.FSDPEngineWithLMHead
    engine.prepare_model_inputs = _with_rows(engine.prepare_model_inputs)


def _with_rows(prepare: Callable) -> Callable:
    """Our attention reads where the rows of a micro-batch begin and end from a variable of its module."""
    from agon_verl.actor import packed_attention
    from agon_verl.actor.packed_attention import PACKED_SDPA, PackedRows

    @wraps(prepare)
    def prepare_model_inputs(self: Any, micro_batch: Any) -> Any:
        inputs, output_args = prepare(self, micro_batch)
        packs = self.model_config.hf_config._attn_implementation == PACKED_SDPA
        packed_attention.rows_in_use = PackedRows.in_batch(micro_batch, inputs, output_args) if packs else None
        return inputs, output_args

    return prepare_model_inputs


wrapt.register_post_import_hook(improve, "verl.workers.engine.fsdp.transformer_impl")
