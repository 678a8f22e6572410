import time

import pytest

from agon_verl.game.fences import fences


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("```python\nx = 1\n```", [("x = 1\n", True)]),
        ("a\n```\nx\n```\nb\n```\ny\n```\n", [("x\n", True), ("y\n", True)]),
        ("<answer>```python\nx\n```</answer>", [("x\n", True)]),
        ("```python\nx = 1", [("x = 1", False)]),
        ("```\n```", [("", True)]),
        ("  ```\n  x\n  ```", [("  x\n", True)]),
        ("```python\nx\n```python\ny\n```", [("x\n```python\ny\n", True)]),
        ("````\n```x\n````", [("```x\n", True)]),
        ("inline ```x``` code", []),
        ("no fence", []),
    ],
)
def test_fences_by_hand(text, expected):
    assert [(fence.body, fence.closed) for fence in fences(text)] == expected


@pytest.mark.parametrize(
    ("opening", "tag"), [("```", ""), ("```python", "python"), ("``` C++ \r", "C++"), ("````py x", "py x")]
)
def test_the_tag_is_what_follows_the_opening_fence(opening, tag):
    assert [fence.tag for fence in fences(f"{opening}\nx\n````")] == [tag]


def test_spans_cover_the_fences():
    text = "a ```py\nx\n``` b"
    (fence,) = fences(text)
    assert text[: fence.start] == "a " and text[fence.end :] == " b"


@pytest.mark.parametrize("loop", ["`", "```", "``` ", "```x\n"])
def test_degenerate_loops_take_linear_time(loop):
    began = time.perf_counter()
    fences(loop * 30_000)
    assert time.perf_counter() - began < 5
