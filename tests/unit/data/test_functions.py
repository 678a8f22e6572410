"""Tables of HumanEval's, MBPP's and LiveCodeBench's layout, as far as no test code has to be run for them."""

import base64
import json
import pickle
import zlib
from pathlib import Path
from typing import Any

import pytest

from agon_verl.data.asserts import literal, literal_asserts
from agon_verl.data.functions import custom_code, humaneval, livecodebench, mbpp
from agon_verl.data.problem import DataError, Problem, Unusable
from agon_verl.data.write import rows as written
from agon_verl.game.domains.code import CODE, FUNCTION_TASK, PROGRAM_TASK
from reward_fns.calls.values import DictValue, SetValue
from reward_fns.code_problem import CodeProblem


def truth(problem: Problem) -> dict[str, Any]:
    CodeProblem.read(problem.ground_truth, "test", time_limit=10, memory_limit=512)
    return json.loads(problem.ground_truth)


def human(**changes: Any) -> dict[str, Any]:
    row = {
        "task_id": "HumanEval/999",
        "prompt": 'from typing import List\n\n\ndef total(xs: List[int]) -> int:\n    """Add. total([1]) == 1"""\n',
        "test": "METADATA = {'author': 'x'}\n\ndef check(candidate):\n    assert candidate([1, 2]) == 3, 'message'\n"
        "    assert candidate([]) == 0\n    assert True, 'ends here'\n"
        "    assert candidate([5]) == 5 and candidate([6]) == 6\n",
        "entry_point": "total",
    }  # fmt: skip
    return row | changes


def test_humaneval() -> None:
    problem = humaneval(20).convert(human())
    assert truth(problem) == {
        "fn_name": "total",
        "asserts": [
            *("assert total([1, 2]) == 3", "assert total([]) == 0"),
            *("assert total([5]) == 5", "assert total([6]) == 6"),
        ],
        "setup": "from typing import List",
    }
    assert "def total(xs: List[int]) -> int:" in problem.text
    assert problem.extra == {"tests": 4, "name": "HumanEval/999"} and problem.calls


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"test": "def check(candidate):\n    assert candidate([1]) == 1"}, "fewer than 2 tests"),
        (
            {"test": "def check(candidate):\n    assert candidate([1]) == 1\n    assert candidate([2]) == 1"},
            "same output",
        ),
        ({"test": "def check(candidate)"}, "not Python"),
        ({"prompt": "def total(xs"}, "a prompt that is not Python"),
        ({"test": "def check(candidate):\n    x = candidate([1])\n    assert x == 1"}, "outside an assert"),
        ({"entry_point": ""}, "without the name"),
    ],
)
def test_what_of_humaneval_cannot_be_judged(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(Unusable, match=reason):
        humaneval(20).convert(human(**changes))


def basic(**changes: Any) -> dict[str, Any]:
    row = {
        "task_id": 7,
        "text": "Write a function to sort a tuple.",
        "code": "def helper(x): return x\ndef order(t): return tuple(sorted(t))",
        "test_list": ["assert order((2, 1)) == (1, 2)", "assert order(()) == ()", "assert order((3,)) == (3,)"],
        "test_setup_code": "",
        "challenge_test_list": ["assert order((9, 8)) == (8, 9)", "assert order(()) == ()"],
    }
    return row | changes


def test_mbpp_shows_the_first_assert_only() -> None:
    problem = mbpp(20).convert(basic())
    assert "`order`" in problem.text and "assert order((2, 1)) == (1, 2)" in problem.text
    assert "assert order((3,))" not in problem.text and problem.tests_removed["repeated"] == 1
    assert truth(problem)["asserts"] == [*basic()["test_list"], "assert order((9, 8)) == (8, 9)"]
    assert "setup" not in truth(problem)


def test_the_sanitized_mbpp() -> None:
    row = basic(prompt="Sort it.", test_imports=["import math", "import re"])
    del row["text"], row["test_setup_code"], row["challenge_test_list"], row["code"]
    problem = mbpp(20).convert(row)
    assert truth(problem)["setup"] == "import math\nimport re" and problem.text.startswith("Sort it.")


@pytest.mark.parametrize(
    ("tests", "code", "name"),
    [
        (["assert f(1) == 1", "assert f(2) == 2"], "", "f"),
        (["assert set(f(1)) == {1}", "assert set(f(2)) == {2}"], "", "f"),
        (["assert sum(1, 2) == 3", "assert sum(2, 2) == 4"], "def sum(a, b): return a + b", "sum"),
        (["assert g(1) == h(1)", "assert g(2) == h(2)"], "def x(): pass", None),
    ],
)
def test_the_function_of_mbpp(tests: list[str], code: str, name: str | None) -> None:
    row = basic(test_list=tests, challenge_test_list=[], code=code)
    if name is None:
        with pytest.raises(Unusable, match="without the name"):
            mbpp(20).convert(row)
    else:
        assert truth(mbpp(20).convert(row))["fn_name"] == name


def cases(*tests: tuple[str, str], kind: str = "functional") -> str:
    return json.dumps([{"input": sent, "output": expected, "testtype": kind} for sent, expected in tests])


def packed(text: str) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(text))).decode()


def live(**changes: Any) -> dict[str, Any]:
    row = {
        "question_title": "two",
        "question_content": "Return twice x.",
        "starter_code": "class Solution:\n    def twice(self, x: int) -> int:\n        ",
        "public_test_cases": cases(("1", "2")),
        "private_test_cases": packed(cases(*((str(n), str(2 * n)) for n in range(2, 8)))),
        "metadata": json.dumps({"func_name": "twice"}),
        "difficulty": "easy",
    }
    return row | changes


def test_livecodebench() -> None:
    problem = livecodebench(20).convert(live())
    found = truth(problem)
    assert found["fn_name"] == "twice" and found["inputs"][:2] == ["1", "2"] and found["outputs"][:2] == ["2", "4"]
    assert "from typing import *" in found["setup"] and problem.calls and "def twice" in problem.text
    plain = livecodebench(20).convert(live(private_test_cases=cases(*((str(n), str(2 * n)) for n in range(2, 8)))))
    assert plain == problem


def test_livecodebench_with_standard_input() -> None:
    tests = cases(*((f"{n}\n", f"{2 * n}\n") for n in range(9)), kind="stdin")
    problem = livecodebench(20).convert(live(public_test_cases="[]", private_test_cases=tests))
    assert truth(problem).keys() == {"inputs", "outputs"} and not problem.calls


def test_a_method_is_named_without_its_class() -> None:
    row = live(metadata=json.dumps({"func_name": "Solution.twice"}))
    assert truth(livecodebench(20).convert(row))["fn_name"] == "twice"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"metadata": "{}"}, "without the name"),
        ({"question_content": "Return the answer in any order."}, "several right outputs"),
        ({"public_test_cases": cases(("1", "2"), kind="other")}, "of the types functional, other"),
        ({"private_test_cases": cases(("1", "2x"), ("x", "2"))}, "fewer than 5"),
    ],
)
def test_what_of_livecodebench_cannot_be_judged(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(Unusable, match=reason):
        livecodebench(20).convert(live(**changes))


class Hostile:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_a_pickle_is_never_executed(tmp_path: Path) -> None:
    harm = base64.b64encode(zlib.compress(pickle.dumps(Hostile(tmp_path / "written")))).decode()
    with pytest.raises(DataError, match="not only a text"):
        livecodebench(20).convert(live(private_test_cases=harm))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["x", base64.b64encode(b"x").decode(), base64.b64encode(zlib.compress(b"x")).decode()])
def test_packed_tests_that_are_broken(text: str) -> None:
    with pytest.raises(DataError, match="cannot be unpacked"):
        livecodebench(20).convert(live(private_test_cases=text))


@pytest.mark.parametrize("wrap", [lambda value: value, lambda value: [value]])
def test_apps_and_taco(wrap: Any) -> None:
    tests = {"fn_name": "add", "inputs": [[n, [n]] for n in range(6)], "outputs": [wrap(n + 1) for n in range(6)]}
    problem = custom_code("t", "mine", "text", "tests", [], 20).convert({"text": "Add.", "tests": json.dumps(tests)})
    assert truth(problem)["inputs"][1] == "1\n[1]" and truth(problem)["outputs"][:2] == ["1", "2"] and problem.calls
    assert "`add`" in problem.text


def test_any_table_with_asserts() -> None:
    source = custom_code("t", "mine", "text", "tests", [], 20)
    problem = source.convert({"text": "Sort.", "tests": json.dumps(basic()["test_list"])})
    assert truth(problem) == {"fn_name": "order", "asserts": basic()["test_list"]} and "`order`" in problem.text
    with pytest.raises(Unusable, match="not Python"):
        source.convert({"text": "Sort.", "tests": ["assert", "assert x"]})


def test_the_prompt_asks_for_a_function() -> None:
    problems = [humaneval(20).convert(human()), livecodebench(20).convert(live())]
    for template in (CODE.prompt, CODE.tagged_prompt):
        for row in written(problems, humaneval(20), "heldout", template):
            content = row["prompt"][0]["content"]
            assert FUNCTION_TASK in content and PROGRAM_TASK not in content and PROGRAM_TASK in template


def test_asserts_on_other_things_are_ignored() -> None:
    assert literal_asserts("import os\nx = 1\nassert x == 1\nassert f(1) == 2", "f", "")[0] == ["assert f(1) == 2"]


def test_literals() -> None:
    value = [1, (2,), (), SetValue({"a": "x"}), SetValue({}), DictValue({"k": ("k", None)}), float("inf"), b"b", 1j]
    assert literal(value) == "[1, (2,), (), {'x'}, set(), {'k': None}, 1e309, b'b', 1j]"
