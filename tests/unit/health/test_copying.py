import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agon_verl.health.copying import copied_share

TOY = "7+8=15 write 5 carry 1"
TEN = "a b c d e f g h i j"


@pytest.mark.parametrize(
    ("shown", "challenge", "share"),
    [
        (TEN, TEN, 1.0),
        (TEN, "k l m n o p q r s t", 0.0),
        (TEN, "a b c d e f g h i X", 5 / 6),  # of six n-grams the last is another
        (TEN, "a b c d X f g h i j", 1 / 6),  # five of the six hold the word in the middle
        (TEN, f"{TEN} {TEN}", 12 / 16),  # four n-grams straddle the seam
        (f"k l m {TEN} n o p", TEN, 1.0),  # the challenge is what is measured
        (TEN, f"k l m {TEN} n o p", 6 / 12),
        (TEN, "a  b\n\nc\td e", 1.0),  # white space is no word
        (TEN, "j i h g f e d c b a", 0.0),  # the same words are no copy
        (TOY, TOY, 1.0),
        (TOY, "7+8=15 write 5 carry 0", 0.0),
        (TEN, "d e f", 1.0),  # three words, compared whole
        (TEN, "d e X", 0.0),
        (TEN, "d e", 0.0),  # too short to be a solution
        ("a b c", TEN, 0.0),
        (None, TEN, 0.0),
        ("", TEN, 0.0),
        (TEN, "", 0.0),
        (" \n", " \n", 0.0),
    ],
)
def test_shares_by_hand(shown, challenge, share):
    assert copied_share(shown, challenge) == pytest.approx(share)


def test_the_marker_of_a_withheld_answer_counts_in_neither_text():
    shown = "Ones 4, tens 7. [answer withheld]"
    assert copied_share(shown, shown) == 1.0
    assert copied_share(shown, "Ones 4, tens 6. [answer withheld]") == 0.0
    assert copied_share(shown, "[answer withheld]") == 0.0  # a model that writes its answer and no solution
    assert copied_share(f"{TEN} [answer withheld]", f"[answer withheld] {TEN} [answer withheld]") == 1.0


def test_a_copy_with_every_thirtieth_word_changed_scores_above_four_fifths():
    words = [f"w{i}" for i in range(300)]
    changed = [f"X{i}" if i % 30 == 15 else word for i, word in enumerate(words)]
    assert copied_share(" ".join(words), " ".join(changed)) == pytest.approx((296 - 50) / 296)


def test_characters_of_unspaced_scripts_are_words():
    text = "设苹果的数目为甲则甲加五等于十二所以甲等于七"  # 22 characters, 18 n-grams
    assert copied_share(text, text) == 1.0
    assert copied_share(text, text.replace("十", "九")) == pytest.approx(13 / 18)
    assert copied_share("Пусть x равно пяти тогда y", "Пусть x равно пяти тогда y") == 1.0
    assert copied_share("ひらがなとカタカナ", "ひらがなとカタカナ") == 1.0


def test_long_texts_take_no_time():
    """Twenty times the longest completion; a comparison of every n-gram with every other would take hours."""
    shown = " ".join(f"w{i}" for i in range(300_000))
    started = time.monotonic()
    assert copied_share(shown, shown) == 1.0
    assert copied_share("x " * 300_000, "x " * 300_000) == 1.0
    assert time.monotonic() - started < 20


@given(st.text(), st.text())
def test_it_is_a_share_of_any_text(shown, challenge):
    assert 0.0 <= copied_share(shown, challenge) <= 1.0


@given(st.lists(st.text("abc", min_size=1), min_size=3), st.text())
def test_what_is_quoted_whole_is_copied(words, after):
    challenge = " ".join(words)
    assert copied_share(f"{challenge} {after}", challenge) == 1.0
