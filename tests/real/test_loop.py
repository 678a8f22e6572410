"""What the challenger is shown of a draft, with a real tokenizer and verl's own prompt builder."""

from pathlib import Path

import pytest
from transformers import AutoTokenizer
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics
from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

from agon_verl.config import AgonConfig
from agon_verl.game.attempt import NO_ATTEMPT
from agon_verl.game.control_tokens import ControlTokens
from agon_verl.game.prompts import challenge_messages
from agon_verl.game.tags import TagKeeper
from agon_verl.game.transcript import ENDED, OPENED
from agon_verl.rollout.loop import AgonAgentLoop, PairOutput

PROBLEM = [{"role": "user", "content": "What is 2+2?"}]


@pytest.fixture
def loop(tiny: Path) -> AgonAgentLoop:
    loop = object.__new__(AgonAgentLoop)  # its constructor wants a running server
    loop.tokenizer = AutoTokenizer.from_pretrained(tiny / "model")
    loop.continuous_token_builder = create_continuous_token_builder(
        loop.tokenizer, hf_model_type="llama", chat_template_kwargs={}, mm_processor_kwargs={}, processor=None
    )
    loop.game = AgonConfig()
    loop.prompt_length = 256
    loop._reader = TagKeeper(loop.tokenizer, loop.game.reasoning_tags)
    loop._control = ControlTokens(loop.tokenizer, loop.game.reasoning_tags)
    return loop


def draft(loop: AgonAgentLoop, completion: str, opened: bool = False, ended: bool = True) -> PairOutput:
    ids = loop.tokenizer.encode(completion, add_special_tokens=False)
    return PairOutput(
        prompt_ids=[1],
        response_ids=ids,
        response_mask=[1] * len(ids),
        metrics=AgentLoopMetrics(),
        extra_fields={OPENED: opened, ENDED: ended},
    )


def test_the_summary_is_shown_without_reasoning_and_answer(loop: AgonAgentLoop) -> None:
    attempt = loop._attempt(PROBLEM, draft(loop, "<think>secret</think>Two and two. <answer>4</answer>"))
    assert attempt.shown == "Two and two. [answer withheld]"
    assert (attempt.leaked, attempt.cut) == (False, False)
    assert attempt.tokens == len(loop.tokenizer.encode(attempt.shown, add_special_tokens=False))


def test_an_answer_left_in_the_working_is_a_leak(loop: AgonAgentLoop) -> None:
    attempt = loop._attempt(PROBLEM, draft(loop, "<think>x</think>2 + 2 = 4. <answer>4</answer>"))
    assert attempt.leaked and attempt.stated


def test_the_value_is_withheld_where_the_run_says_so(loop: AgonAgentLoop) -> None:
    loop.game = AgonConfig(withhold="value")
    output = draft(loop, "<think>x</think>2 + 2 = 4. <answer>4</answer>")
    attempt = loop._attempt(PROBLEM, output)
    assert attempt.shown == "2 + 2 = [answer withheld]. [answer withheld]"
    assert not attempt.leaked and not attempt.stated
    assert loop._copied(PROBLEM, attempt, output) == 1.0  # a copy is one with either setting


def test_a_copy_of_what_the_problem_states_is_a_copy(loop: AgonAgentLoop) -> None:
    loop.game = AgonConfig(withhold="value")
    problem = [{"role": "user", "content": "Let a_1 = 1. What is the least a_n?"}]
    output = draft(loop, "<think>x</think>We know a_1 = 1. It never falls. <answer>1</answer>")
    attempt = loop._attempt(problem, output)
    assert attempt.shown is not None and "a_1 = 1" in attempt.shown
    assert loop._copied(problem, attempt, output) == 1.0


@pytest.mark.parametrize("completion", ["", "   ", "<think>cut off in the middle", "<think>only reasoning</think>"])
def test_a_draft_without_a_summary_says_so_to_the_challenger(loop: AgonAgentLoop, completion: str) -> None:
    attempt = loop._attempt(PROBLEM, draft(loop, completion))
    assert (attempt.shown, attempt.tokens, attempt.leaked) == (None, 0, False)
    assert "wrote no solution" in challenge_messages(PROBLEM, attempt.shown)[-1]["content"]


@pytest.mark.parametrize(
    ("completion", "reasoned"),
    [("<think>x</think>Two. <answer>4</answer>", True), ("Two and two.", False), ("<think> </think>Two.", False)],
)
def test_a_draft_that_is_read_as_a_whole_has_no_private_reasoning(
    loop: AgonAgentLoop, completion: str, reasoned: bool
) -> None:
    assert loop._attempt(PROBLEM, draft(loop, completion)).reasoned == reasoned


def test_reasoning_opened_by_the_template_is_never_shown(loop: AgonAgentLoop) -> None:
    text = "still thinking, no closing tag"
    assert loop._attempt(PROBLEM, draft(loop, text, opened=True)).shown is None
    assert loop._attempt(PROBLEM, draft(loop, text, opened=False)).shown == text  # a model that writes no reasoning


def test_an_answer_inside_reasoning_that_never_closes_counts_but_is_never_shown(loop: AgonAgentLoop) -> None:
    text = "<think>Two and two. <answer>4</answer>"
    ended, cut_off = draft(loop, text), draft(loop, text, ended=False)
    assert (loop._read(ended).answer, loop._read(cut_off).answer) == ("4", None)
    assert loop._attempt(PROBLEM, ended) == loop._attempt(PROBLEM, cut_off) == NO_ATTEMPT


def test_a_completion_at_the_token_limit_was_cut_off_unless_it_ends_with_the_end_of_turn(loop: AgonAgentLoop) -> None:
    loop.response_length = 3
    end = loop.tokenizer.eos_token_id
    other = next(number for number in range(10) if number != end)
    assert loop._ended([other, other]) and loop._ended([other, end]) and loop._ended([other, other, end])
    assert not loop._ended([other, other, other])


def test_a_template_that_opens_the_reasoning_is_seen_in_the_prompt(loop: AgonAgentLoop) -> None:
    encode = loop.tokenizer.encode
    assert loop._reader.opened_by(encode("<|assistant|><think>\n", add_special_tokens=False))
    assert not loop._reader.opened_by(encode("<|assistant|>", add_special_tokens=False))
    assert not loop._reader.opened_by(encode("<think></think>\n", add_special_tokens=False))


@pytest.mark.parametrize("limit", [100, 128, 200])
def test_a_long_summary_is_cut_to_fit_the_prompt_and_counted(loop: AgonAgentLoop, limit: int) -> None:
    loop.prompt_length = limit
    sentences = " ".join(f"Step {number} adds {number}." for number in range(200))
    attempt = loop._attempt(PROBLEM, draft(loop, f"<think>x</think>{sentences}"))
    assert attempt.cut and attempt.shown is not None
    assert sentences.startswith(attempt.shown) and attempt.shown.endswith(".")
    tokens = loop.continuous_token_builder.build_initial_tokens(challenge_messages(PROBLEM, attempt.shown))
    assert len(tokens) <= limit


def test_a_short_summary_is_left_whole(loop: AgonAgentLoop) -> None:
    assert loop._attempt(PROBLEM, draft(loop, "Short.")).cut is False


def test_the_final_program_is_withheld_in_code(loop: AgonAgentLoop) -> None:
    loop.game = AgonConfig(domain="code")
    attempt = loop._attempt(PROBLEM, draft(loop, "Add them.\n```python\nprint(2 + 2)\n```"))
    assert attempt.shown is not None and "print" not in attempt.shown and "Add them." in attempt.shown
    assert not attempt.leaked


def test_each_side_of_a_pair_keeps_its_own_reward(loop: AgonAgentLoop) -> None:
    """verl copies the last output's reward onto the first; the row that is stored must not have it."""
    output = draft(loop, "abc")
    output.own_score, output.own_info = 2.5, {"acc": 1.0}
    output.extra_fields["adapter"] = "A"
    output.reward_score, output.extra_fields["reward_extra_info"] = 0.0, {"acc": 0.0}
    row = output.as_dict()
    assert row["rm_scores"].sum().item() == 2.5
    assert row["extra_fields"]["reward_extra_info"] == {"acc": 1.0}
    assert row["adapter"] == "A"
