import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agon_verl.game.boxes import boxes


def contents(text: str) -> list[str]:
    return [box.content for box in boxes(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"\boxed{5}", ["5"]),
        (r"\boxed {5} and \fbox{6}", ["5", "6"]),
        (r"\boxed{\frac{1}{2}}", [r"\frac{1}{2}"]),
        (r"\boxed{\boxed{5}}", [r"\boxed{5}", "5"]),
        (r"\boxed{\{1, 2\}}", [r"\{1, 2\}"]),
        (r"\boxed{\left\{ x \right.}", [r"\left\{ x \right."]),  # the escaped brace has no partner
        (r"\\\boxed{5}", ["5"]),  # a line break, then a box
        (r"\boxed{a \\{b}}", [r"a \\{b}"]),  # the brace after a line break is a real one
        ("\\boxed{\n5\n}", ["\n5\n"]),
        (r"{ \boxed{5}", ["5"]),
        (r"} \boxed{5}", ["5"]),
        (r"\boxed{5} \boxed{6", ["5"]),
        (r"\boxed{6 \boxed{5}", ["5"]),
        (r"\boxed 5", []),
        ("boxed{5}", []),
        ("", []),
    ],
)
def test_boxes_by_hand(text, expected):
    assert contents(text) == expected


@given(st.text(alphabet="{}\\boxed fn5", max_size=60))
def test_spans_are_the_boxes_themselves(text):
    for box in boxes(text):
        whole = text[box.start : box.end]
        assert whole.startswith(("\\boxed", "\\fbox")) and whole.endswith("{" + box.content + "}")


def test_a_loop_of_boxes_that_never_close_takes_linear_time():
    began = time.perf_counter()
    assert boxes(r"\boxed{" * 20_000) == []
    assert time.perf_counter() - began < 5  # quadratic: minutes
