"""The `agon:` section of a run's config: what is read, and what is refused."""

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


def test_a_config_without_the_section_is_refused() -> None:
    with pytest.raises(ConfigError, match="no section agon"):
        AgonConfig.read(OmegaConf.create({}))


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"reward": "zero_sum"}, "agon.reward=zero_sum is unknown: use one of coop, adv, margin"),
        ({"rotation": "random"}, "agon.rotation=random is unknown: use one of alternate, fixed"),
        ({"players": "crowd"}, "agon.players=crowd is unknown: use one of pair, one"),
        ({"reads": "all"}, "agon.reads=all is unknown: use one of summary, nothing"),
        ({"rival": "none"}, "agon.rival=none is unknown: use one of own, shared"),
        ({"domain": "law"}, "agon.domain=law is unknown: use one of math, code"),
        ({"lambda": 1}, "agon=lambda is unknown: use one of rotation, .*format_weight"),
        ({"challenge_sampling": {"beams": 2}}, "agon.challenge_sampling=beams is unknown: use one of temperature"),
        ({"challenge_sampling": {"top_p": "high"}}, "agon.challenge_sampling.top_p=high must be a number"),
        ({"format_weight": -1}, "agon.format_weight=-1 must not be negative"),
        ({"tiebreak_weight": "x"}, "agon.tiebreak_weight=x must be a number"),
        ({"min_summary_tokens": 1.5}, "agon.min_summary_tokens=1.5 must be a whole number"),
        ({"seed": True}, "agon.seed=True must be a whole number"),
        ({"self_check": "no"}, "agon.self_check=no must be true or false"),
        ({"init_noise": 0}, "agon.init_noise=0 must be above 0"),
        ({"init": {"C": None}}, "agon.init=C is unknown: use one of A, B"),
        ({"init": {"A": 3}}, "agon.init.A=3 must be a text"),
        ({"lr": {"A": "fast"}}, "agon.lr.A=fast must be a number"),
        ({"frozen": ["C"]}, "agon.frozen=C is unknown: use one of A, B"),
        ({"frozen": "A"}, r"agon.frozen=A must be a list, as in \[A\]"),
        ({"frozen": ["A", "B"]}, "agon.frozen contains every adapter"),
        ({"reasoning_tags": ["<r>"]}, r"agon.reasoning_tags=\['<r>'\] must have 2 entries"),
        ({"reasoning_tags": ["<r>", ""]}, "agon.reasoning_tags=.* must be an opening and a closing tag"),
        ({"reward_timeout": 0}, "agon.reward_timeout=0 must be above 0 seconds"),
        ({"max_failed": 1}, r"agon.max_failed=1 must be a share in \[0, 1\)"),
        ({"opponent": {"share": 1.0}}, r"agon.opponent.share=1.0 must be a share in \[0, 1\)"),
        ({"opponent": {"source": "past"}}, "agon.opponent.source=past is unknown: use one of snapshot, base"),
        ({"opponent": {"every": 0}}, "agon.opponent.every=0 must be at least 1 step"),
        ({"opponent": {"from": "x"}}, "agon.opponent=from is unknown: use one of share, source, every"),
        ({"alarms": {"patience": 0}}, "agon.alarms.patience=0 must be at least 1 update"),
        ({"alarms": {"limits": {"damage": "high"}}}, "agon.alarms.limits.damage=high must be a number"),
        ({"alarms": {"stop": ["harm"]}}, "agon.alarms.stop=harm is unknown: use one of dead_groups"),
        ({"alarms": {"limit": {}}}, "agon.alarms=limit is unknown: use one of patience, limits, stop"),
        ({"alarms": None}, "agon.alarms=None must be a section with patience, limits, stop"),
        ({"rival": "shared"}, "agon.rival=shared is for a hidden opponent: set agon.reads=nothing"),
        ({"players": "one", "frozen": ["A"]}, "agon.frozen contains A, the only player"),
        (
            {"players": "one", "opponent": {"share": 0.5}},
            "agon.opponent.share=0.5 needs a rival: set agon.players=pair",
        ),
        (
            {"players": "one", "challenge_sampling": {"temperature": 0.5}},
            "agon.challenge_sampling.temperature cannot be",
        ),
    ],
)
def test_errors_name_the_field_the_value_and_the_fix(section: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=f"^{words}"):
        read(**section)
