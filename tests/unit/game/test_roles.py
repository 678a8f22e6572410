from typing import get_args

import pytest

from agon_verl.game.roles import ADAPTERS, Roles, Rotation, roles


def test_a_drafts_on_even_steps_and_b_on_odd_ones():
    assert [roles(step).drafter for step in range(5)] == ["A", "B", "A", "B", "A"]
    assert [roles(step).challenger for step in range(5)] == ["B", "A", "B", "A", "B"]


def test_fixed_roles_ignore_the_step():
    assert {roles(step, "fixed") for step in range(4)} == {Roles(drafter="A", challenger="B")}


@pytest.mark.parametrize("rotation", get_args(Rotation))
def test_both_adapters_play_at_every_step(rotation):
    assert all(set(roles(step, rotation)) == set(ADAPTERS) for step in range(4))


@pytest.mark.parametrize("rotation", get_args(Rotation))
def test_a_single_player_is_both(rotation):
    assert {roles(step, rotation, "one") for step in range(4)} == {Roles(drafter="A", challenger="A")}
