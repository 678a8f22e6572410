from math import log

import pytest

from agon_verl.actor.served import Distances, Sample, before, distances, gap, noise, separation
from agon_verl.game.roles import BASE


def rows(*probabilities: float) -> list[list[float]]:
    """A row of two tokens for each sample."""
    return [[log(p)] * 2 for p in probabilities]


def sample(adapter: str, probability: float, replica: int = 0) -> Sample:
    return Sample(replica, adapter, [1, 2], [3, 4], [log(probability)] * 2)


# The trainer's probabilities of four samples, two of each adapter, under every policy.
TRAINED = {
    "A": rows(0.50, 0.40, 0.20, 0.10),
    "B": rows(0.20, 0.10, 0.60, 0.30),
    BASE: rows(0.30, 0.20, 0.30, 0.20),
    before("A"): rows(0.35, 0.25, 0.30, 0.20),
    before("B"): rows(0.30, 0.20, 0.40, 0.45),
}


def served(a: str, b: str) -> list[Distances]:
    """What is measured if vLLM serves policy `a` as A and `b` as B, and both engines differ by 0.01."""
    probabilities = [TRAINED[policy][row][0] for row, policy in enumerate((a, a, b, b))]
    samples = [
        Sample(0, adapter, [1], [2, 3], [p + log(1.02)] * 2) for adapter, p in zip("AABB", probabilities, strict=True)
    ]
    return distances(samples, TRAINED)


def test_a_gap_is_the_mean_distance_of_probabilities() -> None:
    assert gap([[log(0.5), log(0.2)], [log(0.1)]], [[log(0.4), log(0.4)], [log(0.1)]]) == pytest.approx(0.1)


def test_right_adapters_are_right() -> None:
    a, b = served("A", "B")
    assert a.right and b.right and not a.fault and not b.fault
    assert a.own == pytest.approx((0.01 + 0.008) / 2)
    assert (a.name, b.name) == ("A on replica 0", "B on replica 0")
    assert str(a).startswith("A on replica 0 9.0e-03 (from A before the last sync 1.6e-01)")


@pytest.mark.parametrize(
    ("policy", "named"),
    [
        ("B", "B (0.003): the slots are swapped"),
        (BASE, "the base (0.005): the adapter is not applied"),
        (before("A"), "A before the last sync (0.006): it is stale"),
        (before("B"), "B before the last sync (0.005): it is stale"),
    ],
)
def test_what_is_served_instead_is_named(policy: str, named: str) -> None:
    a, b = served(policy, "B")
    assert not a.right and named in a.fault and a.fault.startswith("vLLM does not serve adapter A on replica 0: ")
    assert b.right


def test_policies_that_are_the_same_are_all_named() -> None:
    """A fresh adapter is the base until its first update."""
    stale = Distances(1, "A", {"A": 0.2, "B": 0.3, BASE: 0.01, before("A"): 0.01, before("B"): 0.1})
    assert stale.served_instead == [BASE, before("A")]
    assert " (0.01): the adapter is not applied, or from A before the last sync (0.01): it is stale" in stale.fault


@pytest.mark.parametrize("own", [0.06, 0.1, 0.18])
def test_what_is_not_clear_is_neither_right_nor_a_fault(own: float) -> None:
    """As in a chaotic model: every policy is about as far away as any other."""
    unclear = Distances(0, "A", {"A": own, "B": 0.17, BASE: 0.1, before("A"): 0.16, before("B"): 0.2})
    assert not unclear.right and not unclear.fault


def test_each_replica_is_measured_by_itself() -> None:
    samples = [sample("A", 0.5, replica=0), sample("A", 0.2, replica=1)]
    trained = {"A": rows(0.5, 0.5), "B": rows(0.2, 0.2)}
    first, second = distances(samples, trained)
    assert (first.replica, second.replica) == (0, 1)
    assert first.right and second.served_instead == ["B"]


def test_swapped_slots_do_not_count_as_noise() -> None:
    """The adapters of a resumed run differ: the distance to the wrong one is not the rounding of the engines."""
    assert noise(served("A", "B")) == pytest.approx(noise(served("B", "A")), abs=0.01)
    assert noise(served("B", "A")) < 0.01


def test_the_separation_is_that_of_the_nearest_policy() -> None:
    assert separation("AB", TRAINED) == pytest.approx(0.125)  # of A and A before the last sync
