"""Which problems count as the same; shares worked out by hand."""

import random

import pytest

from agon_verl.data import overlap
from agon_verl.data.overlap import same_as, tokens

STORY = "Ann has 12 red apples and gives 5 of them to Ben before lunch so how many apples has Ann"  # 20 tokens


def same(*texts: str, fixed: int = 0) -> dict[int, tuple[int, str]]:
    return same_as([tokens(text) for text in texts], fixed)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Find  $x^{2}$ .", "find \\( X^2 \\)"),
        (r"\left(\dfrac{1}{2}\right)", r"( \frac{1}{2} )"),
        ("What is 3.5 + 2?", "what is 3.5+2"),
        (r"a\,b \quad c", "a b c"),
        ("ﬁnd x", "find x"),  # a ligature
    ],
)
def test_equal_whatever_the_markup(one: str, other: str) -> None:
    assert same(one, other) == {1: (0, "equal")}


@pytest.mark.parametrize(
    ("one", "other"), [("x^2 + 1", "x^2 - 1"), ("5", "5!"), ("1.5", "15"), ("a_1", "a^1"), ("sin x", "cos x")]
)
def test_signs_and_numbers_are_kept(one: str, other: str) -> None:
    assert same(one, other) == {}


def test_alike_from_half_of_the_runs_on() -> None:
    words = STORY.split()
    assert len(tokens(STORY)) == 20  # 16 runs of 5
    assert same(STORY, " ".join(words[:12]) + " k l m n o p q r") == {1: (0, "alike")}  # the first 8 runs of both
    assert same(STORY, " ".join(words[:11]) + " k l m n o p q r s") == {}  # 7 of 16


def test_one_changed_number_is_alike_and_one_inside_the_other_too() -> None:
    assert same(STORY, STORY.replace("12", "13")) == {1: (0, "alike")}
    assert same(f"Before. {STORY}? After it come many other words, which ask for another thing.", STORY) == {
        1: (0, "alike")
    }


def test_short_problems_are_only_compared_whole() -> None:
    assert same("Compute the sum of 1 2 3 4 5 6", "Compute the sum of 1 2 3 4 5 7") == {}  # 6 of 7 runs


def test_fixed_texts_are_not_judged() -> None:
    assert same(STORY, STORY, STORY, fixed=2) == {2: (0, "equal")}


def test_a_repeated_text_repeats_nothing_else() -> None:
    """b is like a, c is like b alone: c stays, for b is gone."""
    words = [f"w{number}" for number in range(30)]
    a, b, c = (" ".join(words[start : start + 16]) for start in (0, 6, 12))
    assert same(a, b) == {1: (0, "alike")} and same(b, c) == {1: (0, "alike")}
    assert same(a, b, c) == {1: (0, "alike")}


def test_a_turn_of_phrase_makes_no_problems_alike() -> None:
    phrase = "where m and n are relatively prime positive integers find m + n"  # 8 runs of 5
    ends = [f"{phrase} a{n} b{n} c{n} d{n}" for n in range(overlap.PHRASE + 1)]
    assert same(*ends) == {}
    assert len(same(*ends[:-1])) == overlap.PHRASE - 1


def test_agrees_with_counting_every_pair() -> None:
    rng = random.Random(0)
    texts = [[rng.choice("abcd") for _ in range(rng.randint(8, 30))] for _ in range(50)]
    texts += [text[3:] + ["z"] * 3 for text in texts[:15]]
    expected: dict[int, tuple[int, str]] = {}
    runs = [{tuple(t[i : i + overlap.RUN]) for i in range(len(t) - overlap.RUN + 1)} for t in texts]
    for n in range(len(texts)):
        for m in range(n):
            shorter = min(len(texts[m]), len(texts[n])) - overlap.RUN + 1
            if m not in expected and shorter >= overlap.FEWEST and 2 * len(runs[m] & runs[n]) >= shorter:
                expected[n] = (m, "alike")
                break
    assert len(expected) > 10
    assert same_as(texts, 0) == expected


def test_nothing_to_compare() -> None:
    assert same_as([], 0) == {} and same("", "x") == {}
