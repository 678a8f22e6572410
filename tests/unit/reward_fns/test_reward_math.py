import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward_fns.math_answer import compute_score, judge
from reward_fns.mathematics.equal import UnreadableReference

KEYS = {"score": float, "acc": float, "format": float, "pred": str, "verdict": str}


def score(completion: str, truth="5", **kwargs) -> dict:
    return asyncio.run(compute_score("test", completion, truth, **kwargs))


def same_answer(answer: str, reference: str) -> bool:
    return asyncio.run(judge(reference, answer)) == "correct"


@pytest.mark.parametrize(
    ("completion", "expected"),
    [
        ("<think>r</think>Add.<answer>5</answer>", (2.5, 1.0, 1.0, "5", "correct")),
        ("<think>r</think>Add.<answer>6</answer>", (0.5, 0.0, 1.0, "6", "wrong")),
        (r"<think>r</think>Add: \boxed{5}", (2.0, 1.0, 0.0, "5", "correct")),
        (r"\boxed{5}", (2.0, 1.0, 0.0, "5", "correct")),
        ("<think>r</think>It is 5.", (0.0, 0.0, 0.0, "", "no_answer")),
        ("<think>r", (0.0, 0.0, 0.0, "", "no_answer")),
        ("", (0.0, 0.0, 0.0, "", "no_answer")),
    ],
)
def test_scores_by_hand(completion, expected):
    assert tuple(score(completion).values()) == expected


@given(st.text(max_size=50))
def test_the_keys_and_types_are_always_the_same(completion):
    assert {key: type(value) for key, value in score(completion).items()} == KEYS


def test_the_format_weight():
    assert score("<think>r</think><answer>5</answer>", format_weight=0.1)["score"] == 2.1


def test_a_draft_can_be_asked_for_something_to_read():
    assert score("<think>r</think><answer>5</answer>", needs_summary=True)["score"] == 2.0
    assert score("<think>r</think>Add.<answer>5</answer>", needs_summary=True)["score"] == 2.5


@pytest.mark.parametrize("inside", ["<answer>5</answer>", r"\boxed{5}"])
@pytest.mark.parametrize(
    "completion",
    [
        "<think>{}</think>",
        "<think>{}</think>I do not know.",
        "{}</think>I do not know.",
        "<think>{}",
        "<think>r</think>s</think>{}</think>I do not know.",
        "<think>{}</think><answer>6</answer>",
        "<think>r</think>Hmm.<think>{}",
        "<think>{}</think><answer>",
    ],
)
def test_an_answer_inside_reasoning_that_was_cut_off_is_never_graded(inside, completion):
    assert score(completion.replace("{}", inside), extra_info={"completion_ended": False})["acc"] == 0.0


@pytest.mark.parametrize("completion", ["<think>{}", "<think>{}</think>", "<think>{}</think>So it is."])
def test_an_answer_inside_the_reasoning_of_a_completion_that_ended(completion):
    """Correctness does not depend on structure, which has its own term."""
    block, box = completion.replace("{}", "<answer>5</answer>"), completion.replace("{}", r"\boxed{5}")
    ended = {"extra_info": {"completion_ended": True}}
    right = (2.0, 1.0, 0.0, "5", "correct")
    assert tuple(score(block, **ended).values()) == tuple(score(box, **ended).values()) == right
    assert tuple(score(block).values()) == right  # under a trainer that does not report the end
    assert score(box)["verdict"] == "no_answer"
    assert score(block, "6", **ended)["verdict"] == "wrong"


def test_a_template_that_opens_the_reasoning():
    """The prompt is not visible: without `opened`, a completion truncated in its reasoning looks like an answer."""
    assert score(r"maybe \boxed{5}, or", opened=True)["verdict"] == "no_answer"
    assert score(r"maybe \boxed{5}, or")["acc"] == 1.0


@pytest.mark.parametrize("guesses", ["4, 5, 6", "5 or 6", "4 5", "5=6", "5 (or 6)", "x = 5, x = 6"])
def test_a_list_of_guesses_is_wrong(guesses):
    assert score(f"<think>r</think><answer>{guesses}</answer>")["verdict"] == "wrong"


@pytest.mark.parametrize(
    ("answer", "reference"),
    [
        ("5", "5"), (" 5\n", "5"), ("$5$", "5"), ("$5.$", "5"), ("$5$.", "5"), (r"\$5", "5"), ("5.", "5"), ("+5", "5"),
        ("5.0", "5"), ("05", "5"), ("0.50", ".5"), ("1/2", "0.5"), ("2/4", "1/2"), ("-1/2", "-0.5"), ("-0", "0"),
        ("1,234", "1234"), ("1,234,567.50", "1234567.5"), ("$1,000$", "1000"),
        ("0.1", "1/10"),  # exact: in floating point 0.1 is not 1/10
        (r"\frac{1}{2}", "0.5"), ("0.3333333333333333", "1/3"),
        (r"\frac{1}{2}", r"\frac{1}{2}"), ("(1, 2)", "(1, 2)"), ("Evelyn", "Evelyn."), ("x+1", "$x+1$"),
    ],
)  # fmt: skip
def test_the_same_answer(answer, reference):
    assert same_answer(answer, reference) and same_answer(reference, answer)


@pytest.mark.parametrize(
    ("answer", "reference"),
    [
        ("5", "6"), ("-5", "5"), ("5", "5x"), ("1,23", "123"), ("1234,567", "1234567"), ("(1,200)", "(1200)"),
        ("5e0", "5"), ("5 0", "50"), ("5$0", "50"), ("1/0", "0"), ("٥", "5"), ("nan", "5"), ("inf", "5"),
        ("1=2=3", "3"), ("11_2", "11"), ("1/2004", "1/2006"), ("", "5"),
    ],
)  # fmt: skip
def test_different_answers(answer, reference):
    assert not same_answer(answer, reference)
    if answer:
        assert not same_answer(reference, answer)


@given(st.integers(-(10**12), 10**12))
def test_an_integer_however_written(n):
    for written in (f"{n}", f"{n:,}", f"${n}$", f"{n}.0", f"{n}.", f"x = {n}", rf"\text{{{n}}}", f"{n} apples"):
        assert same_answer(written, str(n))
    assert not same_answer(str(n + 1), str(n))
    assert not same_answer(f"{2 * n}/2", str(n))  # not evaluated


ENDLESS = [
    "9" * 100_000,
    "1e999999999",
    "1/" + "9" * 100_000,
    "0." + "1" * 100_000,
    "(" * 50_000,
    "{" * 10**6,
]
ENDLESS += ["9^{9^{9^{9}}}", "99999999999!", r"\frac{1}{" * 5000, "x=" * 5000, "1," * 5000, r"\sqrt" * 5000, "-" * 5000]
ENDLESS += [r"\text{" * 5000, "|" * 900, "((((1))))" * 100, "2" + "^2" * 400, "(" * 400 + "5" + ")" * 400, "!" * 900]
ENDLESS += [
    "(1," * 300 + "1" + ")" * 300,
    "A." * 490,
    r"\sin" * 249 + "1",
    "-" * 990 + "5",
    "2^" * 490 + "2",
    "1=" * 490 + "2",
]
ENDLESS += [r"\{" * 249 + "1" + r"\}" * 249, r"\pm" * 300, "1:" * 490 + "1", "x_" * 490 + "1"]


@pytest.mark.parametrize("answer", ENDLESS, ids=lambda answer: f"{answer[:12]} ({len(answer)})")
@pytest.mark.parametrize("reference", ["5", "x^2+1"])
def test_no_answer_stalls_or_crashes_the_verifier(answer, reference):
    began = time.perf_counter()
    assert score(f"<answer>{answer}</answer>", reference)["verdict"] == "wrong"
    assert time.perf_counter() - began < 20  # milliseconds on an idle machine


def test_a_long_answer_is_right_only_to_a_long_reference():
    long = ", ".join(map(str, range(1000)))
    assert score(f"<answer>{long}</answer>", "5")["verdict"] == "wrong"
    assert score(f"<answer>{long}</answer>", ", ".join(map(str, reversed(range(1000)))))["verdict"] == "correct"


def test_an_answer_of_more_than_10_000_characters_is_compared_as_text():
    """Parsing takes longer than in proportion; four times a reference of 5,000 took seconds."""
    long = ", ".join(map(str, range(2100)))
    assert len(long) > 10_000
    assert score(f"<answer>{long}</answer>", long)["verdict"] == "correct"
    assert score(f"<answer>{long}</answer>", ", ".join(map(str, reversed(range(2100)))))["verdict"] == "wrong"


def test_the_answer_of_a_block_or_a_box():
    assert score(r"<think>r</think>So <answer>\boxed{5}</answer>")["verdict"] == "correct"
    assert score(r"<think>r</think>\boxed{6}, no: \boxed{5}")["verdict"] == "correct"
    assert score(r"<think>r</think>\boxed{5}, no: \boxed{6}")["verdict"] == "wrong"
    assert score(r"<think>r</think>\boxed{5} <answer>6</answer>")["verdict"] == "wrong"
    assert score(r"<answer>5</answer><answer>6</answer>")["verdict"] == "wrong"
    assert score(r"<think>r</think>\boxed{5")["verdict"] == "no_answer"
    assert score(r"<think>r</think><answer>\boxed{5} or \boxed{6}</answer>")["verdict"] == "wrong"


def test_unevaluated_arithmetic():
    assert score(r"<answer>17 \cdot 23</answer>", "391")["verdict"] == "wrong"
    assert score(r"<answer>17 \cdot 23</answer>", "391", finished=False)["verdict"] == "correct"
    assert score(r"<answer>17 \cdot 23</answer>", "392", finished=False)["verdict"] == "wrong"


@pytest.mark.parametrize(
    "truth", [None, float("nan"), True, ["5"], {"answer": "5"}, b"5", " ", "", "$$", r"\frac{1}{2", "{5"]
)
def test_a_reference_that_cannot_be_read_is_an_error(truth):
    with pytest.raises(UnreadableReference):
        score("<answer>7</answer>", truth)


def test_a_numeric_reference_and_a_blank_one():
    assert score("<answer>5</answer>", truth=5)["acc"] == 1.0
    with pytest.raises(ValueError, match="'test' problem is blank"):
        score("<answer>5</answer>", truth=" ")


def test_the_rollout_reports_that_the_template_opened_the_reasoning() -> None:
    cut_off = r"Perhaps \boxed{4}, but wait"
    graded = asyncio.run(compute_score("toy", cut_off, "4"))
    assert graded["verdict"] == "correct"  # without that information, the completion has no reasoning
    graded = asyncio.run(compute_score("toy", cut_off, "4", extra_info={"reasoning_opened": True}))
    assert graded["verdict"] == "no_answer"


def test_a_sentence_around_one_value() -> None:
    assert score("<think>r</think><answer>Anna has 40 apples.</answer>", "40")["acc"] == 1.0
    assert score(r"<answer>The diameter of \(ABC\) is \( \sqrt{10} \).</answer>", r"\sqrt{10}")["acc"] == 1.0
    assert score("<answer>Anna has 40 apples or 41.</answer>", "40")["acc"] == 0.0
    assert score(r"<answer>\[ f(\sqrt{29}) = 5 + 5 = 10 \]</answer>", "10")["acc"] == 1.0
