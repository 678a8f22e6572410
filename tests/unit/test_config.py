"""The `agon:` section of a run's config: what is read, and what is refused."""

import re
from typing import Any

import pytest
from omegaconf import OmegaConf

from agon_verl.config import AgonConfig, Opponent
from agon_verl.errors import ConfigError
from agon_verl.health.alarms import AlarmConfig


def read(**section: Any) -> AgonConfig:
    return AgonConfig.read(OmegaConf.create({"agon": section}))


def test_the_section_is_read() -> None:
    alarms = {"patience": 3, "limits": {"damage": 0.5, "leak": None}, "stop": ["damage"]}
    config = read(reward="coop", frozen=["B"], opponent={"share": 0.5}, alarms=alarms, lr={"A": 1e-5, "B": None})
    assert config == AgonConfig(
        reward="coop",
        frozen=("B",),
        opponent=Opponent(share=0.5),
        alarms=AlarmConfig(patience=3, limits={"damage": 0.5, "leak": None}, stop=("damage",)),
        lr={"A": 1e-5, "B": None},
    )


def test_missing_fields_have_their_defaults() -> None:
    assert read() == AgonConfig()
    assert read(alarms={"stop": []}).alarms == AlarmConfig(stop=())


def test_numbers_of_the_sampling_keep_their_type() -> None:
    """vLLM refuses 16.0 for max_tokens."""
    sampling = read(challenge_sampling={"max_tokens": 16, "top_k": 5, "temperature": 1}).challenge_sampling
    assert repr(dict(sampling)) == "{'temperature': 1.0, 'top_k': 5, 'max_tokens': 16}"


def test_a_null_in_the_sampling_leaves_the_rollouts() -> None:
    sampling = read(challenge_sampling={"temperature": 0.7, "top_p": None, "top_k": -1}).challenge_sampling
    assert sampling == {"temperature": 0.7, "top_k": -1}
    alone = {"temperature": None, "top_p": None, "top_k": None, "max_tokens": None}
    assert read(players="one", challenge_sampling=alone) == AgonConfig(players="one")


def test_a_config_without_the_section_is_refused() -> None:
    with pytest.raises(ConfigError, match="no section agon"):
        AgonConfig.read(OmegaConf.create({}))


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"reward": "zero_sum"}, "agon.reward=zero_sum: Input should be 'coop', 'adv' or 'margin'"),
        ({"rotation": "random"}, "agon.rotation=random: Input should be 'alternate' or 'fixed'"),
        ({"players": "crowd"}, "agon.players=crowd: Input should be 'pair' or 'one'"),
        ({"reads": "all"}, "agon.reads=all: Input should be 'summary' or 'nothing'"),
        ({"rival": "none"}, "agon.rival=none: Input should be 'own' or 'shared'"),
        ({"withhold": "all"}, "agon.withhold=all: Input should be 'announced' or 'value'"),
        ({"domain": "law"}, "agon.domain=law: Input should be 'math' or 'code'"),
        ({"lambda": 1}, "agon.lambda is not a setting: recipes/recipe/agon.yaml lists them"),
        (
            {"challenge_sampling": {"beams": 2}},
            "agon.challenge_sampling.beams is not a setting",
        ),
        (
            {"challenge_sampling": {"top_p": "high"}},
            "agon.challenge_sampling.top_p=high: Input should be a valid number",
        ),
        (
            {"challenge_sampling": {"temperature": 0}},
            "agon.challenge_sampling.temperature=0: Input should be greater",
        ),
        (
            {"challenge_sampling": {"temperature": -1}},
            "agon.challenge_sampling.temperature=-1: Input should be",
        ),
        (
            {"challenge_sampling": {"top_p": 7}},
            "agon.challenge_sampling.top_p=7: Input should be less than or equal to 1",
        ),
        ({"challenge_sampling": {"top_p": 0}}, "agon.challenge_sampling.top_p=0: Input should be greater than 0"),
        ({"challenge_sampling": {"top_k": 0}}, "agon.challenge_sampling.top_k=0: use 1 or more, or -1 for all tokens"),
        ({"challenge_sampling": {"max_tokens": 0}}, "agon.challenge_sampling.max_tokens=0: Input should be greater th"),
        ({"format_weight": -1}, "agon.format_weight=-1: Input should be greater than or equal to 0"),
        ({"live_groups": "acc"}, "agon.live_groups=acc: Input should be 'reward' or 'correctness'"),
        ({"tiebreak_weight": "x"}, "agon.tiebreak_weight=x: Input should be a valid number"),
        ({"min_summary_tokens": 1.5}, "agon.min_summary_tokens=1.5: Input should be a valid integer"),
        ({"seed": True}, "agon.seed=True: Input should be a valid integer"),
        ({"self_check": "no"}, "agon.self_check=no: Input should be a valid boolean"),
        ({"init_noise": 0}, "agon.init_noise=0: Input should be greater than 0"),
        ({"init": {"C": None}}, "agon.init.C=C: Input should be 'A' or 'B'"),
        ({"init": {"A": 3}}, "agon.init.A=3: Input should be a valid string"),
        ({"lr": {"A": "fast"}}, "agon.lr.A=fast: Input should be a valid number"),
        ({"frozen": ["C"]}, "agon.frozen.0=C: Input should be 'A' or 'B'"),
        ({"frozen": "A"}, "agon.frozen=A: Input should be a valid array"),
        ({"frozen": ["A", "B"]}, "agon.frozen=['A', 'B'] leaves no player to train"),
        ({"reasoning_tags": ["<r>"]}, "agon.reasoning_tags.1=['<r>']: Field required"),
        ({"reasoning_tags": ["<r>", ""]}, "agon.reasoning_tags.1=: String should have at least 1 character"),
        ({"reward_timeout": 0}, "agon.reward_timeout=0: Input should be greater than 0"),
        ({"max_failed": 1}, "agon.max_failed=1: Input should be less than 1"),
        ({"opponent": {"share": 1.0}}, "agon.opponent.share=1.0: Input should be less than 1"),
        ({"opponent": {"source": "past"}}, "agon.opponent.source=past: Input should be 'snapshot' or 'base'"),
        ({"opponent": {"every": 0}}, "agon.opponent.every=0: Input should be greater than or equal to 1"),
        ({"opponent": {"from": "x"}}, "agon.opponent.from is not a setting: recipes/recipe/agon.yaml lists them"),
        ({"alarms": {"patience": 0}}, "agon.alarms.patience=0: Input should be greater than or equal to 1"),
        ({"alarms": {"limits": {"damage": "high"}}}, "agon.alarms.limits.damage=high: Input should be a valid number"),
        ({"alarms": {"stop": ["harm"]}}, "agon.alarms.stop.0=harm: Input should be 'dead_groups', "),
        ({"alarms": {"limit": {}}}, "agon.alarms.limit is not a setting: recipes/recipe/agon.yaml lists them"),
        ({"alarms": None}, "agon.alarms=None: Input should be an object"),
        ({"rival": "shared"}, "agon.rival=shared is for a hidden opponent: set agon.reads=nothing"),
        ({"players": "one", "frozen": ["A"]}, "agon.frozen=['A'] leaves no player to train"),
        (
            {"players": "one", "opponent": {"share": 0.5}},
            "agon.opponent.share=0.5 needs a rival: set agon.players=pair",
        ),
        (
            {"players": "one", "challenge_sampling": {"temperature": 0.5}},
            "agon.challenge_sampling.temperature needs agon.players=pair: one player's update has one temperature",
        ),
    ],
)
def test_errors_name_the_field_the_value_and_the_fix(section: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}"):
        read(**section)
