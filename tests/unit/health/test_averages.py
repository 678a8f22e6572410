import pytest

from agon_verl.health.averages import Average


def test_a_plain_mean_first_then_a_fifth_of_every_new_value():
    average, seen = Average(), []
    for value in (1, 1, 1, 0, 1, 1):
        average = average.add(value)
        seen.append(average.value)
    assert seen == pytest.approx([1, 1, 1, 3 / 4, 4 / 5, 0.84])  # 0.8 + 0.2 (1 - 0.8)
    assert average.count == 6


def test_a_lasting_change_shows_by_two_thirds_after_five_values():
    average = Average(100, 0.0)
    for _ in range(5):
        average = average.add(1.0)
    assert average.value == pytest.approx(1 - 0.8**5)
