import pytest

from agon_verl.game.roles import ADAPTERS, ROTATIONS, Roles, roles


def test_a_drafts_on_even_steps_and_b_on_odd_ones():
    assert [roles(step).drafter for step in range(5)] == ["A", "B", "A", "B", "A"]
    assert [roles(step).challenger for step in range(5)] == ["B", "A", "B", "A", "B"]


def test_fixed_roles_ignore_the_step():
    assert {roles(step, "fixed") for step in range(4)} == {Roles(drafter="A", challenger="B")}


@pytest.mark.parametrize("rotation", ROTATIONS)
def test_both_adapters_play_at_every_step(rotation):
    assert all(set(roles(step, rotation)) == set(ADAPTERS) for step in range(4))


def test_an_unknown_rotation_names_the_known_ones():
    with pytest.raises(ValueError, match=r"'random'.*alternate, fixed"):
        roles(0, "random")


@pytest.mark.parametrize("rotation", ROTATIONS)
def test_a_single_player_is_both(rotation):
    assert {roles(step, rotation, "one") for step in range(4)} == {Roles(drafter="A", challenger="A")}


def test_an_unknown_number_of_players_names_the_known_ones():
    with pytest.raises(ValueError, match=r"'three'.*pair, one"):
        roles(0, players="three")
