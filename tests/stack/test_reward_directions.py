"""The dot products of gradients, and what is computed from them, against the gradients themselves."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

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


def test_the_product_of_two_equal_challenges_is_the_square_of_one(checkpoint: Path) -> None:
    pairs = [pair("p", "What is 1+2?", text) for text in ("It is 3.", "It is 3.", "Nobody knows.")]
    dots = directions.dot_products(pairs, checkpoint)
    assert dots[0, 0] > 0 and torch.isclose(dots[0, 0], dots[0, 1]) and dots[0, 2] < dots[0, 0]
    torch.testing.assert_close(dots, dots.T)


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
