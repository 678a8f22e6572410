"""`agon.alarms` as a run's config has it."""

import pytest
from omegaconf import OmegaConf

from agon_verl.config import AgonConfig
from agon_verl.errors import ConfigError
from agon_verl.health.alarms import AlarmConfig


def read(alarms: object) -> AlarmConfig:
    return AgonConfig.read(OmegaConf.create({"agon": {"alarms": alarms}})).alarms


def test_the_section_is_read() -> None:
    assert read({"patience": 3, "limits": {"damage": 0.5, "leak": None}, "stop": ["damage"]}) == AlarmConfig(
        patience=3, limits={"damage": 0.5, "leak": None}, stop=("damage",)
    )


def test_what_is_not_given_stays_at_its_default() -> None:
    assert read({"stop": []}) == AlarmConfig(stop=())
    assert AgonConfig.read(OmegaConf.create({"agon": {}})).alarms == AlarmConfig()


@pytest.mark.parametrize(
    ("alarms", "words"),
    [
        ({"patience": 0}, "agon.alarms.patience=0 must be"),
        ({"limits": {"damage": "high"}}, "agon.alarms.limits.damage=high must be a number"),
        ({"stop": ["harm"]}, "agon.alarms.stop=harm is unknown: use one of dead_groups"),
        ({"limit": {}}, "agon.alarms=limit is unknown: use one of patience, limits, stop"),
        (None, "agon.alarms=None must be a section with patience, limits, stop"),
    ],
)
def test_refusals_name_the_field_the_value_and_the_fix(alarms: object, words: str) -> None:
    with pytest.raises(ConfigError, match=f"^{words}"):
        read(alarms)
