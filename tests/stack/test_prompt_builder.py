"""The tokens of a challenge's prompt, counted before it is sent: with verl's prompt builder or without (0.9.0)."""

import asyncio
from typing import Any

import pytest
from verl.experimental.agent_loop import agent_loop
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, DictConfigWrap
from verl.utils.dataset.rl_dataset import RLHFDataset

from agon_verl.game.attempt import Attempt
from agon_verl.game.transcript import ENDED, OPENED
from agon_verl.rollout.loop import AgonAgentLoop, PairOutput
from examples.toy.tokenizer import train_tokenizer
from tests.recipes import composed

PROBLEM = [{"role": "user", "content": "What is 2+2?"}]
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if long %}{{ 'and again ' * 40 }}{% endif %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def attempt(**of_the_template: Any) -> Attempt:
    """What a challenger is shown of a long draft."""
    tokenizer = train_tokenizer(["user", "assistant", "What is 2+2?"])
    tokenizer.chat_template = TEMPLATE
    config = composed("+recipe=agon", "data.max_prompt_length=800")
    config.data.apply_chat_template_kwargs = of_the_template
    ids = tokenizer.encode("Two and two are four. " * 100, add_special_tokens=False)
    draft = PairOutput(
        prompt_ids=[1],
        response_ids=ids,
        response_mask=[1] * len(ids),
        metrics=AgentLoopMetrics(),
        extra_fields={OPENED: False, ENDED: True},
    )

    async def run() -> Attempt:
        data = DictConfigWrap(config.data)
        loop = AgonAgentLoop(DictConfigWrap(config), None, tokenizer, None, RLHFDataset, data, hf_model_type="qwen2")
        return loop._attempt(PROBLEM, draft)

    return asyncio.run(run())


def test_a_verl_without_a_prompt_builder_cuts_a_summary_at_the_same_place(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, longer = attempt(), attempt(long=True)
    assert plain.cut and longer.cut and longer.tokens < plain.tokens
    monkeypatch.setattr(agent_loop, "create_continuous_token_builder", lambda *_, **__: None)
    assert attempt() == plain and attempt(long=True) == longer
