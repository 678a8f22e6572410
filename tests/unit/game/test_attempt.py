"""Cutting a summary to a budget of tokens, and what is left to read of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agon_verl.game.attempt import nothing_to_read, shorten
from agon_verl.game.withhold import withhold_answer


def words(text: str) -> int:
    return len(text.split())


def letters(text: str) -> int:
    return len(text)


@pytest.mark.parametrize(
    ("text", "budget", "count", "expected"),
    [
        ("One two. Three four. Five six.", 6, words, ("One two. Three four. Five six.", False)),
        ("One two. Three four. Five six.", 5, words, ("One two. Three four.", True)),
        ("One two. Three four. Five six.", 4, words, ("One two. Three four.", True)),
        ("One two\nthree four\nfive", 3, words, ("One two", True)),
        ("One. Two three four five six", 5, words, ("One. Two three four five", True)),  # the sentence keeps too little
        ("one two three", 2, words, ("one two", True)),
        ("3.14 is not 3.15 at all", 3, words, ("3.14 is not", True)),  # a decimal point ends no sentence
        ("一二三。四五六。七", 6, letters, ("一二三。", True)),
        ("onelongword more", 4, letters, ("", True)),
        ("text", 0, words, ("", True)),
        ("text", -3, words, ("", True)),
        ("", 0, words, ("", False)),
        ("", 3, words, ("", False)),
    ],
)
def test_shorten_by_hand(text, budget, count, expected):
    assert shorten(text, budget, count) == expected


def merging(text: str) -> int:
    """Like a tokenizer, not monotone: a prefix that ends between "a" and "b" costs a token more than one after both."""
    return len(text.replace("ab", "").replace(" b", "")) + 1 if text else 0


@given(
    text=st.text(alphabet="ab .\n。!", max_size=80),
    budget=st.integers(-2, 60),
    count=st.sampled_from([words, letters, merging]),
)
def test_shorten_never_exceeds_its_budget_and_cuts_at_a_boundary(text, budget, count):
    kept, cut = shorten(text, budget, count)
    assert text.startswith(kept)
    assert not kept or count(kept) <= budget
    assert cut == (kept != text)
    if cut and kept:
        assert kept[-1] in "。" or (not kept[-1].isspace() and text[len(kept)].isspace())


def test_shorten_counts_a_long_text_a_few_dozen_times():
    calls = 0

    def counting(text: str) -> int:
        nonlocal calls
        calls += 1
        return words(text)

    kept, cut = shorten("word " * 20_000, 7_000, counting)
    assert cut and words(kept) == 7_000
    assert calls < 40


@pytest.mark.parametrize(
    ("summary", "nothing"),
    [
        ("<answer>5</answer>", True),
        ("**\n<answer>5</answer>.\n", True),
        (r"\boxed{5} <answer>5</answer>", True),
        ("Add them. <answer>5</answer>", False),
        ("2 + 3 <answer>5</answer>", False),
        ("答え <answer>5</answer>", False),
    ],
)
def test_a_summary_that_is_only_the_answer_leaves_nothing_to_read(summary, nothing):
    assert nothing_to_read(withhold_answer(summary)) is nothing


def test_without_a_summary_there_is_nothing_to_read():
    assert nothing_to_read(None) and nothing_to_read("") and nothing_to_read(" \n")
