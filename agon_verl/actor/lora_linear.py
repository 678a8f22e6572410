"""A linear layer with adapters that computes the base and the active adapter in one step of autograd.

PEFT computes `base(x) + B(A(x)) * scaling` as five operations on tensors of the output's size, and autograd as many on
the way back. Here the adapter's product is added to the base's inside the matrix multiplication, forward and backward.

Sums are rounded once where PEFT rounds three times, so the result is at least as close to the exact one.
"""

from typing import Any

import torch
from peft.tuners.lora.layer import Linear
from torch.nn.functional import linear


class LoraLinear(Linear):
    """PEFT's layer, with its names and settings. What is not plain LoRA on a plain layer is left to PEFT."""

    def forward(self, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        active = self.active_adapters
        if args or kwargs or self.disable_adapters or self.merged or len(active) != 1 or not self._is_plain(active[0]):
            return super().forward(x, *args, **kwargs)
        base, down, up = self.base_layer, self.lora_A[active[0]].weight, self.lora_B[active[0]].weight
        kind = x.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else base.weight.dtype
        bias = None if base.bias is None else base.bias.to(dtype)
        tensors = (x.to(dtype), base.weight.to(dtype), bias, down.to(dtype), up.to(dtype))
        return _AdaptedProduct.apply(*tensors, self.scaling[active[0]])

    def _is_plain(self, adapter: str) -> bool:
        return (
            type(self.base_layer) is torch.nn.Linear
            and adapter in self.lora_A
            and adapter not in self.lora_variant
            and not self.lora_bias[adapter]
            and isinstance(self.lora_dropout[adapter], torch.nn.Identity)
        )


class _AdaptedProduct(torch.autograd.Function):
    """x W' + bias + scaling · (x A') B', for a frozen W and bias. All tensors have one dtype."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        down: torch.Tensor,
        up: torch.Tensor,
        scaling: float,
    ) -> torch.Tensor:
        low = linear(x, down)
        output = linear(x, weight, bias)
        output.view(-1, output.shape[-1]).addmm_(low.view(-1, low.shape[-1]), up.t(), alpha=scaling)
        ctx.save_for_backward(x, weight, down, up, low)
        ctx.scaling = scaling
        return output

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight, down, up, low = ctx.saved_tensors
        gradient = gradient.reshape(-1, gradient.shape[-1])
        of_low = (gradient @ up).mul_(ctx.scaling)
        of_x = of_down = of_up = None
        if ctx.needs_input_grad[0]:
            of_x = (gradient @ weight).addmm_(of_low, down).view(x.shape)
        if ctx.needs_input_grad[3]:
            of_down = of_low.t() @ x.reshape(-1, x.shape[-1])
        if ctx.needs_input_grad[4]:
            of_up = (gradient.t() @ low.reshape(-1, low.shape[-1])).mul_(ctx.scaling)
        return of_x, None, None, of_down, of_up, None
