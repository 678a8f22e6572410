"""The dot products of gradients, and what is computed from them, against the gradients themselves."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from agon_verl.game.prompts import challenge_messages
from agon_verl.pair.base import Base
from agon_verl.pair.direction import Cascade
from agon_verl.pair.trained import TrainedPair
from benchmarks import reward_directions as directions
from tests.tiny import make_model


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("directions")
    base = make_model(folder / "model")
    torch.manual_seed(0)
    lora = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    get_peft_model(AutoModelForCausalLM.from_pretrained(base), lora).save_pretrained(folder / "actor" / "A")
    (folder / "pair.json").write_text(json.dumps({"base": str(base)}))
    return folder


def pair(uid: str, problem: str, challenge: str) -> dict[str, Any]:
    return {
        "uid": uid,
        "challenger": "A",
        "problem": problem,
        "attempt": {"shown": "I add them."},
        "challenge": challenge,
    }


def by_hand(text: str, checkpoint: Path) -> torch.Tensor:
    """The gradient of the mean log-probability of an answer to "What is 1+2?"."""
    tokenizer = AutoTokenizer.from_pretrained(checkpoint / "model")
    base = AutoModelForCausalLM.from_pretrained(checkpoint / "model")
    model = PeftModel.from_pretrained(base, str(checkpoint / "actor" / "A"), is_trainable=True)
    messages = challenge_messages([{"role": "user", "content": "What is 1+2?"}], "I add them.")
    prompt = tokenizer.encode(tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))
    answer = tokenizer.encode(text)
    logits = model(input_ids=torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1]
    logits.log_softmax(-1)[range(len(answer)), answer].mean().backward()
    return torch.cat([weight.grad.flatten() for weight in model.parameters() if weight.grad is not None])


def test_dot_products_are_those_of_the_gradients(checkpoint: Path) -> None:
    texts = ("It is 3.", "Nobody knows.", "It is 3.")
    dots = directions.dot_products([pair("p", "What is 1+2?", text) for text in texts], checkpoint)
    rows = torch.stack([by_hand(text, checkpoint) for text in texts]).double()
    assert 0 < dots[0, 1].abs() < dots[0, 0]
    torch.testing.assert_close(dots, rows @ rows.T, rtol=1e-4, atol=1e-9)


def test_the_challenger_of_a_checkpoint_and_of_an_export(checkpoint: Path, tmp_path: Path) -> None:
    pairs = [pair("p", "What is 1+2?", "It is 3.")]
    base = str(checkpoint / "model")
    assert directions.challenger_of(pairs, checkpoint) == (base, checkpoint / "actor" / "A")
    cascade = Cascade("A_to_B", "", None)
    made = TrainedPair(
        base=Base(base, "", checked=False),
        cascade=cascade,
        prompts={},
        reasoning_tags=("<t>", "</t>"),
        generation={},
        domain="math",
    )
    made.write(tmp_path)
    assert directions.challenger_of(pairs, tmp_path) == (base, tmp_path / "A")
    with pytest.raises(SystemExit, match="A and B challenge in these pairs: choose --steps"):
        directions.challenger_of([*pairs, {**pairs[0], "challenger": "B"}], checkpoint)


def test_sums_over_groups_follow_from_the_dot_products() -> None:
    torch.manual_seed(0)
    rows, weight, uids = torch.randn(6, 40), torch.randn(6).double(), "aabbcc"
    pairs = [{"uid": uid} for uid in uids]
    groups = torch.stack([(rows * weight.unsqueeze(1))[k : k + 2].sum(0) for k in (0, 2, 4)]).double()
    updates = {"x": directions.by_group(pairs, weight), "none": directions.by_group(pairs, torch.zeros(6))}
    cosines = directions.Cosines(updates, directions.products(rows))
    one, two = torch.tensor([1.0, 1, 0]).double(), torch.tensor([0, 0, 1.0]).double()
    expected = torch.cosine_similarity(one @ groups, two @ groups, dim=0)
    assert cosines("x", one, "x", two) == pytest.approx(float(expected), abs=1e-6)
    assert cosines.live("x") == 3 and cosines.live("none") == 0


def test_the_words_of_the_template_are_no_part_of_the_question(checkpoint: Path) -> None:
    plain = AutoTokenizer.from_pretrained(checkpoint / "model")
    assert directions.question("What is 1+2?", plain) == "What is 1+2?"
    chatml = SimpleNamespace(
        apply_chat_template=lambda messages, **_: f"system\nHelp.\nuser\n{messages[0]['content']}\nassistant\n",
        encode=lambda text: text,
        decode=lambda ids, **_: ids,
    )
    assert directions.question("system\nHelp.\nuser\nWhat is\n1+2?\nassistant\n", chatml) == "What is\n1+2?"
    with pytest.raises(SystemExit, match="cannot be told"):
        directions.question("user\nWhat is 1+2?\nassistant\n", chatml)


def test_by_correctness_groups_with_right_or_wrong_challenges_only_are_left_out() -> None:
    def judged(uid: str, correct: float) -> dict[str, Any]:
        return {**pair(uid, "", ""), "pair": {"challenge": {"correct": correct}}}

    mixed = [judged("mixed", 1.0), judged("mixed", 0.0)]
    pairs = [judged("right", 1.0), mixed[0], judged("wrong", 0.0), judged("right", 1.0), mixed[1], judged("wrong", 0.0)]
    assert directions.that_train(pairs, "correctness") == mixed
    assert directions.that_train(pairs, "reward") == pairs
