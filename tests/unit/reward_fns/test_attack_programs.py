"""The attacks as data, and how a result is reported; tests/sandbox runs them."""

import json

import pytest

from reward_fns.sandbox import seccomp
from reward_fns.sandbox.attacks import ATTACKS, HONEST
from reward_fns.sandbox.attacks.programs import PROBLEMS, SYSTEM_CALLS
from reward_fns.sandbox.attacks.suite import Outcome, Row, report

MADE_AT_RUN_TIME = {"function", "secret", "word"}


def test_there_are_enough_and_each_has_a_name_of_its_own():
    names = [one.name for one in ATTACKS + HONEST]
    assert len(ATTACKS) >= 100 and len(HONEST) >= 60
    assert len(set(names)) == len(names)


def test_every_problem_exists_and_only_attacks_that_solve_one_may_score():
    assert {one.problem for one in ATTACKS + HONEST} <= PROBLEMS.keys() | MADE_AT_RUN_TIME
    for attack in ATTACKS:
        assert attack.solves or "correct" not in attack.verdict.split("|"), attack.name


@pytest.mark.parametrize("name", SYSTEM_CALLS)
def test_numbers_of_system_calls_agree_with_the_filter(name):
    assert seccomp._REFUSED.get(name, SYSTEM_CALLS[name]) == SYSTEM_CALLS[name]


def test_a_result_as_a_table_and_as_json():
    held = Row("sleep", "time", "timeout", (), True, 2.5, {"wall": 2.51})
    hole = Row("spin", "time", "correct", ("scored without solving the problem",), False, 0.5, {"wall": 0.5})
    odd = Row("wait", "time", "wrong", (), False, 0.1, {})
    outcome = Outcome("local", "root", "control group", [held, hole, odd], [], {"C++": "no C++ here"}, 3.0)
    text = report(outcome)
    assert "time                          3         2      1" in text
    assert "  wall               2.51 s   sleep" in text
    assert "  time: spin (correct): scored without solving the problem" in text
    assert "  time: wait: wrong" in text
    assert "    1  no C++ here" in text
    assert text.endswith("3 s; 1 holes")
    assert json.loads(outcome.as_json())["attacks"][1]["holes"] == ["scored without solving the problem"]
