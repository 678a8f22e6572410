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
        ("  ```\n  x\n  ```", [("x\n", True)]),
        ("```python\nx\n```python\ny\n```", [("x\n```python\ny\n", True)]),
        ("````\n```x\n````", [("```x\n", True)]),
        ("```\nx\n```py", [("x\n```py", False)]),
        ("inline ```x``` code", []),
        ("no fence", []),
    ],
)
def test_fences_by_hand(text, expected):
    assert [(fence.body, fence.closed) for fence in fences(text)] == expected


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ("1. So:\n\n   ```python\n   for i in x:\n       y\n   ```\n", "for i in x:\n    y\n"),
        ("- ```python\n  if x:\n    y\n  ```", "if x:\n  y\n"),
        ("12) ```python\n    x\n\n    y\n    ```", "x\n\ny\n"),
        ("\t```\n\tif x:\n\t\ty\n\t```", "if x:\n\ty\n"),
        ("   ```\nif x:\n  if y:\n    z\n   ```", "if x:\n  if y:\n    z\n"),  # the fences alone are indented
        ("   ```\n   x = '''\na\n   '''\n   ```", "x = '''\na\n'''\n"),
        ("```\n   x\n   if y:\n     z\n   ```", "x\nif y:\n  z\n"),  # the first indentation was stripped
        ("```\n   x\n```", "   x\n"),
        ("So: ```\n  x\n```", "  x\n"),
        ("    ```\n  x\n  y\n    ```", "x\ny\n"),
        ("  ```\n\n   x\n  ```", "\n x\n"),
        ("  ```\n \n  ```", " \n"),
    ],
)
def test_the_indentation_of_the_fences_is_not_part_of_the_body(text, body):
    assert [fence.body for fence in fences(text)] == [body]


@pytest.mark.parametrize(
    ("opening", "tag"), [("```", ""), ("```python", "python"), ("``` C++ \r", "C++"), ("````py x", "py x")]
)
def test_the_tag_is_what_follows_the_opening_fence(opening, tag):
    assert [fence.tag for fence in fences(f"{opening}\nx\n````")] == [tag]


def test_spans_cover_the_fences():
    text = "a ```py\nx\n``` b"
    (fence,) = fences(text)
    assert text[: fence.start] == "a " and text[fence.end :] == " b"


@pytest.mark.parametrize("loop", ["`", "```", "``` ", "```x\n", "- ```\n  x\n  ```\n", " ```\n \n"])
def test_degenerate_loops_take_linear_time(loop):
    began = time.perf_counter()
    fences(loop * 30_000)
    assert time.perf_counter() - began < 5
