"""Which policy vLLM serves under an adapter's name: a comparison of probabilities. Imports no torch.

vLLM samples tokens under adapter A. The trainer computes the probabilities of these tokens under every policy that
vLLM might have used: A, the other adapter, the base, and each adapter before the last sync. vLLM served the policy from
which its own probabilities differ least: their mean distance from it is the rounding of two engines, and from all the
others it is the distance of the policies. The one must be `CLEAR` times the other to count.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp

from agon_verl.game.roles import BASE

CLEAR = 2.0  # the least ratio of the others' distances to the nearest policy's that decides

LogProbs = Sequence[Sequence[float]]  # a row per sample


@dataclass(frozen=True, slots=True)
class Sample:
    """One completion by vLLM, with the log-probs that it gave its own tokens."""

    replica: int
    adapter: str
    prompt: list[int]
    response: list[int]
    log_probs: list[float]


def before(adapter: str) -> str:
    """The name of an adapter as it was before the last sync."""
    return f"{adapter} before the last sync"


def gap(ours: LogProbs, theirs: LogProbs) -> float:
    """The mean distance between two probabilities of a token."""
    rows = zip(ours, theirs, strict=True)
    gaps = [abs(exp(a) - exp(b)) for row, other in rows for a, b in zip(row, other, strict=True)]
    return sum(gaps) / len(gaps)


@dataclass(frozen=True, slots=True)
class Distances:
    """How far vLLM's probabilities under one adapter on one replica are from the trainer's, by policy."""

    replica: int
    adapter: str
    by_policy: Mapping[str, float]

    @property
    def name(self) -> str:
        return f"{self.adapter} on replica {self.replica}"

    @property
    def own(self) -> float:
        return self.by_policy[self.adapter]

    @property
    def others(self) -> dict[str, float]:
        return {policy: apart for policy, apart in self.by_policy.items() if policy != self.adapter}

    @property
    def right(self) -> bool:
        return self.own * CLEAR <= min(self.others.values())

    @property
    def served_instead(self) -> list[str]:
        """The policies of which one was served in place of the adapter. A fresh adapter is the base, so two may fit."""
        nearest = min(self.others.values())
        if nearest * CLEAR > self.own:
            return []
        return [policy for policy, apart in self.others.items() if apart <= nearest * CLEAR]

    @property
    def fault(self) -> str:
        """What is wrong, or nothing."""
        if not self.served_instead:
            return ""
        instead = ", or from ".join(self._describe(policy) for policy in self.served_instead)
        return (
            f"vLLM does not serve adapter {self.name}: the probabilities of what it samples differ by {self.own:.2g} "
            f"on average from the trainer's {self.adapter}, and by much less from {instead}"
        )

    def _describe(self, policy: str) -> str:
        apart = f"({self.by_policy[policy]:.2g})"
        if policy == BASE:
            return f"the base {apart}: the adapter is not applied"
        stale = policy in (before(name) for name in self.by_policy)
        return f"{policy} {apart}: {'it is stale' if stale else 'the slots are swapped'}"

    def __str__(self) -> str:
        nearest = min(self.others, key=self.others.__getitem__)
        return f"{self.name} {self.own:.1e} (from {nearest} {self.others[nearest]:.1e})"


def distances(samples: Sequence[Sample], trained: Mapping[str, LogProbs]) -> list[Distances]:
    """For each adapter on each replica. `trained`: the trainer's log-probs of all samples under each policy."""
    served = list(dict.fromkeys((sample.replica, sample.adapter) for sample in samples))
    measured = []
    for replica, adapter in served:
        rows = [n for n, sample in enumerate(samples) if (sample.replica, sample.adapter) == (replica, adapter)]
        ours = [samples[n].log_probs for n in rows]
        by_policy = {policy: gap(ours, [log_probs[n] for n in rows]) for policy, log_probs in trained.items()}
        measured.append(Distances(replica, adapter, by_policy))
    return measured


def noise(measured: Sequence[Distances]) -> float:
    """The gap of the engines themselves: to the nearest policy, so that swapped slots do not count as noise."""
    return max(min(of_one.by_policy.values()) for of_one in measured)


def separation(adapters: Sequence[str], trained: Mapping[str, LogProbs]) -> float:
    """How far the trainer's own probabilities are apart between an adapter and the policy nearest to it."""
    pairs = [(adapter, policy) for adapter in adapters for policy in trained if policy != adapter]
    return min(gap(trained[adapter], trained[policy]) for adapter, policy in pairs)
