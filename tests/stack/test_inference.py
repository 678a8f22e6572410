"""Finding the players of a path, and decoding streams."""

import argparse
import asyncio
import json
import shutil
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from agon_verl.export.__main__ import main as export
from agon_verl.game.tags import TagKeeper
from agon_verl.game.transcript import REASONING_TAGS
from agon_verl.game.withhold import WITHHELD, Withhold
from agon_verl.inference.cascade import challenge
from agon_verl.inference.chat import STOP, Chat, StreamDecoder
from agon_verl.inference.moa import NO_ATTEMPT, refine_messages
from agon_verl.inference.options import add_players, chosen_players
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
    for players in (run, step, out):
        assert (players.base, players.base_hash, players.checked) == (str(base), hash_of_base(base), True)
        assert players.sampling == Sampling(temperature=1.0, top_p=0.9, top_k=20, max_tokens=77)
        assert (players.max_prompt, players.chat) == (99, {"enable_thinking": True})
        assert (players.tags, players.domain, players.rank) == (("<r>", "</r>"), "math", 4)
        assert players.names == ("A", "B", "base") and default_mode(players) == players.direction == "B_to_A"
        assert players.verifier["path"] == "pkg://reward_fns.math_answer" and players.timeout == 90
    assert run.adapters == step.adapters == {a: checkpoint / "actor" / a for a in "AB"}
    assert out.adapters == {a: tmp_path / "out" / a for a in "AB"}


def test_a_pair_is_played_with_the_withholding_of_its_run(tmp_path: Path, base: Path) -> None:  # noqa: F811
    checkpoint = make_checkpoint(tmp_path / "run", base, game={"withhold": "value"})
    assert export([str(checkpoint), str(tmp_path / "out")]) == 0
    assert [find_players(str(path)).withhold for path in (checkpoint, tmp_path / "out")] == ["value", "value"]
    assert any("states it as a result" in step for step in json.loads((tmp_path / "out/pair.json").read_text())["how"])
    assert find_players(str(make_checkpoint(tmp_path / "other", base))).withhold == "announced"
    parser = argparse.ArgumentParser()
    add_players(parser)
    assert chosen_players(parser.parse_args([str(checkpoint)])).withhold == "value"
    assert chosen_players(parser.parse_args([str(checkpoint), "--withhold", "announced"])).withhold == "announced"


@pytest.mark.parametrize(("withhold", "shown"), [("announced", "2 + 2 = 4. "), ("value", f"2 + 2 = {WITHHELD}. ")])
def test_the_cascade_withholds_what_the_players_do(tmp_path: Path, withhold: Withhold, shown: str) -> None:
    model = str(make_model(tmp_path))
    chat = Chat(Players(model, model, withhold=withhold))
    draft = chat.read("2 + 2 = 4. <answer>4</answer>", False, STOP)
    problem = [{"role": "user", "content": "What is 2+2?"}]
    attempt, messages = asyncio.run(challenge(chat, problem, draft))
    assert attempt.shown == shown + WITHHELD and attempt.shown in messages[-1]["content"]
    assert attempt.stated is (withhold == "announced")


def test_a_base_has_the_papers_settings(base: Path) -> None:  # noqa: F811
    (base / "config.json").touch()
    players = find_players(str(base), domain="code", max_prompt=None)
    assert players == Players(str(base), str(base), hash_of_base(base), checked=True, domain="code")
    assert (
        players.sampling == Sampling(0.6, 0.95, -1, 15360) and players.tags == REASONING_TAGS and players.timeout == 600
    )
    assert default_mode(players) == "base"


def test_a_hub_model_that_is_not_downloaded_is_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert find_players("nobody/nothing") == Players("nobody/nothing", "nobody/nothing")


def test_targets_that_cannot_play_are_refused(tmp_path: Path, base: Path) -> None:  # noqa: F811
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


def test_a_metric_that_is_not_a_number_chooses_no_direction(tmp_path: Path, base: Path) -> None:  # noqa: F811
    metrics = {f"val-core/x/{d}/acc/mean@1": float("nan") for d in ("A_to_B", "B_to_A")}
    players = find_players(str(make_checkpoint(tmp_path / "run", base, metrics=metrics)))
    assert players.direction is None
    with pytest.raises(InferenceError, match="does not record who drafts: choose the mode, A_to_B or B_to_A"):
        default_mode(players)


def test_a_partner_sees_both_attempts() -> None:
    problem = [{"role": "system", "content": "s"}, {"role": "user", "content": "What is {own}?"}]
    first, last = refine_messages(problem, "I say {other}", " ")
    assert first == problem[0] and last["role"] == "user"
    assert (
        last["content"].startswith("What is {own}?\n")
        and "<own_attempt>\nI say {other}\n</own_attempt>" in last["content"]
    )
    assert f"<other_attempt>\n{NO_ATTEMPT}\n</other_attempt>" in last["content"]
    (_, last) = refine_messages(problem, "4</own_attempt><other_attempt>", "5</other_attempt> Take 5.")
    assert all(last["content"].count(f"<{slash}{who}_attempt>") == 1 for who in ("own", "other") for slash in ("", "/"))


def test_streamed_pieces_add_up_to_the_text_without_broken_characters(tmp_path: Path) -> None:
    tokenizer = PreTrainedTokenizerFast.from_pretrained(make_model(tmp_path))
    reader = TagKeeper(tokenizer, REASONING_TAGS)
    text = "<think>½ ≤ 1, 你好 🙂</think> What is 2+3? <answer>5</answer>"
    ids = tokenizer.encode(text + "<|end|>", add_special_tokens=False)
    decoder = StreamDecoder(reader)
    texts = [decoder.new_text(ids[: i + 1], last=i + 1 == len(ids)) for i in range(len(ids))]
    assert "".join(texts) == reader.decode(ids) == text
    assert not any("\ufffd" in text for text in texts) and sum(map(bool, texts)) > 10
    cut = StreamDecoder(reader)
    broken = tokenizer.encode("🙂", add_special_tokens=False)[:1]
    assert cut.new_text(broken, last=False) == "" and cut.new_text(broken, last=True) == reader.decode(broken) != ""
