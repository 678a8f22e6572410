"""Which asserts are judged, and when they hold. No program runs here."""

import json
import marshal
import math
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reward_fns.calls.assertions import Call, NotConvertible, from_assert, from_json
from reward_fns.calls.driver import encode
from reward_fns.calls.values import decode_answer, equal, read_answers
from reward_fns.code_problem import CodeProblem, GroundTruthError


def call(test: str) -> Call:
    [result] = from_assert(f"assert {test}", "f")
    return result


def returned(value: Any) -> Any:
    """What the judge gets if a function returns `value`."""
    return decode_answer(json.loads(encode(value)))


def holds(test: str, value: Any) -> bool:
    return call(test).expectation.holds(returned(value))


@pytest.mark.parametrize(
    ("test", "right", "wrong"),
    [
        ("f() == 3", [3, 3.0], [4, "3", None, [3], 3.1, 3j]),
        ("f() == True", [True, 1], [False, "True", None]),  # as Python's ==
        ("f() is True", [True], [1, [True], None, object()]),
        ("f() is None", [None], [False, 0, object()]),
        ("f() is not None", [0, False, object()], [None]),
        ("f() == None", [None], [0, ""]),
        ("3 == f()", [3], [4]),
        ("f() == [1, 2]", [[1, 2]], [(1, 2), [2, 1], [1], [1, 2, 3], {1, 2}, iter([1, 2]), "12"]),
        ("f() == (1, 2)", [(1, 2)], [[1, 2]]),
        ("f() == {1, 2}", [{2, 1}, frozenset({1, 2}), {1.0, 2}], [[1, 2], {1}, {1, 2, 3}, {1: 1, 2: 2}]),
        ("f() == {'a': [1]}", [{"a": [1]}], [{"a": (1,)}, {"a": [1], "b": 1}, {}, [("a", [1])]]),
        ("f() == {1: 'x'}", [{1: "x"}, {True: "x"}], [{"1": "x"}, {1: "y"}]),
        ("f() == 'x'", ["x"], [b"x", ["x"], "X", "x "]),
        ("f() == b'x'", [b"x", bytearray(b"x")], ["x"]),
        ("f() == 0.1", [0.1, 0.1 + 1e-9], [0.10001, "0.1", math.nan, math.inf]),
        ("f() == 1e-9", [1e-9], [0, 2e-9]),
        ("f() == 0.0", [0, 0.0, -0.0, 1e-17], [1e-9]),
        ("f() == 1e309", [math.inf], [-math.inf, 1e308, math.nan, 10**400]),
        ("f() == 1.5", [1.5], [10**400]),
        ("f() == [0.3, 'a']", [[0.1 + 0.2, "a"]], [[0.31, "a"]]),
        ("f() == 2+1j", [2 + 1j], [2]),
        ("f() == 10000000000000000000000", [10**22, 1e22], [10**22 + 1]),
        ("f() != 3", [4, None], [3]),
        ("f() < 3", [2, 2.5, -math.inf], [3, 4, "2", None, math.nan]),
        ("3 < f()", [4], [3, 2]),
        ("f() >= 3", [3, 4], [2, math.nan]),
        ("f() in (1, 2)", [1, 2], [3, (1, 2)]),
        ("f() not in [1, 2]", [3], [1]),
        ("f()", [1, "a", [0], object(), iter([])], [0, "", [], {}, set(), None, 0.0]),
        ("not f()", [0, "", [], None], [1, object()]),
        ("abs(f() - 0.33) < 1e-6", [0.33, 0.3300001], [0.34, "0.33", None, math.nan, math.inf]),
        ("abs(0.33 - f()) <= 1e-6", [0.33], [0.34]),
        ("abs(f()) == 3", [3, -3], [4]),
        ("math.fabs(f() - 2) < 0.5", [2.4], [2.5]),
        ("math.isclose(f(), 0.33, rel_tol=1e-3)", [0.3301], [0.34, [0.33]]),
        ("math.isclose(1.0, f())", [1.0], [1.001]),
        ("round(f(), 1) == 0.3", [0.31], [0.4, "0.3"]),
        ("round(f()) == 2", [2.4], [2.6]),
        ("sorted(f()) == [1, 2]", [[2, 1], (2, 1), {1, 2}, iter([2, 1]), {2: 0, 1: 0}], [[1, 1, 2], 3, [1, "a"], None]),
        ("sorted(f()) == ['a', 'b']", ["ba", ["b", "a"]], ["bab"]),
        ("set(f()) == {1, 2}", [[2, 1, 1], {1, 2}], [[1], [[1], [2]], 3]),
        ("tuple(f()) == (1,)", [[1], iter([1])], [[2], 1]),
        ("list(f()) == [1]", [(1,), iter([1])], [[2]]),
        ("len(f()) == 2", ["ab", [1, 2], {1, 2}], ["a", iter([1, 2]), 2]),
        ("len(set(f())) == 2", [[1, 2, 2, 1.0]], [[1, 2, 3]]),
        ("f() == {(1, 2), (3,)}", [{(3,), (1, 2)}], [{(1, 2), (4,)}, {(1,), (2, 3)}]),
        ("f() == set()", [set()], [[], {}, None]),
    ],
)  # fmt: skip
def test_what_holds(test: str, right: list[Any], wrong: list[Any]) -> None:
    assert [value for value in right if not holds(test, value)] == []
    assert [value for value in wrong if holds(test, value)] == []


def test_the_output_may_be_as_long_as_the_answer() -> None:
    assert call("f() == 'éé'").size == len(encode("éé")) == 14
    assert from_json("1", '"éé"').size == 14


def test_several_in_one() -> None:
    assert len(from_assert("assert f(1) == 1 and f(2) == 2 and not f(3), 'message'", "f")) == 3


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("assert f(1) == f(2)", "both sides"),
        ("assert f(f(1)) == 1", "an argument calls"),
        ("assert f(1) == g(2)", "no literal"),
        ("assert f(x) == 1", "no literal"),
        ("assert f(1) == 1 + 1", "no literal"),
        ("assert f(*[1]) == 1", "no literal"),
        ("assert f(**{'a': 1}) == 1", r"\*\*"),
        ("assert f(1) == 1 or f(1) == 2", "another way"),
        ("assert f(1).name == 2", "another way"),
        ("assert f(1)[0] == 2", "another way"),
        ("assert g(f(1)) == 2", "passed to g"),
        ("assert sorted(f(1), key=len) == []", "passed to sorted"),
        ("assert 1 < f(1) < 3", "chain"),
        ("assert f(1) is 3", "`is`"),
        ("assert f(1) < 'a'", "by size"),
        ("assert f(1) in 'abc'", "`in`"),
        ("assert 1 in f(1)", "on the right of `in`"),
        ("assert True", "another way"),
        ("f(1) == 1", "not one assert"),
        ("assert f(1) == 1; assert f(2) == 2", "not one assert"),
        ("assert f(", "not Python"),
        ("assert f(1) == " + "[" * 150 + "]" * 150, "too deeply"),
        ("assert f(1) == " + "-" * 100_000 + "1", "not Python|no literal"),
        ("assert isclose(f(1), 2, atol=1)", "isclose"),
    ],
)
def test_what_is_refused(text: str, reason: str) -> None:
    with pytest.raises(NotConvertible, match=reason):
        from_assert(text, "f")


def test_nothing_of_an_assert_is_executed(tmp_path) -> None:
    for text in (
        "assert f(1) == open('{}', 'w')",
        "assert f(open('{}', 'w')) == 1",
        "assert f(1, k=[open('{}', 'w')])",
    ):
        with pytest.raises(NotConvertible):
            from_assert(text.format(tmp_path / "written"), "f")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("expected", "right", "wrong"),
    [
        ("[1, [2]]", [[1, [2]], (1, (2,))], [[1, 2], "[1, [2]]"]),
        ('{"1": 2}', [{1: 2}, {"1": 2}], [{2: 2}, {1.5: 2}, {10**400: 2}]),
        ("0.5", [0.5, 0.5 + 1e-9], [0.51]),
        ("true", [True], [False, "true"]),
        ('"a"', ["a"], [["a"]]),
        ("null", [None], [0]),
    ],
)
def test_json(expected: str, right: list[Any], wrong: list[Any]) -> None:
    expectation = from_json("1\n[2]\n", expected).expectation
    assert [value for value in right if not expectation.holds(returned(value))] == []
    assert [value for value in wrong if expectation.holds(returned(value))] == []


def test_a_line_of_an_input_ends_at_a_line_feed_only() -> None:
    assert marshal.loads(from_json('"a\u2028b\x85"\n2\n', "1").sent) == (["a\u2028b\x85", 2], {})


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
    | st.complex_numbers(allow_nan=False),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.integers() | st.text(), inner),
    max_leaves=20,
)  # fmt: skip


@given(VALUES)
def test_every_value_equals_itself_after_the_journey(value: Any) -> None:
    assert equal(returned(value), returned(value))


SMALL = st.recursive(
    st.sampled_from([None, True, False, 0, 1, 2, -1, 1 << 70, "", "a", "1", b"a", 1j, 2 + 0j]),
    lambda inner: st.lists(inner, max_size=2) | st.lists(inner, max_size=2).map(tuple)
    | st.dictionaries(st.sampled_from([0, 1, True, "1", (1, "a")]), inner, max_size=2)
    | st.sets(st.sampled_from([0, 1, True, "1", (1, "a"), frozenset([1])]), max_size=2),
    max_leaves=4,
)  # fmt: skip


@settings(max_examples=500)
@given(SMALL, SMALL)
def test_equality_is_pythons(one: Any, other: Any) -> None:
    assert equal(returned(one), returned(other)) == (one == other)


@given(st.sets(st.integers() | st.text() | st.floats(allow_nan=False) | st.tuples(st.text(), st.text())))
def test_sets_are_compared_as_python_does(members: set[Any]) -> None:
    for member in list(members)[:2]:
        assert equal(returned(members), returned(members | {member}))
        assert not equal(returned(members - {member}), returned(members))


@given(st.binary() | st.text().map(str.encode) | VALUES.map(lambda value: f"[{encode(value)}, 0.5]\n".encode()))
def test_any_output_is_read(output: bytes) -> None:
    assert len(read_answers(output, 3)) <= 3


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 1_000_000,
        b'{"t": [' * 200_000,
        b'[{"s": [[1]]}, 0]',
        b'[{"d": [[[], 1]]}, 0]',
        b'[{"d": [1]}, 0]',
        b'[{"i": "x"}, 0]',
        b'[{"i": 3}, 0]',
        b'[{"c": [1]}, 0]',
        b'[{"o": 1}, 0]',
        b'[{"q": []}, 0]',
        b"[{}, 0]",
        b"[1, null]",
        b"[1]",
        b"1",
        b"[" + b"9" * 5000 + b", 0]",
        b"\xff\xfe",
        b"",
    ],
)
def test_a_line_that_is_no_answer_ends_the_answers(line: bytes) -> None:
    assert read_answers(b"[1, 0.5]\n" + line + b"\n[2, 0.5]\n", 3) == [(1, 0.5)]


def test_numbers_with_equal_hashes_cost_no_quadratic_time() -> None:
    """A set of these would take minutes: 100,000 numbers whose hashes are all 0."""
    prime = (1 << 61) - 1
    node = {"s": [{"i": f"{prime * k:x}"} for k in range(1, 100_001)]}
    began = time.process_time()
    assert len(decode_answer(node).members) == 100_000
    assert time.process_time() - began < 20


def read(**truth: Any) -> CodeProblem:
    return CodeProblem.read(truth, "mine", time_limit=10.0, memory_limit=512)


def test_a_problem_with_calls() -> None:
    problem = read(fn_name="f", asserts=["assert f(1) == 2 and f(2) == 3"], setup="import math", time_limit=3)
    assert (problem.fn_name, len(problem.calls), problem.setup, problem.cases) == ("f", 2, "import math", ())
    assert len(read(fn_name="f", inputs=["1\n2"], outputs=["3"]).calls) == 1


@pytest.mark.parametrize(
    ("truth", "complaint"),
    [
        ({"fn_name": "a.b", "asserts": ["assert f(1) == 1"]}, "fn_name='a.b' .* must be the name of a function"),
        ({"fn_name": 3, "asserts": ["assert f(1) == 1"]}, "fn_name=3 "),
        ({"asserts": ["assert f(1) == 1"]}, "asserts .* add fn_name"),
        ({"setup": "import os", "inputs": ["1"], "outputs": ["1"]}, "setup .* add fn_name"),
        ({"fn_name": "f"}, "inputs .* must be a list of strings"),
        ({"fn_name": "f", "asserts": []}, "has no tests"),
        ({"fn_name": "f", "asserts": "assert f(1) == 1"}, "asserts .* must be a list of strings"),
        ({"fn_name": "f", "asserts": ["assert f(1) == 1"], "inputs": ["1"]}, "remove one kind"),
        ({"fn_name": "f", "asserts": ["assert f(1) == 1"], "checker": "x"}, "remove one"),
        ({"fn_name": "f", "asserts": ["assert f(1) == 1"], "setup": 3}, "setup .* must be Python code"),
        ({"fn_name": "f", "asserts": ["assert f(1) == g(1)"]}, r"'assert f\(1\) == g\(1\)' .* cannot be judged"),
        ({"fn_name": "f", "inputs": ["x"], "outputs": ["1"]}, "is not JSON"),
        ({"fn_name": "f", "inputs": ["1"], "outputs": ["x"]}, "is not JSON"),
        ({"fn_name": "f", "asserts": ["assert f(1) is None", "assert not f(2)"]}, "accepts None"),
    ],
)
def test_ground_truths_that_are_refused(truth: dict[str, Any], complaint: str) -> None:
    with pytest.raises(GroundTruthError, match=complaint) as refusal:
        read(**truth)
    assert "'mine'" in str(refusal.value)
