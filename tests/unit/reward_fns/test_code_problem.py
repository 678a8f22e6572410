import json

import numpy as np
import pytest

from reward_fns.code_problem import CodeProblem, GroundTruthError

TESTS = {"inputs": ["1\n", "2\n"], "outputs": ["3\n", "4\n"]}


def read(ground_truth):
    return CodeProblem.read(ground_truth, "contests", time_limit=10.0, memory_limit=512)


@pytest.mark.parametrize("form", [dict, json.dumps, lambda tests: json.dumps(tests).encode()])
def test_a_dict_or_json(form):
    assert read(form(TESTS)) == CodeProblem(((b"1\n", b"3\n"), (b"2\n", b"4\n")), 10.0, 512, None)


def test_as_a_parquet_file_gives_it():
    """Lists come back as arrays, and fields that other rows have as None."""
    row = {name: np.array(values, dtype=object) for name, values in TESTS.items()}
    assert read({**row, "time_limit": None, "checker": None}) == read(TESTS)


def test_the_problem_names_its_limits():
    problem = read({**TESTS, "time_limit": 2, "memory_limit": 255.5, "checker": "x"})
    assert (problem.time_limit, problem.memory_limit, problem.checker) == (2.0, 256, "x")


@pytest.mark.parametrize(
    ("ground_truth", "complaint"),
    [
        ("not json", "is not JSON"),
        ("", "is not JSON"),
        ([1], "must be a dict"),
        (None, "must be a dict"),
        ({}, "inputs .* must be a list of strings"),
        ({"inputs": ["1"]}, "outputs .* must be a list of strings"),
        ({"inputs": "1", "outputs": "1"}, "must be a list of strings"),
        ({"inputs": [1], "outputs": ["1"]}, "must be a list of strings"),
        ({"inputs": [["1"]], "outputs": ["1"]}, "must be a list of strings"),
        ({"inputs": [], "outputs": []}, "has no tests"),
        ({"inputs": ["1"], "outputs": []}, "1 inputs but 0 outputs"),
        ({"inputs": ["1", "2"], "outputs": ["", " \n"]}, "every output .* is blank"),
        ({**TESTS, "function": "f"}, r"unknown keys: \['function'\]"),
        ({**TESTS, "checker": ""}, "checker='' .* must be a Python program"),
        ({**TESTS, "checker": {"a": 1}}, "must be a Python program"),
        ({**TESTS, "time_limit": 0}, "time_limit=0 "),
        ({**TESTS, "time_limit": "2s"}, "time_limit='2s' "),
        ({**TESTS, "time_limit": float("nan")}, "time_limit=nan "),
        ({**TESTS, "memory_limit": True}, "memory_limit=True "),
        ({**TESTS, "memory_limit": 268435456}, "memory_limit=268435456 .* at most 65536"),
    ],
)
def test_what_cannot_be_judged_is_refused_by_name(ground_truth, complaint):
    with pytest.raises(GroundTruthError, match=complaint) as refusal:
        read(ground_truth)
    assert "'contests'" in str(refusal.value)


def test_a_blank_output_beside_others_is_a_test():
    assert len(read({"inputs": ["1", "2"], "outputs": ["", "x"]}).cases) == 2
