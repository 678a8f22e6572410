"""The self-check where vLLM applies the right adapters, but at another strength. Policies are tables of logits.

`tests/real/test_self_check.py` has one such fault with the real engines.
"""

from collections.abc import Mapping, Sequence

import pytest
import torch

from agon_verl.actor.self_check import SAMPLES, TOKENS, Mark, check_serving
from agon_verl.actor.served import LogProbs, Sample
from agon_verl.game.roles import BASE

VOCABULARY = 50
ENGINES = 2e-3  # how far the logits of the two engines differ
EFFECT = 4.0  # of a mark of 1 on the logits


class Tables:
    """Both engines. The served policies have `strength` times the trained adapters' effect."""

    def __init__(self, strength: float) -> None:
        self.strength, self.generator = strength, torch.Generator().manual_seed(0)
        self.base = 2 * torch.randn(TOKENS, VOCABULARY, generator=self.generator)

    def log_probs(self, policy: str, mark: Mark, strength: float) -> torch.Tensor:
        own = torch.Generator().manual_seed(1000 * mark.seed + ord(policy[0]))
        size = 0.0 if policy == BASE else EFFECT * mark.loudness * strength
        return (self.base + size * torch.randn(TOKENS, VOCABULARY, generator=own)).log_softmax(-1)

    def served(self, mark: Mark) -> list[Sample]:
        samples = []
        for adapter in "AB":
            for _ in range(SAMPLES):
                rounding = ENGINES * torch.randn(TOKENS, VOCABULARY, generator=self.generator)
                table = (self.log_probs(adapter, mark, self.strength) + rounding).log_softmax(-1)
                tokens = torch.multinomial(table.exp(), 1, generator=self.generator)
                samples.append(Sample(0, adapter, [], tokens[:, 0].tolist(), table.gather(1, tokens)[:, 0].tolist()))
        return samples

    def trained(self, samples: Sequence[Sample], mark: Mark, policies: Sequence[str]) -> Mapping[str, LogProbs]:
        tables = {policy: self.log_probs(policy, mark, 1.0) for policy in policies}
        rows = [torch.tensor(sample.response).unsqueeze(1) for sample in samples]
        return {policy: [table.gather(1, row)[:, 0].tolist() for row in rows] for policy, table in tables.items()}


def test_adapters_at_their_own_strength_pass() -> None:
    assert not check_serving("AB", Tables(1.0)).undecided


@pytest.mark.parametrize("strength", [0.5, 2.0])
def test_adapters_at_another_strength_do_not_pass(strength: float) -> None:
    outcome = check_serving("AB", Tables(strength))
    assert outcome.undecided == ["A on replica 0", "B on replica 0"], outcome.figures
