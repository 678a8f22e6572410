"""Who plays, told from a path; and the text that streams."""

import json
import shutil
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from agon_verl.export.__main__ import main as export
from agon_verl.game.tags import TagKeeper
from agon_verl.game.transcript import REASONING_TAGS
from agon_verl.inference.chat import StreamDecoder
from agon_verl.inference.moa import NO_ATTEMPT, refine_messages
from agon_verl.inference.players import InferenceError, Players, Sampling, default_mode, find_players, read_mode
from agon_verl.pair.base import hash_of_base
from tests.stack.test_export import base, make_checkpoint  # noqa: F401  base is a fixture
from tests.tiny import make_model

GENERATION = {
    "temperature": 1.0,
    "top_p": 0.9,
    "top_k": 20,
    "do_sample": True,
    "n": 4,
    "max_prompt_length": 99,
    "max_response_length": 77,
    "apply_chat_template_kwargs": {"enable_thinking": True},
    "custom_chat_template": None,
}


def test_a_run_a_checkpoint_and_an_export_are_the_same_players(tmp_path: Path, base: Path) -> None:  # noqa: F811
    checkpoint = make_checkpoint(tmp_path / "run", base, generation=GENERATION)
    assert export([str(checkpoint), str(tmp_path / "out")]) == 0
    run, step, out = (find_players(str(path)) for path in (tmp_path / "run", checkpoint, tmp_path / "out"))
    for found in (run, step, out):
        assert (found.base, found.base_hash, found.checked) == (str(base), hash_of_base(base), True)
        assert found.sampling == Sampling(temperature=1.0, top_p=0.9, top_k=20, max_tokens=77)
        assert (found.max_prompt, found.chat) == (99, {"enable_thinking": True})
        assert (found.tags, found.domain, found.rank) == (("<r>", "</r>"), "math", 4)
        assert found.names == ("A", "B", "base") and default_mode(found) == found.direction == "B_to_A"
        assert found.verifier["path"] == "pkg://reward_fns.math_answer" and found.timeout == 90
    assert run.adapters == step.adapters == {a: checkpoint / "actor" / a for a in "AB"}
    assert out.adapters == {a: tmp_path / "out" / a for a in "AB"}


def test_a_base_has_the_papers_settings(base: Path) -> None:  # noqa: F811
    (base / "config.json").touch()
    found = find_players(str(base), domain="code", max_prompt=None)
    assert found == Players(str(base), str(base), hash_of_base(base), checked=True, domain="code")
    assert found.sampling == Sampling(0.6, 0.95, -1, 15360) and found.tags == REASONING_TAGS and found.timeout == 600
    assert default_mode(found) == "base"


def test_a_hubs_model_that_is_not_here_yet_is_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert find_players("nobody/nothing") == Players("nobody/nothing", "nobody/nothing")


def test_what_cannot_play_is_told_in_a_sentence(tmp_path: Path, base: Path) -> None:  # noqa: F811
    with pytest.raises(InferenceError, match="is not a folder: give a run, a checkpoint, an export, or a base"):
        find_players(str(tmp_path / "nowhere"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InferenceError, match="has no checkpoint of a pair"):
        find_players(str(tmp_path / "empty"))
    texts = {"challenge": "{problem} beat {attempt}", "no_summary": "nothing", "withheld": "[?]"}
    other = make_checkpoint(tmp_path / "other", base, prompts=texts)
    with pytest.raises(InferenceError, match="was trained with another text of prompts.challenge"):
        find_players(str(other))
    greedy = make_checkpoint(tmp_path / "greedy", base, generation={**GENERATION, "do_sample": False})
    assert find_players(str(greedy)).sampling.temperature == 0
    shutil.rmtree(greedy / "actor" / "B")
    alone = find_players(str(greedy))
    assert alone.names == ("A", "base") and default_mode(alone) == "A"
    with pytest.raises(InferenceError, match=r"mode 'A_to_B' is unknown: .* \(A, base\)"):
        read_mode("A_to_B", alone.names)
    moved = tmp_path / "moved"
    base.rename(moved)
    with pytest.raises(InferenceError, match="has no readable weights: give the folder of the base with --base"):
        find_players(str(greedy))
    assert find_players(str(greedy), base=str(moved)).base == str(moved)
    (greedy / "pair.json").write_text(json.dumps({"format": 1}))
    with pytest.raises(InferenceError, match="its pair.json has no step, base"):
        find_players(str(greedy))
    (greedy / "pair.json").write_text(json.dumps({"cascade": {}}))
    with pytest.raises(
        InferenceError,
        match="pair.json has no base, prompts, reasoning_tags, generation, domain: export the pair again",
    ):
        find_players(str(greedy))


def test_with_one_player_b_was_never_trained(tmp_path: Path, base: Path) -> None:  # noqa: F811
    checkpoint = make_checkpoint(tmp_path / "run", base, game={"players": "one", "reads": "nothing"})
    assert export([str(checkpoint), str(tmp_path / "out")]) == 0
    for path in (checkpoint, tmp_path / "out"):
        assert find_players(str(path)).names == ("A", "base")


def test_a_metric_that_json_cannot_hold_does_not_choose(tmp_path: Path, base: Path) -> None:  # noqa: F811
    metrics = {f"val-core/x/{d}/acc/mean@1": float("nan") for d in ("A_to_B", "B_to_A")}
    found = find_players(str(make_checkpoint(tmp_path / "run", base, metrics=metrics)))
    assert found.direction is None
    with pytest.raises(InferenceError, match="does not record who drafts: choose the mode, A_to_B or B_to_A"):
        default_mode(found)


def test_a_partner_sees_both_attempts() -> None:
    problem = [{"role": "system", "content": "s"}, {"role": "user", "content": "What is {own}?"}]
    first, last = refine_messages(problem, "I say {other}", " ")
    assert first == problem[0] and last["role"] == "user"
    assert (
        last["content"].startswith("What is {own}?\n")
        and "<own_attempt>\nI say {other}\n</own_attempt>" in last["content"]
    )
    assert f"<other_attempt>\n{NO_ATTEMPT}\n</other_attempt>" in last["content"]


def test_streamed_pieces_make_the_text_and_no_half_characters(tmp_path: Path) -> None:
    tokenizer = PreTrainedTokenizerFast.from_pretrained(make_model(tmp_path))
    reader = TagKeeper(tokenizer, REASONING_TAGS)
    text = "<think>½ ≤ 1, 你好 🙂</think> What is 2+3? <answer>5</answer>"
    ids = tokenizer.encode(text + "<|end|>", add_special_tokens=False)
    pieces = StreamDecoder(reader)
    found = [pieces.new_text(ids[: i + 1], last=i + 1 == len(ids)) for i in range(len(ids))]
    assert "".join(found) == reader.decode(ids) == text
    assert not any("\ufffd" in piece for piece in found) and sum(map(bool, found)) > 10
    cut = StreamDecoder(reader)
    broken = tokenizer.encode("🙂", add_special_tokens=False)[:1]
    assert cut.new_text(broken, last=False) == "" and cut.new_text(broken, last=True) == reader.decode(broken) != ""
