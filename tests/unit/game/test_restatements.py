"""`agon.withhold=value`: the draft's final value is withheld where its text states it as a result, and only there.

`restatements.jsonl`: for 30 of the completions in `benchmarks/math_completions.jsonl`, the problem, and the lines that
lose a value, read and corrected by hand. All other lines stay as they are.
"""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agon_verl.game import transcript
from agon_verl.game.attempt import attempt_of
from agon_verl.game.control_tokens import ControlTokens
from agon_verl.game.domains import DOMAINS
from agon_verl.game.domains.leaks import contains, states
from agon_verl.game.domains.restatements import MOST, withhold_value
from agon_verl.game.transcript import Transcript
from agon_verl.game.withhold import WITHHELD, withhold_answer
from reward_fns.mathematics.restated import comparison, restates

W = WITHHELD
NO_CONTROL = ControlTokens(SimpleNamespace(chat_template=None, added_tokens_decoder={}), ())
HERE = Path(__file__)
COMPLETIONS = {
    row["id"]: row
    for row in map(
        json.loads, (HERE.parents[3] / "benchmarks" / "math_completions.jsonl").read_text(encoding="utf-8").splitlines()
    )
}
EXCERPT = [json.loads(line) for line in HERE.with_name("restatements.jsonl").read_text(encoding="utf-8").splitlines()]


def read(row: dict) -> Transcript:
    return transcript.read(row["text"], ended=row["finished"])


@pytest.mark.parametrize(
    ("answer", "text", "shown"),
    [
        ("10", r"\[5 + 5 = 10\]", rf"\[5 + 5 = {W}\]"),
        ("10", r"Therefore, $f(\sqrt{29}) = 10$.", rf"Therefore, $f(\sqrt{{29}}) = {W}$."),
        ("10", "5 + 5 = 10 because both are 5", f"5 + 5 = {W} because both are 5"),
        ("10", r"The value of \( f \) is \( 10 \).", rf"The value of \( f \) is \( {W} \)."),
        ("10", "The sum is **10**.", f"The sum is **{W}**."),
        ("10", "**10**", f"**{W}**"),
        ("10", r"\[ 10 \]", rf"\[ {W} \]"),
        ("10", "This gives 10, which is even.", f"This gives {W}, which is even."),
        ("10", "So she buys 10 apples.", f"So she buys {W} apples."),
        ("5", "There are 5 integers in the list.", f"There are {W} integers in the list."),
        ("1", r"\[ 1 = x \]", rf"\[ {W} = x \]"),
        ("7", r"2n = 14 \Rightarrow n = 7", rf"2n = 14 \Rightarrow n = {W}"),
        ("10", r"a &= 2 \cdot 5 \\ &= 10", rf"a &= 2 \cdot 5 \\ &= {W}"),
        ("4", "She needs 4 miles because 12 - 8 = 4", f"She needs {W} miles because 12 - 8 = {W}"),
        ("164", r"$4 \sqrt[4]{abcd} \ge 164$", rf"$4 \sqrt[4]{{abcd}} \ge {W}$"),
        ("18000", "$1500 * 12 = $18,000/year", f"$1500 * 12 = ${W}/year"),
        ("4", "We add them. So she buys 4 apples.", f"We add them. So she buys {W} apples."),
        ("121", "we can generate 121 new cans from them", f"we can generate {W} new cans from them"),
    ],
)
def test_a_value_stated_as_a_result_is_withheld(answer, text, shown):
    assert withhold_value(text, answer, restates) == shown


@pytest.mark.parametrize(
    ("answer", "stated"),
    [
        (r"\frac{1}{2}", [r"\dfrac{1}{2}", r"\tfrac12", "1/2", "0.5", r"50\%"]),
        ("1234", ["1,234", r"1{,}234", "1234.0", r"1\,234"]),
        ("10", [r"\$10", "10 cm", r"10 \text{ cm}", r"10^\circ", "10 apples"]),
        (r"\sqrt{50}", [r"5\sqrt{2}", r"5 \sqrt 2"]),
        (r"\text{Evelyn}", ["Evelyn"]),
        ("(3, 5)", ["(3,5)", r"\left(3, 5\right)"]),
        ("[3, 5)", ["[3,5)", r"3 \le x < 5"]),
        ("x = 10", ["10"]),
        (r"\( 7 + 3 = 10 \)", ["10"]),
        (r"\dfrac{1}{6}" + "\\", [r"\frac{1}{6}"]),  # a stray mark after the answer
        ("2y", ["2y", r"2 \cdot y"]),
        ("Anna has 40 apples.", ["40", "40 apples"]),
    ],
)
def test_in_any_notation_that_the_verifier_calls_equal(answer, stated):
    for value in stated:
        assert withhold_value(f"So the result is ${value}$.", answer, restates).startswith(f"So the result is ${W}"), (
            value
        )


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("5", "we add 5 to the floor of it"),
        ("5", r"\[5 + 6 = 11\]"),
        ("5", r"The integers are 3, 4, 5, 6 and 7."),
        ("2", r"x^2 + 2 = 3x, so the point is (2, 7)"),
        ("2", "3x - x = 2"),  # an equation to be solved
        ("2", r"x + 2 = 3x \implies 2 = 2x"),
        ("3", "The larger is 3 times the smaller, and more than 3."),
        ("10", "Step 10: add."),
        ("4939", "we check if 4939 is a prime number: 4939 / 3 = 1646.3"),
        ("4", "4. Simplify the equation:"),
        ("17", r"9879 = 3 \times 13 \times 17 \times 15"),
        ("2", "Multiplying gives $BC = 2AB$."),
        ("3", r"Here $x \ge 3$."),
        ("6", "Starting with 6, it doubles because of the sign."),
    ],
)
def test_a_number_that_merely_occurs_stays(answer, text):
    assert withhold_value(text, answer, restates) == text


def test_the_problem_tells_data_from_results():
    problem = r"A sequence has $a_1 = 1$. Find $a_{120}$ and $m + n$."
    assert withhold_value("We know a_1 = 1.", "1", restates, problem) == "We know a_1 = 1."
    assert withhold_value("We know a_6 = 1.", "1", restates, problem) == f"We know a_6 = {W}."
    assert withhold_value("m + n = 7", "7", restates, problem) == f"m + n = {W}"
    assert withhold_value("k + n = 7", "7", restates, problem) == "k + n = 7"


@pytest.mark.parametrize("row", EXCERPT, ids=lambda row: row["id"])
def test_the_lines_that_lose_a_value(row):
    draft = read(COMPLETIONS[row["id"]])
    announced = withhold_answer(draft.summary).split("\n")
    shown = withhold_answer(draft.summary, "math", draft.answer, restates, row["problem"]).split("\n")
    assert [line.strip() for before, line in zip(announced, shown, strict=True) if line != before] == row["lines"]


def test_leaks_and_text_of_real_drafts():
    """By the independent measure, without the problems: right drafts below 10 %, and most of the text stays."""
    right = [read(row) for row in COMPLETIONS.values() if row["right"]]
    drafts = [draft for draft in right if draft.summary and draft.answer]
    announced = [withhold_answer(draft.summary) for draft in drafts]
    shown = [withhold_answer(draft.summary, "math", draft.answer, restates) for draft in drafts]
    before, after = (
        sum(states(text, draft.answer) for text, draft in zip(texts, drafts, strict=True)) / len(drafts)
        for texts in (announced, shown)
    )
    kept = sum(len(text.replace(W, "")) for text in shown) / sum(len(draft.summary) for draft in drafts)
    assert len(drafts) > 30 and before > 0.5 and after < 0.1 and kept > 0.8


def test_without_the_setting_nothing_changes():
    draft = transcript.read("2 + 2 = 4. <answer>4</answer>")
    announced = attempt_of(draft, "math", NO_CONTROL, len, lambda text: 0)
    value = attempt_of(draft, "math", NO_CONTROL, len, lambda text: 0, "What is 2 + 2?", restates)
    assert (announced.shown, announced.leaked, announced.stated) == (f"2 + 2 = 4. {W}", True, True)
    assert (value.shown, value.leaked, value.stated) == (f"2 + 2 = {W}. {W}", False, False)


def test_programs_have_no_value_to_withhold():
    draft = transcript.read("It prints 5 = 5.\n```python\nprint(5)\n```")
    first, second = (attempt_of(draft, "code", NO_CONTROL, len, lambda text: 0, "", same) for same in (None, restates))
    assert first == second


def test_an_answer_that_the_verifier_cannot_read_is_compared_as_text():
    assert not restates(r"\frac{1", "0.5")
    assert withhold_value(r"so x = \frac{1 2", r"\frac{1 2", restates) == f"so x = {W}"


PIECES = [
    "=", " = ", "5", " 5 ", "10", "x", "2x", " is ", "Therefore ", "So ", ". ", ", ", "\n", "(", ")", "{", "}", "$",
    r"\(", r"\)",
    r"\[", r"\]", "**", r"\frac{1}{2}", r"\implies ", "&", r"\\", ":", "+", "there are ", " integers", W, "answer",
]  # fmt: skip
texts = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)


@given(texts)
@example(r"So {=\(5 5 ")
@example("there are  5 there are  5 (")
def test_only_the_value_is_replaced(text):
    """What stays is the text, piece by piece and in order, and twice is the same as once."""
    shown = withhold_value(text, "5", restates)
    rest = text
    for part in shown.split(W):
        assert part in rest
        rest = rest[rest.index(part) + len(part) :]
    assert withhold_value(shown, "5", restates) == shown


@pytest.mark.parametrize(
    "loop",
    ["= 5 ", "x = 5\n", "is 5 ", "is ", "=", ":", "(", "{", r"\(", "$", "so ", "so 5 = 5. ", "5,", r"\frac{",
     r"\implies 5 ", "5 x 5 = 5 ", "x", " ", W],
)  # fmt: skip
def test_degenerate_loops_end_and_compare_a_bounded_number_of_times(loop):
    """A policy stuck in a loop fills its completion; every place must read a bounded number of characters."""
    compared = []

    def same(answer: str, value: str) -> bool:
        compared.append(value)
        return restates(answer, value)

    numbered = "".join(f"{loop}{number} = {number}{number} " for number in range(MOST + 100))
    for text in (loop * (30_000 // len(loop)), numbered):
        compared.clear()
        withhold_value(text, "5", same, "What is 5?")
        assert len(compared) == len(set(compared)) <= MOST
        states(text, "5")


def test_a_long_answer_is_compared_as_text_alone():
    """No place has room for it, and parsing it once per value took minutes."""
    compared = []
    text = "".join(f"so x = {number}. " for number in range(500))
    assert withhold_value(text, "1 + " * 3000 + "1", lambda *values: bool(compared.append(values))) == text
    assert not compared


@pytest.mark.parametrize(
    ("shown", "answer", "stated"),
    [
        ("so x = 5", "5", True),
        (r"is \( 5 \).", "5", True),
        ("there are\n5\nof them", "5", True),
        (r"gives $\frac{1}{2}$", "0.5", True),
        (r"gives $\dfrac{1}{2}$", r"\frac{1}{2}", True),
        (r"is 50\%", "1/2", True),
        ("is 1,234", "1234", True),
        ("= 5 + 6", "5", False),
        ("= 5.5", "5", False),
        ("= -5", "5", False),
        ("add 5", "5", False),
        (f"is {W}", "answer", False),
        ("so 5", "", False),
        ("", "5", False),
    ],
)
def test_states(shown, answer, stated):
    assert DOMAINS["math"].states(shown, answer) is stated


def test_what_is_stated_is_contained():
    for row in COMPLETIONS.values():
        draft = read(row)
        if draft.summary and draft.answer and len(draft.answer) < 20 and "/" not in draft.answer:
            shown = withhold_answer(draft.summary)
            assert contains(shown, draft.answer) or not states(shown, draft.answer), row["id"]


def test_only_one_setting_compares_values():
    assert (comparison("announced"), comparison("value")) == (None, restates)
