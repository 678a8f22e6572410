import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from agon_verl.game.transcript import Transcript, final_program, read

TAGS = ("<think>", "</think>")
texts = st.text(max_size=40).filter(lambda text: not any(tag in text for tag in TAGS))


def test_a_well_formed_completion():
    assert read("<think>2 and 3 make 5</think>\nAdd them.\n<answer>5</answer>\n") == Transcript(
        reasoning="2 and 3 make 5", summary="Add them.\n<answer>5</answer>", answer="5", well_formed=True
    )


# Where the reasoning ends.


@pytest.mark.parametrize(
    ("completion", "opened", "reasoning", "summary"),
    [
        ("<think>r</think>s", False, "r", "s"),
        ("<think>r</think>s", True, "r", "s"),
        ("r</think>s", True, "r", "s"),
        ("r</think>s", False, "r", "s"),  # opened in the prompt, which the reader does not see
        ("s", False, None, "s"),  # a model that writes no reasoning
        ("s", True, "s", None),  # cut off inside its reasoning
        ("<think>r", False, "r", None),
        ("<think>r", True, "r", None),
        ("s <think>r", False, "s <think>r", None),
        ("<think>r</think>", False, "r", None),
        ("<think>r</think> \n", False, "r", None),
        ("<think></think>s", False, "", "s"),
        ("<think>r</think>q</think>s", False, "r</think>q", "s"),  # the last closing tag counts
        ("<think>r</think>q<think>t</think>s", False, "r</think>q<think>t", "s"),
        ("<think>r</think>s<think>t", False, "r", "s"),  # opened again and cut off
        ("<think>r</think><think>t", False, "r", None),
        ("p<think>r</think>s", False, "p<think>r", "s"),
    ],
)
def test_where_the_reasoning_ends(completion, opened, reasoning, summary):
    found = read(completion, opened=opened)
    assert (found.reasoning, found.summary) == (reasoning, summary)


@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("completion", ["", "  \n"])
def test_a_blank_completion_is_nothing(completion, opened):
    assert read(completion, opened=opened) == Transcript(None, None, None, False)


def test_other_tags():
    found = read("[R]r[/R]<think>s", tags=("[R]", "[/R]"))
    assert (found.reasoning, found.summary) == ("r", "<think>s")


secrets = st.lists(
    st.sampled_from(["SECRET", "<think>", "</think>", "<answer>SECRET</answer>", r"\boxed{SECRET}", "\n", " x "]),
    max_size=8,
).map("".join)


@given(reasoning=secrets, summary=texts, opened=st.booleans(), ended=st.sampled_from([True, False, None]))
def test_the_summary_never_contains_reasoning(reasoning, summary, opened, ended):
    assume("SECRET" not in summary)
    start = "" if opened else "<think>"
    found = read(f"{start}{reasoning}</think>{summary}", opened=opened, ended=ended)
    assert found.summary == (summary.strip() or None)
    if ended is False:
        assert "SECRET" not in (found.answer or "")


@given(reasoning=secrets, opened=st.booleans(), ended=st.sampled_from([True, False, None]))
def test_reasoning_that_never_closes_shows_nothing(reasoning, opened, ended):
    reasoning = reasoning.replace("</think>", "")
    found = read(reasoning if opened else f"<think>{reasoning}", opened=opened, ended=ended)
    assert found.summary is None and not found.well_formed
    if ended is False:
        assert found.answer is None


# The final answer.


@pytest.mark.parametrize(
    ("summary", "answer"),
    [
        ("<answer> 5 </answer>", "5"),
        ("<answer>4</answer> no: <answer>5</answer>", "5"),
        (r"\boxed{4} <answer>5</answer>", "5"),
        (r"<answer>5</answer> \boxed{4}", "5"),
        (r"<answer>$x = \boxed{\frac{1}{2}}$</answer>", r"\frac{1}{2}"),
        (r"<answer>\boxed{4} or \boxed{5}</answer>", "5"),
        (r"so \boxed{4}, I mean \boxed{5}.", "5"),
        (r"\fbox{5}", "5"),
        (r"\boxed{\boxed{5}}", "5"),
        (r"\boxed{5} and \boxed{6", "5"),  # the last one that closes
        ("<answer>5", None),  # cut off
        (r"\boxed{5} <answer>5", None),
        ("<answer>4</answer> <answer>5", None),
        ("<answer> </answer>", None),
        (r"\boxed{4} <answer></answer>", None),
        (r"\boxed{}", None),
        ("5", None),
        ("The answer is 5.", None),
    ],
)
def test_the_final_answer(summary, answer):
    for ended in (True, False, None):
        assert read(f"<think>r</think>{summary}", ended=ended).answer == answer
        assert read(summary, ended=ended).answer == answer


BLOCKS = ["<answer>5</answer>", r"<answer>\boxed{5}</answer>", r"\boxed{6} <answer>5</answer> or so"]
INSIDE_THE_REASONING = [
    ("<think>{}", False),
    ("{}", True),
    ("<think>{}</think>", False),
    ("{}</think>", True),
    ("<think>{}</think>So it is.", False),
    ("<think>r</think>Hmm.<think>{}", False),
    ("<think>r</think>{}</think>So it is.", False),
]


@pytest.mark.parametrize("inside", [*BLOCKS, r"\boxed{5}", r"\boxed{6}, no, \boxed{5}"])
@pytest.mark.parametrize(("completion", "opened"), INSIDE_THE_REASONING)
def test_an_answer_inside_the_reasoning_counts_if_the_model_ended_there(inside, completion, opened):
    text = completion.replace("{}", inside)
    assert read(text, opened=opened, ended=False).answer is None  # cut off
    assert read(text, opened=opened, ended=None).answer == ("5" if inside in BLOCKS else None)
    found = read(text, opened=opened, ended=True)
    assert found.answer == "5" and not found.well_formed
    assert "5" not in (found.summary or "")


@pytest.mark.parametrize(
    ("completion", "answer"),
    [
        # What follows the reasoning comes first, in whatever form.
        ("<think><answer>6</answer></think><answer>5</answer>", "5"),
        (r"<think>End with <answer> and </answer>.</think>\boxed{5}", "5"),
        ("<think>r</think><answer>6</answer><think>No.<answer>5</answer>", "5"),
        # A block that never closes: its box, or nothing. It always voids what precedes it.
        (r"<answer>It is \boxed{5}.", "5"),
        (r"\boxed{6} <answer>It is \boxed{5}.", "5"),
        (r"<answer>6</answer> <answer>It is \boxed{5}.", "5"),
        (r"\boxed{5} <answer>6", None),
        ("<answer>5</answer> <answer>6", None),
        ("<think><answer>5</answer></think><answer>6", None),
        ("<think><answer>5</answer></think><answer> </answer>", None),
        (r"<think>\boxed{5}</think><answer></answer>", None),
        # Opened at the end, with nothing in it.
        (r"\boxed{5} <answer>", "5"),
        ("<answer>5</answer>\n<answer>\n", "5"),
        ("<answer>", None),
    ],
)
def test_the_answer_of_a_completion_that_ended(completion, answer):
    assert read(completion, ended=True).answer == answer


def test_a_block_that_never_closes_has_no_answer_unless_the_model_ended_there():
    for ended in (False, None):
        assert read(r"\boxed{6} <answer>It is \boxed{5}.", ended=ended).answer is None
        assert read(r"\boxed{5} <answer>", ended=ended).answer is None


# The format term phi.


@pytest.mark.parametrize(
    "completion",
    [
        "<think>r</think><answer>5</answer>",
        "\n<think>r</think>\ns\n<answer>5</answer>\n",
        "r</think>s<answer>5</answer>",
        "<think></think><answer>5</answer>",
        "<think>the <answer> tag comes last</think><answer>5</answer>",
        r"<think>r</think>\boxed{5}<answer>\boxed{5}</answer>",
    ],
)
def test_well_formed(completion):
    assert read(completion).well_formed
    assert read(completion, opened=True).well_formed


@pytest.mark.parametrize(
    ("before", "well_formed"), [("", False), (" \n", False), ("**.", False), ("Add. ", True), ("5\n", True)]
)
def test_a_summary_can_be_part_of_the_form(before, well_formed):
    completion = f"<think>r</think>{before}<answer>5</answer>"
    assert read(completion, needs_summary=True).well_formed is well_formed
    assert read(completion).well_formed


@pytest.mark.parametrize(
    "completion",
    [
        "",
        "<answer>5</answer>",  # no reasoning block
        "<think>r<answer>5</answer>",  # which never closes
        "p<think>r</think><answer>5</answer>",  # or does not start the completion
        "<think>r</think>s</think><answer>5</answer>",
        "<think>r<think>r</think><answer>5</answer>",
        "<think>r</think><think>r</think><answer>5</answer>",
        "<think>r</think><answer>5</answer><think>r",
        "<think>r</think>5",  # no answer block
        r"<think>r</think>\boxed{5}",
        "<think>r</think><answer> </answer>",
        r"<think>r</think><answer>\boxed{}</answer>",
        "<think>r</think><answer>5",
        "<think>r</think>5</answer>",
        "<think>r</think><answer>5</answer>.",  # which does not end the completion
        "<think>r</think><answer>4</answer><answer>5</answer>",
        "<think>r</think><answer><answer>5</answer></answer>",
        "<think>r</think></answer><answer>5",
    ],
)
def test_not_well_formed(completion):
    assert not read(completion).well_formed


@given(reasoning=texts, summary=texts, answer=texts)
def test_the_pieces_of_a_well_formed_completion_come_back(reasoning, summary, answer):
    assume(not any(mark in summary + answer for mark in ("<answer>", "</answer>", "\\boxed", "\\fbox")))
    assume(answer.strip())
    found = read(f"<think>{reasoning}</think>{summary}<answer>{answer}</answer>")
    assert found.well_formed
    assert (found.reasoning, found.answer) == (reasoning.strip(), answer.strip())
    assert found.summary == f"{summary}<answer>{answer}</answer>".strip()


# Programs.


@pytest.mark.parametrize(
    ("completion", "program"),
    [
        ("<think>r</think>Read, add.\n```python\nprint(5)\n```\n", "print(5)\n"),
        ("<think>r</think><answer>```python\nprint(5)\n```</answer>", "print(5)\n"),
        ("```\nfirst\n```\nthen\n```\nlast\n```", "last\n"),
        ("<think>```\nprivate\n```</think>none", None),
        ("<think>```\nprivate\n```", None),
        ("```\nfirst\n```\n```\ncut off", None),
        ("```\n\n```", None),
        ("print(5)", None),
        ("", None),
    ],
)
def test_the_final_program(completion, program):
    assert final_program(read(completion).summary) == program


def test_a_program_inside_reasoning_that_the_prompt_opened():
    assert final_program(read("```\nprivate\n```", opened=True).summary) is None
