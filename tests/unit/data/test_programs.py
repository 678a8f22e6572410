"""Which programming problems can be judged, and by which of their tests."""

import json
from typing import Any

import pytest

from agon_verl.data.functions import custom_code
from agon_verl.data.problem import DataError, Problem, Unusable
from agon_verl.data.programs import DIFFICULTIES, codecontests, pairs
from agon_verl.game.domains.code import CODE
from agon_verl.game.transcript import final_program, read


def doubles(*numbers: int) -> dict[str, list[str]]:
    return {"input": [f"{n}\n" for n in numbers], "output": [f"{2 * n}\n" for n in numbers]}


def contest(**changes: Any) -> dict[str, Any]:
    """A row as the hub has it."""
    row = {
        "name": "1_A. Double",
        "description": "Read n and print 2n.",
        "public_tests": doubles(1, 2),
        "private_tests": doubles(3, 4, 5),
        "generated_tests": doubles(*range(6, 40)),
        "difficulty": 1,
        "time_limit": {"seconds": 1, "nanos": 500_000_000},
        "memory_limit_bytes": 64_000_000,
        "input_file": "",
        "output_file": "",
    }
    return row | changes


def convert(row: dict[str, Any], max_tests: int = 20) -> Problem:
    return codecontests("EASY,A", max_tests, 3.0).convert(row)


def test_a_problem_with_its_tests_and_limits() -> None:
    problem = convert(contest(), 8)
    truth = json.loads(problem.ground_truth)
    assert truth["inputs"] == [
        "1\n",
        "2\n",
        "3\n",
        "4\n",
        "5\n",
        "16\n",
        "27\n",
        "39\n",
    ]  # 34 generated: the 11th, 22nd, 34th
    assert truth["outputs"][-1] == "78\n"
    assert truth["time_limit"] == 4.5 and truth["memory_limit"] == 256
    assert problem.extra == {"tests": 8, "name": "1_A. Double", "level": "EASY"}
    assert problem.tests_removed == {"over the most tests a problem may have": 31}


def test_no_limits() -> None:
    truth = json.loads(convert(contest(time_limit=None, memory_limit_bytes=0)).ground_truth)
    assert truth.keys() == {"inputs", "outputs"}
    assert json.loads(convert(contest(time_limit={"seconds": 8, "nanos": 0})).ground_truth)["time_limit"] == 10


@pytest.mark.parametrize("difficulty", [1, 7, "EASY", "A"])
def test_difficulty_as_a_number_or_a_label(difficulty: Any) -> None:
    assert convert(contest(difficulty=difficulty)).extra["level"] in {"EASY", "A"}


def test_labels_are_those_of_the_data() -> None:
    assert DIFFICULTIES[1] == "EASY" and DIFFICULTIES[7] == "A" and DIFFICULTIES[28] == "V" and len(DIFFICULTIES) == 29
    with pytest.raises(DataError, match="--difficulty SIMPLE is unknown"):
        codecontests("simple", 20, 3.0)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"difficulty": 2}, "of another difficulty than EASY,A"),
        ({"description": " "}, "without a text"),
        ({"input_file": "input.txt"}, "that read or write named files"),
        ({"description": "Read n from input.txt."}, "that read or write named files"),
        ({"description": "This is an interactive problem."}, "that are interactive"),
        (
            {"description": "If there are multiple answers, print any of them."},
            "with several right outputs and no checker",
        ),
        ({"description": "Print the numbers in any order."}, "with several right outputs and no checker"),
        ({"private_tests": doubles(), "generated_tests": doubles()}, "with fewer than 5 tests"),
        (
            {"public_tests": doubles(*range(9)), "private_tests": doubles(), "generated_tests": doubles()},
            "none beyond those in the statement",
        ),
        (
            {key: {"input": [], "output": []} for key in ("public_tests", "private_tests", "generated_tests")},
            "without a test",
        ),
        ({"private_tests": {"input": ["1\n"], "output": ["3\n"]}}, "that give one input two outputs"),
        ({"private_tests": {"input": ["3\n", "4"], "output": ["6\n"]}}, "with more inputs than outputs"),
    ],
)
def test_what_cannot_be_judged(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(Unusable, match=reason):
        convert(contest(**changes))


def test_one_output_for_all() -> None:
    yes = {"input": [str(n) for n in range(9)], "output": ["YES", "YES\n", "YES "] * 3}
    with pytest.raises(Unusable, match="same output in every test"):
        convert(contest(public_tests=doubles(), private_tests=yes, generated_tests=doubles()))


@pytest.mark.parametrize(
    "description",
    [
        "If there are multiple answers, print the lexicographically smallest one.",
        "Each file has multiple test cases.",
        "Do not print any spaces.",
        "You may take the stones in any order. Print their number.",
    ],
)
def test_one_right_output(description: str) -> None:
    assert convert(contest(description=description)).text == description


def test_tests_that_say_nothing_are_dropped_and_counted() -> None:
    odd = {"input": ["3\n", "3 ", "50", "51"], "output": ["6\n", "6", " \n", "1" * 100_001]}
    problem = convert(contest(private_tests=odd, generated_tests=doubles(7, 8, 9)))
    assert json.loads(problem.ground_truth)["inputs"] == ["1\n", "2\n", "3\n", "7\n", "8\n", "9\n"]
    counted = {reason: count for reason, count in problem.tests_removed.items() if count}
    assert counted == {"repeated": 1, "with a blank output": 1, "of more than 100,000 bytes": 1}


@pytest.mark.parametrize(
    "value",
    [
        {"input": ["1", "2"], "output": ["a", "b"]},
        {"inputs": ["1", "2"], "outputs": ["a", "b"]},
        [{"input": "1", "output": "a"}, {"input": 2, "output": "b"}],
        '[{"input": {"stdin": "1"}, "output": {"stdout": "a"}}, {"input": {"stdin": "2"}, "output": {"stdout": "b"}}]',
    ],
)
def test_layouts_of_tests(value: Any) -> None:
    assert pairs(value, "tests") == [("1", "a"), ("2", "b")]


def test_two_columns_of_tests() -> None:
    source = custom_code("table", "mine", "text", "in,meta.out", [], 20)
    row = {"text": "Double.", "in": list("12345"), "meta": json.dumps({"out": ["2", "4", "6", "8", "10"]})}
    assert json.loads(source.convert(row).ground_truth)["outputs"] == ["2", "4", "6", "8", "10"]
    assert source.needed == ["text", "in", "meta"]


def test_tests_of_no_known_shape() -> None:
    with pytest.raises(DataError, match="contains no tests"):
        pairs([1, 2], "tests")
    with pytest.raises(DataError, match="not JSON"):
        pairs("1 2", "tests")


def test_the_judge_reads_the_ground_truth() -> None:
    code_problem = pytest.importorskip("reward_fns.code_problem")
    read = code_problem.CodeProblem.read(
        convert(contest()).ground_truth, "codecontests", time_limit=10, memory_limit=512
    )
    assert len(read.cases) == 20 and read.cases[0] == (b"1\n", b"2\n")
    assert (read.time_limit, read.memory_limit) == (4.5, 256)


def test_the_form_that_is_asked_for_is_the_one_that_is_read() -> None:
    form = CODE.prompt.partition("</answer>:")[2]
    completion = f"<think>Hm.</think>Doubles it.{form}"
    assert read(completion).well_formed
    assert final_program(completion) == "# the program\n"
