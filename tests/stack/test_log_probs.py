"""The fast path against verl's plain one: same values, same gradients within what the dtype can tell."""

import pytest
import torch
from verl.utils.torch_functional import entropy_from_logits, logprobs_from_logits_v2

from agon_verl.actor import log_probs
from agon_verl.actor.log_probs import token_entropy, token_log_probs


def both(shape: tuple[int, ...], dtype: torch.dtype) -> list[tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(0)
    logits = (4 * torch.randn(*shape)).to(dtype)
    labels = torch.randint(shape[-1], shape[:-1])
    weight = torch.randn(*shape[:-1])
    found = []
    for function in (token_log_probs, logprobs_from_logits_v2):
        leaf = logits.clone().requires_grad_()
        values = function(leaf, labels)
        (values.float() * weight).sum().backward()
        assert leaf.grad is not None
        found.append((values.detach().float(), leaf.grad.float()))
    return found


@pytest.mark.parametrize("chunk", [1, 64, 1 << 26])
@pytest.mark.parametrize("shape", [(37, 50), (3, 11, 50), (1, 7)])
def test_values_and_gradients_are_verls(shape: tuple[int, ...], chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_probs, "_CHUNK", chunk)
    (ours, our_gradient), (theirs, their_gradient) = both(shape, torch.float32)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(our_gradient, their_gradient, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("chunk", [1, 64, 1 << 26])
@pytest.mark.parametrize("shape", [(37, 50), (3, 11, 50), (1, 7)])
def test_entropies_and_their_gradients_are_verls(
    shape: tuple[int, ...], chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_probs, "_CHUNK", chunk)
    torch.manual_seed(0)
    logits, weight = 4 * torch.randn(*shape), torch.randn(*shape[:-1])
    found = []
    for function in (token_entropy, entropy_from_logits):
        leaf = logits.clone().requires_grad_()
        values = function(leaf)
        (values * weight).sum().backward()
        found.append((values.detach(), leaf.grad))
    torch.testing.assert_close(found[0], found[1], atol=1e-5, rtol=1e-4)


def test_bfloat16_is_nearer_to_the_truth_than_verls() -> None:
    (ours, our_gradient), (theirs, their_gradient) = both((64, 300), torch.bfloat16)
    torch.manual_seed(0)
    logits = (4 * torch.randn(64, 300)).to(torch.bfloat16).double().requires_grad_()
    labels, weight = torch.randint(300, (64,)), torch.randn(64)
    truth = torch.log_softmax(logits, -1).gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    (truth * weight).sum().backward()
    assert (ours - truth).abs().max() < 1e-5 < (theirs - truth).abs().max()
    assert logits.grad is not None
    assert (our_gradient - logits.grad).abs().max() <= (their_gradient - logits.grad).abs().max()


def test_extreme_logits_stay_finite() -> None:
    logits = torch.tensor([[1e4, -1e4, 0.0], [-500.0, -500.0, -500.0]], requires_grad=True)
    values = token_log_probs(logits, torch.tensor([1, 0]))
    values.sum().backward()
    assert values.tolist() == pytest.approx([-2e4, -1.0986123], abs=1e-4)
    assert logits.grad is not None and logits.grad.isfinite().all()


def test_the_logits_are_left_as_they_were() -> None:
    logits = torch.randn(5, 9, requires_grad=True)
    before = logits.detach().clone()
    token_log_probs(logits, torch.zeros(5, dtype=torch.long), inplace_backward=True).sum().backward()
    token_entropy(logits, chunk_size=2).sum().backward()  # as verl calls it with `entropy_from_logits_with_chunking`
    assert torch.equal(logits.detach(), before)
