"""Our LoRA layer against PEFT's, on the same weights."""

import copy
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.lora.layer import Linear
from torch.utils.checkpoint import checkpoint

from agon_verl.actor.lora_linear import LoraLinear, _AdaptedProduct


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(24, 40)
        self.down = torch.nn.Linear(40, 24, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.nn.functional.silu(self.up(x)))


def adapted(ours: bool, **options: object) -> PeftModel:
    """Two adapters over the same random weights, whichever layers compute them."""
    torch.manual_seed(0)
    settings: dict = {"r": 4, "lora_alpha": 12, "target_modules": ["up", "down"], "init_lora_weights": False, **options}
    configs = [LoraConfig(**settings) for _ in range(2)]
    if ours:
        for config in configs:
            config._register_custom_module({torch.nn.Linear: LoraLinear})
    model = get_peft_model(Block(), configs[0], adapter_name="A")
    model.add_adapter("B", configs[1])
    model.set_adapter("B")
    return model


def output_and_gradients(model: PeftModel, dtype: torch.dtype, wrapped: bool = False) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(2, 7, 24, generator=generator).to(dtype).requires_grad_()
    weights = torch.randn(2, 7, 24, generator=generator).to(dtype)
    output = checkpoint(model, x, use_reentrant=False) if wrapped else model(x)
    (output * weights).sum().backward()
    grads = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return {"output": output.detach(), "x": x.grad, **grads}


def distances(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> dict[str, float]:
    assert ours.keys() == theirs.keys()
    return {name: float((ours[name] - theirs[name]).norm() / theirs[name].norm()) for name in ours}


@pytest.mark.parametrize("wrapped", [False, True])
def test_output_and_gradients_are_pefts(wrapped: bool) -> None:
    ours, theirs = adapted(True), adapted(False)
    assert type(ours.base_model.model.up) is LoraLinear and type(theirs.base_model.model.up) is Linear
    ours.double(), theirs.double()
    found = output_and_gradients(ours, torch.float64, wrapped)
    assert sum(".B." in name for name in found) == 4 and not any(".A." in name for name in found)
    assert max(distances(found, output_and_gradients(theirs, torch.float64)).values()) < 1e-12


def test_gradients_are_derivatives() -> None:
    torch.manual_seed(0)
    shapes = [(3, 5), (6, 5), (6,), (2, 5), (6, 2)]
    x, weight, bias, down, up = (torch.randn(shape, dtype=torch.float64) for shape in shapes)
    trained = [tensor.requires_grad_() for tensor in (x, down, up)]
    assert torch.autograd.gradcheck(lambda x, down, up: _AdaptedProduct.apply(x, weight, bias, down, up, 3.0), trained)


def test_bfloat16_is_as_close_to_the_exact_result_as_pefts() -> None:
    exact = output_and_gradients(adapted(False).double(), torch.float64)
    errors = []
    for ours in (True, False):
        model = adapted(ours).bfloat16()
        found = {name: t.double() for name, t in output_and_gradients(model, torch.bfloat16).items()}
        errors.append(max(distances(found, exact).values()))
    assert errors[0] < 1.2 * errors[1] < 0.05


def test_autocast_with_adapters_in_float32() -> None:
    """As in training on one rank: the base in bfloat16, adapters and their gradients in float32."""
    results = []
    for ours in (True, False):
        model = adapted(ours)
        for name, parameter in model.named_parameters():
            if "lora_" not in name:
                parameter.data = parameter.data.bfloat16()
        with torch.autocast("cpu", torch.bfloat16):
            results.append(output_and_gradients(model, torch.bfloat16))
    assert results[0]["output"].dtype == torch.bfloat16
    assert all(t.dtype == torch.float32 for name, t in results[0].items() if "lora_" in name)
    assert max(distances(*results).values()) < 0.03


def test_what_is_not_plain_is_left_to_peft() -> None:
    x = torch.randn(2, 7, 24)
    ours, theirs = adapted(True), adapted(False)
    with ours.disable_adapter(), theirs.disable_adapter():
        torch.testing.assert_close(ours(x), theirs(x))
    for model in (ours, theirs):
        model.base_model.set_adapter(["A", "B"])
    torch.testing.assert_close(ours(x), theirs(x))
    for options in ({"use_dora": True}, {"lora_bias": True}):
        torch.testing.assert_close(adapted(True, **options)(x), adapted(False, **options)(x))
    merged = copy.deepcopy(adapted(True))
    merged.base_model.merge_adapter()
    torch.testing.assert_close(merged(x), adapted(False)(x), rtol=1e-4, atol=1e-5)


def test_a_saved_adapter_is_pefts(tmp_path: Path) -> None:
    ours = adapted(True)
    ours.save_pretrained(tmp_path)
    torch.manual_seed(0)
    loaded = PeftModel.from_pretrained(Block(), tmp_path / "B")
    x = torch.randn(2, 7, 24)
    torch.testing.assert_close(loaded(x), ours(x))
    assert type(loaded.base_model.model.up) is Linear
