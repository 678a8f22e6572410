import json
import re
from collections.abc import Iterable
from dataclasses import replace
from math import inf, nan
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from agon_verl.config import AgonConfig
from agon_verl.errors import ConfigError
from agon_verl.game.roles import ADAPTERS
from agon_verl.health.alarms import BEYOND, DEFAULT_LIMITS, Alarm, AlarmConfig, Alarms
from agon_verl.health.health import Trends, health_metrics
from agon_verl.health.pair_statistics import Pair, pair_metrics
from agon_verl.health.rules import NAMES, RULES
from tests.unit.health.test_pair_statistics import pair

# The quickstart's 20 steps, seed 0, in which accuracy rose from 35 % to 85 %: accuracies of drafts and challenges,
# conversion, damage, dead groups of both streams, entropies of A and B, length of the drafts.
QUICKSTART = (
    (0.375, 0.344, 0.300, 0.583, 0.125, 0.125, 0.036, 0.042, 48.391),
    (0.344, 0.312, 0.357, 0.773, 0.125, 0.125, 0.030, 0.030, 44.375),
    (0.141, 0.156, 0.164, 0.889, 0.500, 0.375, 0.030, 0.027, 48.469),
    (0.297, 0.344, 0.311, 0.579, 0.125, 0.000, 0.033, 0.038, 47.375),
    (0.312, 0.312, 0.250, 0.550, 0.125, 0.250, 0.033, 0.033, 44.094),
    (0.547, 0.594, 0.414, 0.257, 0.375, 0.375, 0.028, 0.032, 44.266),
    (0.391, 0.406, 0.308, 0.440, 0.250, 0.125, 0.036, 0.033, 47.312),
    (0.562, 0.594, 0.464, 0.306, 0.125, 0.250, 0.027, 0.022, 40.984),
    (0.484, 0.484, 0.303, 0.323, 0.125, 0.125, 0.042, 0.044, 45.625),
    (0.531, 0.703, 0.700, 0.294, 0.000, 0.000, 0.026, 0.028, 42.703),
    (0.391, 0.547, 0.513, 0.400, 0.250, 0.000, 0.055, 0.031, 45.156),
    (0.562, 0.594, 0.464, 0.306, 0.125, 0.000, 0.038, 0.050, 43.516),
    (0.375, 0.500, 0.425, 0.375, 0.125, 0.125, 0.041, 0.052, 49.359),
    (0.438, 0.422, 0.278, 0.393, 0.375, 0.250, 0.023, 0.031, 48.453),
    (0.406, 0.359, 0.158, 0.346, 0.250, 0.375, 0.041, 0.056, 46.547),
    (0.609, 0.781, 0.720, 0.179, 0.000, 0.000, 0.026, 0.025, 44.984),
    (0.688, 0.672, 0.550, 0.273, 0.125, 0.000, 0.028, 0.029, 44.422),
    (0.750, 0.734, 0.625, 0.229, 0.000, 0.000, 0.028, 0.027, 43.625),
    (0.859, 0.734, 0.556, 0.236, 0.375, 0.250, 0.022, 0.020, 43.625),
    (0.750, 0.750, 0.375, 0.125, 0.375, 0.250, 0.031, 0.034, 41.391),
)


def quickstart() -> list[dict[str, float]]:
    """Its metrics. Errors follow from the accuracies; of kept answers the run logged none: here most of those left."""
    steps = []
    for step, (acc, won, conversion, damage, dead_a, dead_b, entropy_a, entropy_b, length) in enumerate(QUICKSTART, 1):
        e_a, e_b = 1 - acc, 1 - won
        drafter = "B" if step % 2 else "A"
        steps.append(
            {
                "pair/damage": damage,
                "pair/failed_share": 0.0,
                "pair/no_summary": 0.0,
                "pair/no_reasoning": 0.0,
                "health/dead_groups": (dead_a + dead_b) / 2,
                "health/error_correlation": (e_a * (1 - conversion) - e_a * e_b) / (min(e_a, e_b) - e_a * e_b),
                "health/gain": won - acc,
                "health/wrong_answer_kept": 0.85 * (1 - conversion),
                "health/copy_of_wrong": 0.85 * (1 - conversion),
                "health/leak": 0.0,
                "health/distance": 0.7,
                "A/actor/entropy": entropy_a,
                "B/actor/entropy": entropy_b,
                "A/training/rollout_probs_diff_mean": 2e-7,
                "B/training/rollout_probs_diff_mean": 2e-7,
                "A/actor/grad_norm": 0.05,
                "B/actor/grad_norm": 0.05,
                f"{drafter}/draft/acc": acc,
                f"{drafter}/draft/length": length,
            }
        )
    return steps


def play(steps: Iterable[dict[str, float]], config: AlarmConfig | None = None) -> list[list[Alarm]]:
    trends, alarms = Trends(ADAPTERS), Alarms(config or AlarmConfig())
    return [alarms.update({**step, **trends.update(step)}) for step in steps]


def names(sounded: list[list[Alarm]]) -> list[str]:
    return [alarm.rule.name for alarms in sounded for alarm in alarms]


def game(*pairs: Pair, steps: int = 12) -> list[dict[str, float]]:
    return [{**pair_metrics(pairs), **health_metrics(pairs)}] * steps


def test_the_quickstart_is_silent():
    assert names(play(quickstart())) == []


def test_the_quickstart_is_silent_with_a_margin():
    limits = {
        "dead_groups": 0.4,
        "live_all_wrong": 0.1,
        "error_correlation": 0.45,
        "wrong_answer_kept": 0.65,
        "copy_of_wrong": 0.65,
        "damage": 0.8,
        "gain": -0.1,
        "leak": 0.1,
        "no_summary": 0.1,
        "no_reasoning": 0.1,
        "distance": 0.4,
        "strength_gap": 0.2,
        "entropy_collapse": 0.6,
        "entropy_explosion": 1.5,
        "length_collapse": 0.8,
        "length_explosion": 1.25,
        "gap": 0.001,
        "gap_growth": 1.5,
        "failed": 0.01,
    }
    assert limits.keys() == {rule.name for rule in RULES if rule.limit is not None}
    assert names(play(quickstart(), AlarmConfig(limits=limits))) == []


HEALTHY = [
    pair("x", 1, 1, same_answer=True),
    pair("x", 1, 0, same_answer=False),
    pair("x", 0, 1, same_answer=False),
    pair("x", 0, 0, same_answer=False),
    pair("x", 1, 1, same_answer=True),
    pair("x", 0, 1, same_answer=False),
]


def falling(metric: str, start: float, end: float) -> list[dict[str, float]]:
    return [{metric: start}] * 6 + [{metric: end}] * 14


CASES = {
    "dead_groups": game(*(pair("x", 1, 1),) * 4),
    # Of three problems two are too hard: their challenges differ in form alone.
    "live_all_wrong": game(
        *HEALTHY, *(pair(uid, 0, 0, phi=phi, same_answer=False) for uid in "yz" for phi in (0.0, 1.0))
    ),
    "leak": game(*(replace(p, leaked=True) for p in HEALTHY)),
    "no_summary": game(*(replace(p, no_summary=True) for p in HEALTHY)),
    "no_reasoning": game(*(replace(p, reasoned=False) for p in HEALTHY)),
    # Right after every wrong draft, wrong after every right one.
    "damage": game(pair("x", 1, 0), pair("x", 0, 1), pair("x", 1, 0), pair("x", 0, 1)),
    # Right twice where the drafts are three times; damage is no more than 2/3.
    "gain": game(pair("x", 1, 1), pair("x", 1, 0), pair("x", 1, 0), pair("x", 0, 1)),
    "copy_of_wrong": game(*(replace(p, copied=1.0, same_answer=None) for p in HEALTHY)),
    "wrong_answer_kept": game(*(replace(p, same_answer=True) for p in HEALTHY)),
    # Wrong wherever the draft is, each with another answer.
    "error_correlation": game(*(pair("x", c, c, same_answer=False) for c in (1, 0, 1, 0))),
    "failed": [{"pair/failed_share": 0.1}] * 12,
    "distance": [{"health/distance": 0.7}] * 6 + [{"health/distance": 0.1}] * 6,
    "strength_gap": [{"A/draft/acc": 0.3}, {"B/draft/acc": 0.7}] * 6,
    "entropy_collapse": falling("B/actor/entropy", 0.5, 0.01),
    "entropy_explosion": falling("A/actor/entropy", 0.5, 3.0),
    "length_collapse": falling("B/draft/length", 900, 20),
    "length_explosion": falling("A/draft/length", 900, 9000),
    "gap": [{"B/training/rollout_probs_diff_mean": 0.05}] * 12,
    # Stale from the start: as the trainer's adapter learns, the served one stays behind.
    "gap_growth": [{"A/training/rollout_probs_diff_mean": 0.0025 + 0.0005 * step} for step in range(30)],
    "gradient": [{"A/actor/grad_norm": 0.1}, {"A/actor/grad_norm": nan}, {"A/actor/grad_norm": 0.1}],
}


@pytest.mark.parametrize("name", CASES)
def test_each_alarm_sounds_once_on_what_causes_it_and_no_other_does(name):
    assert names(play(CASES[name])) == [name]


def test_every_alarm_has_its_case():
    assert {*CASES, "gradient_stuck"} == set(NAMES)  # which is below
    assert len(set(NAMES)) == len(RULES)
    assert {rule.side for rule in RULES} == set(BEYOND)


@pytest.mark.parametrize(
    "gaps",
    [
        pytest.param([0.0023, 0.003] * 10, id="Qwen2.5-Coder-1.5B on an H200"),
        pytest.param([0.006, 0.008] * 10, id="SmolLM2-135M on an H200"),
        pytest.param([1e-7] * 4 + [1e-5] * 16, id="rounding in float32"),
        pytest.param([0.004] * 4 + [0.008] * 16, id="twice the start"),
    ],
)
def test_the_gap_of_two_engines_is_no_alarm(gaps):
    assert names(play([{"A/training/rollout_probs_diff_mean": gap} for gap in gaps])) == []


def test_a_healthy_game_is_silent():
    assert names(play(game(*HEALTHY, steps=100))) == []


def test_a_pair_that_collapses_into_one_policy_says_so():
    """The challenger hands back what it reads."""
    same = [pair("x", c, c, copied=1.0, same_answer=True) for c in (1, 0, 1, 0)]
    collapse = play([*quickstart(), *game(*same, steps=25)])
    assert sorted(names(collapse)) == ["copy_of_wrong", "error_correlation", "wrong_answer_kept"]
    assert not any(collapse[: len(QUICKSTART)])


def test_gradients_that_are_not_finite():
    """The first sounds at once, for each adapter; when they last, a second one stops the run."""
    step = {"A/actor/grad_norm": nan, "B/actor/grad_norm": inf}
    sounded = play([{"A/actor/grad_norm": 0.1, "B/actor/grad_norm": 0.1}, *[step] * 6])
    assert [names([alarms]) for alarms in sounded] == [[], ["gradient"] * 2, [], [], [], ["gradient_stuck"] * 2, []]
    assert [alarm.metric for alarm in sounded[1]] == ["A/actor/grad_norm", "B/actor/grad_norm"]
    assert [alarm.stop for alarm in sounded[1] + sounded[5]] == [False, False, True, True]


@pytest.mark.parametrize("metric", ["pair/no_summary", "pair/no_reasoning"])
def test_drafts_without_a_part_are_reported_at_once_if_nearly_all_are(metric):
    def first(share: float, **config) -> list[int]:
        return [n for n, alarms in enumerate(play([{metric: share}] * 8, AlarmConfig(**config)), 1) if alarms]

    assert (first(0.95), first(0.6), first(0.4)) == ([1], [5], [])
    assert first(0.95, limits={metric.removeprefix("pair/"): 0.97}) == []
    (alarm,) = play([{metric: 1.0}])[0]
    assert "for 1 update in a row" in alarm.message and "--reasoning-tags" in alarm.message


def distances(*values: float | None) -> list[dict[str, float]]:
    return [{} if value is None else {"health/distance": value} for value in values]


def test_patience_counts_updates_in_a_row_and_a_recovery_arms_the_alarm_again():
    near, far = 0.1, 0.7
    steps = distances(near, near, far, near, near, near, near, far, near, near, near)
    sounded = [bool(alarms) for alarms in play(steps, AlarmConfig(patience=3))]
    assert sounded == [False] * 5 + [True] + [False] * 4 + [True]


def test_steps_without_the_metric_neither_count_nor_interrupt():
    sounded = [bool(alarms) for alarms in play(distances(0.1, None, 0.1, None, nan, 0.1), AlarmConfig(patience=3))]
    assert sounded == [False] * 5 + [True]


def test_the_limit_itself_is_not_beyond_it():
    assert names(play(distances(*[0.2] * 6))) == []
    at_the_limit = [{"pair/failed_share": 0.5, "A/draft/acc": 0.75, "B/draft/acc": 0.25}] * 6
    assert names(play(at_the_limit, AlarmConfig(limits={"failed": 0.5, "strength_gap": 0.5}))) == []


def test_shares_of_few_cases_are_averaged_first():
    """Damage over one or two right drafts jumps between 0 and 1; averages of 1 1 1 0 are 1 1 1 3/4."""
    noisy = [{"pair/damage": value} for value in (1.0, 1.0, 1.0, 0.0, 1.0, 0.5, 1.0, 1.0, 0.0) * 5]
    assert names(play(noisy)) == []
    (alarm,) = play([{"pair/damage": 1.0}] * 3 + [{"pair/damage": 0.9}], AlarmConfig(patience=4))[-1]
    assert alarm.value == pytest.approx(3.9 / 4)


def test_a_negative_gap_counts_as_much():
    (alarm,) = [a for alarms in play([{"A/draft/acc": 0.1}, {"B/draft/acc": 0.7}] * 4) for a in alarms]
    assert alarm.value == pytest.approx(-0.6)


def test_the_message_says_what_was_seen_what_it_means_and_what_to_try():
    (alarm,) = play([{"pair/failed_share": 0.25}] * 5)[-1]
    assert alarm.message == (
        "alarm failed: pair/failed_share = 0.25 (averaged), above 0.05, for 5 updates in a row. "
        "Pairs are lost to errors, and those that remain may be the easy ones. "
        "Try: Read the errors in the log: most often it is the reward function or what it calls."
    )
    (alarm,) = play([{"B/actor/grad_norm": inf}])[-1]
    assert alarm.message.startswith(
        "alarm gradient: B/actor/grad_norm = inf, not finite. The update was skipped. Try: "
    )
    (alarm,) = play(distances(0.1), AlarmConfig(patience=1))[-1]
    assert ": health/distance = 0.1, below 0.2, for 1 update in a row. " in alarm.message


def test_every_meaning_and_remedy_is_a_sentence():
    for rule in RULES:
        for text in (rule.meaning, rule.remedy):
            assert text[0].isupper() and text.endswith(".") and ". " not in text, rule.name


def test_the_documentation_has_every_alarm_with_its_limit():
    rows = (Path(__file__).parents[3] / "docs" / "health.md").read_text().replace("−", "-").splitlines()
    for rule in RULES:
        (row,) = [row for row in rows if row.startswith(f"| `{rule.name}`")]
        limit = row.split("|")[2]
        assert rule.side in limit if rule.limit is None else float(limit.strip(" ><beyond±")) == rule.limit, row
        assert ("~" in row.split("|")[1]) == rule.averaged


def test_limits_of_ones_own():
    steps = [{"pair/damage": 0.6, "pair/failed_share": 0.5}] * 6
    config = AlarmConfig(patience=2, limits={"damage": 0.5, "failed": None}, stop=("damage",))
    (alarm,) = [a for alarms in play(steps, config) for a in alarms]
    assert (alarm.rule.name, alarm.limit, alarm.updates, alarm.stop) == ("damage", 0.5, 2, True)
    assert names(play([{"A/actor/grad_norm": nan}], AlarmConfig(limits={"gradient": None}))) == []


def test_the_recipe_declares_every_alarm_with_its_default():
    """Hydra refuses an override of a key that the recipe lacks."""
    recipe = OmegaConf.load(Path(__file__).parents[3] / "recipes" / "recipe" / "agon.yaml")
    assert OmegaConf.to_container(recipe.agon.alarms.limits) == DEFAULT_LIMITS
    assert AgonConfig.read(OmegaConf.create({"agon": {"alarms": recipe.agon.alarms}})).alarms == AlarmConfig()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"patience": 0}, "patience=0: Input should be greater than or equal to 1"),
        ({"patience": 2.5}, "patience=2.5: Input should be a valid integer"),
        ({"patience": True}, "patience=True: Input should be a valid integer"),
        ({"limits": {"harm": 1}}, "limits.harm=harm: Input should be 'dead_groups', "),
        ({"limits": {"damage": "high"}}, "limits.damage=high: Input should be a valid number"),
        ({"limits": {"damage": nan}}, "limits.damage=nan: Input should be a finite number"),
        ({"limits": {"gradient": 3}}, "limits.gradient=3.0: this alarm has no limit; null turns it off"),
        ({"limits": {"gradient": 1}}, "limits.gradient=1.0: this alarm has no limit; null turns it off"),
        ({"limits": {"damage": True}}, "limits.damage=True: Input should be a valid number"),
        ({"limits": [0.3]}, "limits=[0.3]: Input should be an object"),
        ({"stop": ["harm"]}, "stop.0=harm: Input should be 'dead_groups', "),
        ({"stop": "damage"}, "stop=damage: Input should be a valid array"),
        ({"stop": ["leak"], "limits": {"leak": None}}, "stop has leak, which agon.alarms.limits turns off: remove one"),
    ],
)
def test_settings_are_refused_by_field_value_and_fix(wrong, message):
    with pytest.raises(ConfigError, match=f"^agon.alarms.{re.escape(message)}"):
        AgonConfig.read(OmegaConf.create({"agon": {"alarms": wrong}}))


def test_a_resumed_run_goes_on_exactly():
    same = [pair("x", c, c, copied=1.0, same_answer=True) for c in (1, 0, 1, 0)]
    steps = [*quickstart(), *game(*same, steps=15), *distances(*[0.1] * 7), *CASES["gradient"]]
    whole = Alarms(AlarmConfig())
    expected = [whole.update(step) for step in steps]
    assert {"distance", "error_correlation", "gradient"} <= set(names(expected))
    for cut in range(len(steps)):
        before = Alarms(AlarmConfig())
        for step in steps[:cut]:
            before.update(step)
        after = Alarms.from_state(AlarmConfig(), json.loads(json.dumps(before.state())))
        assert [after.update(step) for step in steps[cut:]] == expected[cut:]
        assert after.state() == whole.state()
