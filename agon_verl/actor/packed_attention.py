"""Attention over packed rows with the kernels of PyTorch, for machines without the FlashAttention package.

With `use_remove_padding` verl concatenates the rows of a micro-batch into one row without padding. Each token may see
the earlier tokens of its own row only. transformers can do that with FlashAttention; with SDPA it builds a mask of
tokens × tokens, 1 GiB for a micro-batch of 32,768. `packed_sdpa` needs no mask:

- on CUDA in half precision one fused kernel for all rows, `torch.nn.attention.varlen`;
- elsewhere (a CPU, float32, heads of more than 256 or not a multiple of 8) SDPA for each row, whose memory grows with
  the longest row alone.

Both are exact: no token sees another row. The engine sets the lengths of the rows before every forward pass, in
`rows_in_use`: verl's own forward functions (fused kernels, some vision models) would drop an argument for them.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from torch.nn.functional import pad, scaled_dot_product_attention
from transformers import AttentionInterface

from agon_verl.errors import ConfigError

PACKED_SDPA = "packed_sdpa"  # "sdpa" in the name: transformers then checks that the model supports it
FUSED_HEAD = 256  # the largest head of the fused kernel
PACKABLE_LAYERS = {"full_attention", "sliding_attention"}  # of transformers' `layer_types`


@dataclass(frozen=True)
class PackedRows:
    """Where the rows of a packed micro-batch begin and end."""

    lengths: tuple[int, ...]
    offsets: torch.Tensor  # int32, one more than rows, on the model's device

    @classmethod
    def of(cls, lengths: Sequence[int], device: Any) -> "PackedRows":
        ends = torch.tensor(lengths, dtype=torch.int32).cumsum(0, dtype=torch.int32)
        return cls(tuple(lengths), pad(ends, (1, 0)).to(device))

    @classmethod
    def in_batch(
        cls, micro_batch: Any, inputs: Mapping[str, Any], output_args: Mapping[str, Any]
    ) -> "PackedRows | None":
        """From what verl's `prepare_model_inputs` takes and returns; None if it padded the rows.

        With `pad_to_length` verl fills the packed row up: the filling counts as one more row.
        """
        if "pad_size" not in output_args:
            return None
        lengths = micro_batch["input_ids"].offsets().diff().tolist()
        filling = [output_args["pad_size"]] if output_args["pad_size"] else []
        return cls.of([*lengths, *filling], inputs["input_ids"].device)


rows_in_use: PackedRows | None = None  # of the micro-batch whose forward or backward pass is running


def attention_for(override: Mapping[str, Any], packed: bool) -> str:
    """What `model.override_config` says; if nothing, FlashAttention where it is installed, else PyTorch's own."""
    if "attn_implementation" in override:
        return override["attn_implementation"]
    if flash_attention_installed():
        return "flash_attention_2"
    return PACKED_SDPA if packed else "sdpa"


def flash_attention_installed() -> bool:
    """By the name of its distribution: flash-attn-4 is imported as `flash_attn` too, but has other functions."""
    try:
        version("flash-attn")
    except PackageNotFoundError:
        return False
    return True


def require_packable(config: Any, recurrent: bool = False) -> None:
    """Raise unless all that a token of this model sees of other tokens goes through the attention function.

    `config` is transformers'; `recurrent` is known once the model is there.
    """
    layers = set(getattr(config.get_text_config(), "layer_types", None) or ()) - PACKABLE_LAYERS
    if layers or recurrent:
        raise ConfigError(
            f"actor_rollout_ref.model.use_remove_padding=true: rows of a {config.model_type} cannot be packed, because "
            f"it has {', '.join(sorted(layers)) or 'a recurrent state'}; use false"
        )


def packed_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """The signature is that of transformers' attention functions; tensors are 1 × heads × tokens × size of a head."""
    rows = rows_in_use
    if rows is None or query.shape[0] != 1 or query.shape[2] != sum(rows.lengths):
        raise ConfigError(
            f"attn_implementation={PACKED_SDPA} is for packed rows only: use it with "
            "actor_rollout_ref.model.use_remove_padding=true, or use sdpa"
        )
    if dropout or softcap is not None or s_aux is not None:
        raise ConfigError(
            f"attn_implementation={PACKED_SDPA} has no attention dropout, soft cap or sinks, which "
            f"{type(module).__name__} uses: set attn_implementation=eager with "
            "actor_rollout_ref.model.use_remove_padding=false"
        )
    if torch.is_autocast_enabled(query.device.type):
        dtype = torch.get_autocast_dtype(query.device.type)
        query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
    window = sliding_window if sliding_window is not None and sliding_window < max(rows.lengths) else None
    attend = all_rows if fused is not None and _fuses(query, value) else row_by_row
    return attend(query, key, value, rows, scaling, window), None


def all_rows(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    rows: PackedRows,
    scaling: float | None,
    window: int | None,
) -> torch.Tensor:
    """One kernel; a window of w tokens includes the token itself."""
    assert fused is not None
    tokens = [tensor.squeeze(0).transpose(0, 1) for tensor in (query, key, value)]
    longest = max(rows.lengths)
    left = -1 if window is None else window - 1
    output = fused(*tokens, rows.offsets, rows.offsets, longest, longest, scale=scaling, window_size=(left, 0))
    return output.unsqueeze(0)


def row_by_row(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    rows: PackedRows,
    scaling: float | None,
    window: int | None,
) -> torch.Tensor:
    # Key and value heads are repeated, because SDPA's kernels for float32 and for large heads have no shared ones.
    groups = query.shape[1] // key.shape[1]
    key, value = (tensor.repeat_interleave(groups, dim=1) for tensor in (key, value))
    outputs = []
    for q, k, v in zip(*(tensor.split(rows.lengths, dim=2) for tensor in (query, key, value)), strict=True):
        mask = _band(q.shape[2], window, q.device) if window is not None and window < q.shape[2] else None
        outputs.append(scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, scale=scaling))
    return torch.cat(outputs, dim=2).transpose(1, 2)


def _band(length: int, window: int, device: torch.device) -> torch.Tensor:
    position = torch.arange(length, device=device)
    back = position.unsqueeze(1) - position
    return (back >= 0) & (back < window)


def _fuses(query: torch.Tensor, value: torch.Tensor) -> bool:
    return (
        query.is_cuda
        and query.dtype in (torch.bfloat16, torch.float16)
        and query.shape[-1] == value.shape[-1] <= FUSED_HEAD
        and query.shape[-1] % 8 == 0
        and torch.cuda.get_device_capability(query.device) >= (8, 0)
    )


def _fused_kernel() -> Callable | None:
    """PyTorch's attention over rows of different lengths, if this version has one with a scale and windows."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:  # before 2.10
        return None
    parameters = inspect.signature(varlen_attn).parameters
    if not {"scale", "window_size"} <= set(parameters):  # 2.10
        return None
    # Later versions need a flag that query heads share key heads; earlier ones find it in the shapes.
    return partial(varlen_attn, enable_gqa=True) if "enable_gqa" in parameters else varlen_attn


fused: Callable | None = _fused_kernel()
AttentionInterface.register(PACKED_SDPA, packed_attention)
