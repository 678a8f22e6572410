import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agon_verl.game.boxes import boxes
from agon_verl.game.domains import DOMAINS
from agon_verl.game.fences import fences
from agon_verl.game.withhold import WITHHELD, withhold_answer

W = WITHHELD
PROGRAM = f"```\n{W}\n```"


@pytest.mark.parametrize(
    ("summary", "shown"),
    [
        ("2 + 3 makes it.\n<answer>5</answer>", f"2 + 3 makes it.\n{W}"),
        ("2 + 3 makes it.\n<answer>so\n5", f"2 + 3 makes it.\n{W}"),
        ("<Answer>5</Answer> as shown", f"{W} as shown"),
        ("Add.\nSo 5</answer>", f"Add.\n{W}"),
        (r"so $x = \boxed{\frac{1}{2}}$ indeed", f"so $x = {W}$ indeed"),
        (r"\boxed{1} then \fbox{2}", f"{W} then {W}"),
        (r"\boxed{\boxed{5}} ok", f"{W} ok"),
        ("x = \\boxed{5 and so on\nnext", f"x = {W}\nnext"),
        ("x = \\boxed 5\nnext", f"x = {W}\nnext"),
        (r"\boxed{5} \boxed{5}", W),
        ("\\boxed{5}\n\n<answer>5</answer>", W),
    ],
)
def test_marks_around_an_answer(summary, shown):
    assert withhold_answer(summary) == shown


@pytest.mark.parametrize(
    ("summary", "shown"),
    [
        ("Therefore, the answer is 5.", f"Therefore, the answer is {W}."),
        ("The answer is 5. To see why, add.", f"The answer is {W}. To see why, add."),
        ("The answer is approx. 5 m. Done.", f"The answer is {W}. Done."),
        ("The answer is 3.5 kg", f"The answer is {W}"),
        ("The answer to the problem is 5.", f"The answer to the problem is {W}."),
        ("Final answer: $5$", f"Final answer: {W}"),
        ("Answer: 42", f"Answer: {W}"),
        ("**Answer**: 42", f"**Answer**: {W}"),
        ("**Answer:** 42", f"**Answer:** {W}"),
        ("Ans = 42", f"Ans = {W}"),
        ("The final result is 42!", f"The final result is {W}!"),
        ("giving an answer of 42.", f"giving an answer of {W}."),
        ("We add. So 42 is the final answer. Done.", f"We add. {W}. Done."),
        ("We take 42 as our answer.", f"{W}."),
        ("#### 72", W),
        ("She sells 72.\n#### 72", f"She sells 72.\n{W}"),
        ("#### 1,234.50\nok", f"{W}\nok"),
        ("Halve it.\n#### \\frac12", f"Halve it.\n{W}"),
        ("The answer is:\n\n$$\n42\n$$\n\nDone.", f"The answer is:\n\n{W}\n\nDone."),
        ("### Final Answer\n\n42 apples\nin all\n\nDone.", f"### Final Answer\n\n{W}\n\nDone."),
        ("**Answer**\n42", f"**Answer**\n{W}"),
        ("Step 5: Final answer\n42", f"Step 5: Final answer\n{W}"),
        ("Answer:\n42\nAnswer:\n\n43", f"Answer:\n{W}"),
    ],
)
def test_announced_answers(summary, shown):
    assert withhold_answer(summary) == shown


@pytest.mark.parametrize(
    "summary",
    [
        "Add 2 and 3 to get 5.",
        "To find the answer, add 2 and 3.",
        "Tom answers 20 questions, and she answered 5.",
        "#### Step 2\nAdd 2 and 3.",
        "##### 2\nAdd.",
        r"Since $x^2 = \frac{1}{4}$, $x = \{\pm\frac12\}$.",
        "if 3 < answer then",
        "",
    ],
)
def test_the_derivation_stays(summary):
    assert withhold_answer(summary) == summary


def test_a_whole_summary():
    summary = (
        "## Solution\n\n1. There are 3 boxes of 4, so 3 * 4 = 12.\n2. Two are eaten.\n\n"
        "### Final Answer\n\n$$\\boxed{10}$$\n\nThe answer is **10**.\n<answer>10</answer>"
    )
    assert withhold_answer(summary) == (
        "## Solution\n\n1. There are 3 boxes of 4, so 3 * 4 = 12.\n2. Two are eaten.\n\n"
        f"### Final Answer\n\n{W}\n\nThe answer is **{W}.\n{W}"
    )


@pytest.mark.parametrize(
    ("summary", "shown"),
    [
        ("Read, add.\n```python\nprint(5)\n```\nDone.", f"Read, add.\n{PROGRAM}\nDone."),
        ("Read, add.\n```python\nprint(5)", f"Read, add.\n{PROGRAM}"),
        ("Sort:\n```\na.sort()\n```\nAll:\n```\nprint(5)\n```", f"Sort:\n```\na.sort()\n```\nAll:\n{PROGRAM}"),
        ("```\nprint(5)\n```\nthat is\n```py\nprint( 5 )\n```", f"{PROGRAM}\nthat is\n{PROGRAM}"),
        ("Add.\n<answer>```python\nprint(5)\n```</answer>", f"Add.\n\n{PROGRAM}"),
        ("```\nx\n```\nso\n<answer>print(5)</answer>", f"{PROGRAM}\nso\n\n{PROGRAM}"),  # the last block is graded
        ("```\nprint(5)\n```\nso\n<answer>```\nprint(5)\n```</answer>", f"{PROGRAM}\nso\n\n{PROGRAM}"),
        ("Add.\n<answer>print(5)", f"Add.\n\n{PROGRAM}"),
        ("<answer>5</answer>then prose", f"{PROGRAM}\nthen prose"),
        (r"The answer is \boxed{5}.", r"The answer is \boxed{5}."),  # prose is not a program
    ],
)
def test_programs(summary, shown):
    assert withhold_answer(summary, "code") == shown


PIECES = [
    "\\boxed{", "\\boxed{5}", "\\fbox{5}", "\\boxed 5", "{", "}", "\\", "\\\\", "<answer>", "</answer>", "<ANSWER",
    "</", "The answer is ", "Answer:", "**Final Answer**\n", "So 5 is the final answer. ", "answer to ", "final value ",
    "#### 5", "#### x\n", "```", "```py\nx\n```\n", "\n", "\n\n", " ", ". ", "! ", "?", ":", "=", "$", "*", "5", "a",
    "Foo ", W, W + "\n", "\r",
]  # fmt: skip
summaries = st.one_of(st.text(max_size=60), st.lists(st.sampled_from(PIECES), max_size=14).map("".join))


@given(summaries)
def test_no_mark_of_an_answer_remains(summary):
    shown = withhold_answer(summary)
    assert "\\boxed" not in shown and "\\fbox" not in shown and not boxes(shown)
    assert "<answer" not in shown.lower() and "</answer" not in shown.lower()


@given(summaries)
def test_the_last_program_is_always_withheld(summary):
    shown = withhold_answer(summary, "code")
    assert "<answer" not in shown.lower() and "</answer" not in shown.lower()
    assert all(W in fence.body for fence in fences(shown)[-1:])


@pytest.mark.parametrize("domain", DOMAINS)
@given(summary=summaries)
def test_withholding_twice_is_withholding_once(domain, summary):
    shown = withhold_answer(summary, domain)
    assert withhold_answer(shown, domain) == shown


@given(before=st.sampled_from(["Add 2 and 3.\n", "x = ", ""]), answer=st.integers(10_000, 99_999))
def test_a_marked_answer_does_not_leak(before, answer):
    for mark in (f"\\boxed{{{answer}}}", f"<answer>{answer}</answer>", f"The answer is {answer}.", f"#### {answer}"):
        assert DOMAINS["math"].leaks(before + mark, str(answer))
        assert not DOMAINS["math"].leaks(withhold_answer(f"{before}\n{mark}"), str(answer))


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize(
    "loop",
    [r"\boxed{", r"\boxed{5}{", "<answer>", "</answer>", "The answer is ", "Answer:\n", "answer to $", "#### 1", "1",
     "#### The answer is " + W + "\n", ". ", " ", "\n", "`", "```\n", "a```py\nx\n```\n</answer>", W],
)  # fmt: skip
def test_degenerate_loops_take_linear_time(domain, loop):
    """A policy stuck in a loop fills its whole completion; a quadratic pattern would hold the step up for minutes."""
    began = time.perf_counter()
    shown = withhold_answer(loop * (60_000 // len(loop)) + "x", domain)
    DOMAINS[domain].leaks(shown, loop * 1_000)
    assert time.perf_counter() - began < 5


@pytest.mark.parametrize(
    ("shown", "answer", "leaked"),
    [
        ("so x = 5", "5", True),
        ("so $x=5$.", "5", True),
        ("so x = 5, as", " $5$ ", True),
        ("so 15", "5", False),
        ("so 5.2", "5", False),
        ("so 2.5", "5", False),
        ("so x5", "5", False),
        ("so x = -5", "5", False),
        ("so x = -5", "-5", True),
        ("1,234 apples", "1234", True),
        ("1234 apples", "1,234", True),
        ("11,234 apples", "1234", False),
        (r"is \frac{1} {2}.", r"\frac{1}{2}", True),
        ("the pair (1, 2)", "(1,2)", True),
        ("Evelyn is fastest", r"\text{Evelyn}", True),
        ("Evelyns", "Evelyn", False),
        (f"the answer is {W}", "answer", True),  # the word before the marker
        (f"it is {W}", "answer", False),  # the marker is no leak
        ("so 5", None, False),
        ("so 5", " ", False),
        (None, "5", False),
        ("", "5", False),
    ],
)
def test_leaks(shown, answer, leaked):
    assert DOMAINS["math"].leaks(shown or "", answer or "") is leaked


def test_a_program_leaks_whatever_its_layout():
    assert DOMAINS["code"].leaks("use `print( 5 )`", "```python\nprint(5)\n```")
    assert DOMAINS["code"].leaks("use print(5)", "print(5)\n")
    assert not DOMAINS["code"].leaks("use print(6)", "print(5)")
    assert not DOMAINS["code"].leaks("use", "")
