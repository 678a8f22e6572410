"""Test code that has to run once, in the sandbox and without a program, to become asserts with literals."""

from pathlib import Path

import pytest

from agon_verl.data.asserts import NOT_CONVERTIBLE, literal_asserts
from agon_verl.data.problem import Unusable

pytestmark = pytest.mark.usefixtures("isolated")


@pytest.mark.parametrize(
    ("code", "asserts"),
    [
        ("for n in range(2, 4):\n    assert f(n, n + 1) == str(n)", ["assert f(2, 3) == '2'", "assert f(3, 4) == '3'"]),
        ("xs = list(range(3))\nassert f(xs) == sum(xs)", ["assert f([0, 1, 2]) == 3"]),
        ("assert tuple(f([1])) == tuple([2])", ["assert tuple(f([1])) == (2,)"]),
        ("assert abs(f(1.0) - 2.0 / 3.0) < 1e-6", ["assert abs(f(1.0) - 0.6666666666666666) < 1e-06"]),
        ("assert abs(f(1) - 4 / 2) <= 0.5", ["assert math.isclose(f(1), 2.0, rel_tol=0.0, abs_tol=0.5)"]),
        ("import math\nassert math.isclose(f(1), math.inf)",
         ["assert math.isclose(f(1), 1e309, rel_tol=1e-09, abs_tol=0.0)"]),
        ("import numpy as np\nassert f(2 * 3, k='a' * 2) is None", ["assert f(6, k='aa') is None"]),
        ("assert not f(set('a'))", ["assert not f({'a'})"]),
        ("assert set(f(1)) == set([1])\nassert f(-float('inf')) == {1: -0.5}",
         ["assert set(f(1)) == {1}", "assert f(-1e309) == {1: -0.5}"]),
        ("assert round(f(1), 2) == 1 / 2", ["assert round(f(1), 2) == 0.5"]),
        ("inputs = [[1, 2], [3, 4]]\nresults = [3, 7]\n"
         "for i, (inp, exp) in enumerate(zip(inputs, results)):\n    assertion(f(*inp), exp, 0)",
         ["assert f(1, 2) == 3", "assert f(3, 4) == 7"]),
        ("def check(candidate):\n    for n in (1, 2):\n        assert candidate(n) == n * n\ncheck(f)",
         ["assert f(1) == 1", "assert f(2) == 4"]),
        ("assert f(1) == helper(1)", ["assert f(1) == 10"]),
        ("xs = []\nfor i in range(2):\n    xs.append(i)\n    assert f(xs) == i + 1",  # one list, which changes
         ["assert f([0]) == 1", "assert f([0, 1]) == 2"]),
        ("from __future__ import annotations\nfor n in (1, 2):\n    assert f(n) == n",
         ["assert f(1) == 1", "assert f(2) == 2"]),
    ],
)  # fmt: skip
def test_unfolded(code: str, asserts: list[str]) -> None:
    found, removed = literal_asserts(code, "f", "def helper(x): return 10 * x")
    assert found == asserts and not removed[NOT_CONVERTIBLE]


def test_random_numbers_are_the_same_each_time() -> None:
    code = "import random\nfor _ in range(3):\n    x = random.randint(0, 999)\n    assert f(x) == x"
    assert literal_asserts(code, "f", "") == literal_asserts(code, "f", "")


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("assert f(1) == f(2)", 1),  # the expected side needs the program
        ("assert f([1]) == [2 * x for x in f([1])]", 1),
        ("assert f(1)[0] == 2 or f(1) is None", 1),
        ("assert f(object()) == 1", 1),
        ("assert f(lambda x: x) == 1\nassert f(range(3)) == 1", 2),
        ("assert f(1) == float('nan')", 1),
        ("assert f(1) == undefined", 1),
        ("for n in range(3):\n    assert f(n) == 1 / n", 1),
    ],
)
def test_what_cannot_be_converted_is_counted(code: str, count: int) -> None:
    asserts, removed = literal_asserts(code + "\nassert f(7 + 1) == 9", "f", "")
    assert "assert f(8) == 9" in asserts and removed[NOT_CONVERTIBLE] == count


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("x = f(1)\nassert x == 1", "outside an assert"),
        ("assert f(1 + 1) == 2\n1 / 0", "fail by themselves"),
        ("assert f(1 + 1) == 2\nimport os\nos._exit(0)", "fail by themselves"),
        ("import sys\nassert f(1 + 1) == 2\nsys.modules['solution']._notes[:] = [(99, None)]", "fail by themselves"),
        ("import sys\nassert f(1 + 1) == 2\nsys.modules['solution']._notes[:] = [3]", "fail by themselves"),
    ],
)
def test_code_that_is_refused_as_a_whole(code: str, reason: str) -> None:
    with pytest.raises(Unusable, match=reason):
        literal_asserts(code, "f", "")


def test_hostile_test_code_stays_in_the_sandbox(tmp_path: Path) -> None:
    code = f"open({str(tmp_path / 'written')!r}, 'w')\nassert f(1 + 1) == 2"
    with pytest.raises(Unusable, match="fail by themselves"):
        literal_asserts(code, "f", "")
    assert list(tmp_path.iterdir()) == []
