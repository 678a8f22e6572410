"""The content of an export, the choice of a direction, and the errors, on small hand-made checkpoints."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from agon_verl.export.__main__ import main
from agon_verl.game import transcript
from agon_verl.game.prompts import CHALLENGE, NO_SUMMARY, challenge_messages
from agon_verl.game.withhold import withhold_answer
from agon_verl.inference.options import chosen_players
from agon_verl.inference.players import default_mode, find_players
from agon_verl.pair.base import hash_of_base
from agon_verl.pair.checkpoint import Manifest, committing
from agon_verl.pair.direction import choose
from agon_verl.serve.__main__ import parse as parse_serve
from tests.exported_cascade import challenge

TENSOR = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    folder = tmp_path / "base"
    folder.mkdir()
    save_file({"weight": torch.arange(12.0)}, folder / "model.safetensors")
    return folder


def make_checkpoint(run: Path, base: Path, step: int = 3, /, **changes: Any) -> Path:
    """The part of a checkpoint that an export reads: the manifest and both adapters."""
    values: dict[str, Any] = {
        "step": step,
        "base": str(base),
        "base_hash": hash_of_base(base),
        "lora": {"lora_rank": 4, "lora_alpha": 8, "target_modules": "all-linear"},
        "game": {"reward": "margin", "format_weight": 0.25, "domain": "math", "reasoning_tags": ["<r>", "</r>"]},
        "versions": {"agon-verl": "0.1.0"},
        "generation": {"temperature": 0.6},
        "verifier": {"path": "pkg://reward_fns.math_answer", "name": "compute_score", "reward_kwargs": {}},
        "metrics": {"val-core/toy/sums/A_to_B/acc/mean@1": 0.5, "val-core/toy/sums/B_to_A/acc/mean@1": 0.75},
    }
    with committing(run, step) as folder:
        for number, adapter in enumerate("AB"):
            place = folder / "actor" / adapter
            place.mkdir(parents=True)
            config = {"peft_type": "LORA", "r": 4, "base_model_name_or_path": None, "inference_mode": False}
            (place / "adapter_config.json").write_text(json.dumps(config))
            save_file({TENSOR: torch.full((4, 2), float(step + number))}, place / "adapter_model.safetensors")
        Manifest(**{**values, **changes}).write(folder)
    return run / f"global_step_{step}"


def exported(*arguments: object) -> dict[str, Any]:
    assert main([str(argument) for argument in arguments]) == 0
    return json.loads((Path(str(arguments[1])) / "pair.json").read_text())


def refusal(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The message of an export that fails. It must leave no file behind."""
    out = Path(str(arguments[1]))
    before = sorted(out.parent.rglob("*"))
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == 1
    assert sorted(out.parent.rglob("*")) == before
    output = capsys.readouterr()
    assert output.out == "" and output.err.count("\n") == 1 and output.err.startswith("agon-verl: ")
    return output.err


def test_an_export_has_two_adapters_configured_for_inference(tmp_path: Path, base: Path) -> None:
    checkpoint, out = make_checkpoint(tmp_path / "run", base), tmp_path / "deep" / "out"
    exported(checkpoint, out)
    assert sorted(path.name for path in out.iterdir()) == ["A", "B", "README.md", "pair.json"]
    assert [path.name for path in out.parent.iterdir()] == ["out"]
    for number, adapter in enumerate("AB"):
        config = json.loads((out / adapter / "adapter_config.json").read_text())
        assert config == {"peft_type": "LORA", "r": 4, "base_model_name_or_path": str(base), "inference_mode": True}
        assert torch.equal(
            load_file(out / adapter / "adapter_model.safetensors")[TENSOR], torch.full((4, 2), 3.0 + number)
        )


def test_pair_json_has_all_keys(tmp_path: Path, base: Path) -> None:
    record = exported(make_checkpoint(tmp_path / "run", base), tmp_path / "out")
    how = record.pop("how")
    assert "</r>" in how[1] and "boxes" in how[2] and "{attempt}" in how[3] and "chat template" in how[4]
    assert record == {
        "format": 1,
        "step": 3,
        "base": {"path": str(base), "hash": hash_of_base(base), "checked": True},
        "lora": {"lora_rank": 4, "lora_alpha": 8, "target_modules": "all-linear"},
        "cascade": {
            "direction": "B_to_A",
            "why": "the higher validation accuracy",
            "accuracy": {"A_to_B": 0.5, "B_to_A": 0.75},
        },
        "prompts": {"challenge": CHALLENGE, "no_summary": NO_SUMMARY, "withheld": "[answer withheld]"},
        "reasoning_tags": ["<r>", "</r>"],
        "generation": {"temperature": 0.6},
        "domain": "math",
        "rewards": {"stack": "margin", "format_weight": 0.25, "tiebreak_weight": 0.0},
        "versions": {"agon-verl": "0.1.0"},
        "metrics": {"val-core/toy/sums/A_to_B/acc/mean@1": 0.5, "val-core/toy/sums/B_to_A/acc/mean@1": 0.75},
        "verifier": {"path": "pkg://reward_fns.math_answer", "name": "compute_score", "reward_kwargs": {}},
        "players": "pair",
        "withhold": "announced",
    }


def test_the_prompts_are_those_of_the_training(tmp_path: Path, base: Path) -> None:
    texts = {"challenge": "{problem} beat {attempt}", "no_summary": "nothing", "withheld": "[?]"}
    checkpoint = make_checkpoint(tmp_path / "run", base, prompts=texts)
    assert exported(checkpoint, tmp_path / "out")["prompts"] == texts


def test_a_runs_folder_stands_for_the_checkpoint_that_its_pointer_names(tmp_path: Path, base: Path) -> None:
    run = tmp_path / "run"
    for step in (8, 10, 9):
        make_checkpoint(run, base, step)
    assert exported(run, tmp_path / "out")["step"] == 9
    assert exported(run / "global_step_8", tmp_path / "eight")["step"] == 8


def acc(source: str, direction: str, n: int = 1) -> str:
    return f"val-core/{source}/{direction}/acc/mean@{n}"


def test_data_sources_have_equal_weight() -> None:
    metrics = {
        acc("x", "A_to_B"): 0.9,
        acc("x", "B_to_A"): 0.2,
        acc("y/z", "A_to_B", 4): 0.1,
        acc("y/z", "B_to_A", 4): 1.0,
    }
    chosen = choose(metrics, None)
    assert chosen.accuracy == {"A_to_B": pytest.approx(0.5), "B_to_A": pytest.approx(0.6)}
    assert chosen.direction == "B_to_A"


@pytest.mark.parametrize(
    "metrics",
    [
        {},
        {acc("x", "A_to_B"): 0.9},
        {acc("x", "A_to_B"): 0.9, acc("y", "B_to_A"): 0.2},
        {acc("x", "A_alone"): 0.9, acc("x", "B_alone"): 0.2},
        {name.replace("val-core", "val-aux"): 0.5 for name in (acc("x", "A_to_B"), acc("x", "B_to_A"))},
        {name.replace("acc/mean", "acc/best"): 0.5 for name in (acc("x", "A_to_B"), acc("x", "B_to_A"))},
    ],
)
def test_without_accuracies_of_both_directions_none_is_chosen(metrics: dict[str, float]) -> None:
    chosen = choose(metrics, None)
    assert (chosen.direction, chosen.accuracy) == (None, None) and "no validation accuracy" in chosen.why


def test_a_tie_goes_to_the_first_direction() -> None:
    chosen = choose({acc("x", "A_to_B"): 0.5, acc("x", "B_to_A"): 0.5}, None)
    assert chosen.direction == "A_to_B" and "equal" in chosen.why


def test_the_direction_option_overrides_validation(tmp_path: Path, base: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "run", base)
    cascade = exported(checkpoint, tmp_path / "out", "--direction", "A_to_B")["cascade"]
    assert cascade == {"direction": "A_to_B", "why": "given", "accuracy": {"A_to_B": 0.5, "B_to_A": 0.75}}


def test_metrics_that_are_not_finite_numbers_are_left_out(tmp_path: Path, base: Path) -> None:
    metrics = {acc("x", "A_to_B"): 0.5, acc("x", "B_to_A"): float("nan"), "y": torch.tensor(1.0)}
    record = exported(make_checkpoint(tmp_path / "run", base, metrics=metrics), tmp_path / "out")
    assert record["metrics"] == {acc("x", "A_to_B"): 0.5} and record["cascade"]["direction"] is None


def test_the_base_option_names_a_base_that_has_moved(tmp_path: Path, base: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "run", base)
    base.rename(tmp_path / "moved")
    record = exported(checkpoint, tmp_path / "out", "--base", tmp_path / "moved")
    assert record["base"]["path"] == str(tmp_path / "moved") and record["base"]["checked"]


@pytest.mark.parametrize("name", ["gone/far", "/nowhere/at/all", "not a name"])
def test_a_missing_base_is_reported_as_not_checked(
    tmp_path: Path, base: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    checkpoint = make_checkpoint(tmp_path / "run", base, base=name)
    record = exported(checkpoint, tmp_path / "out")
    assert record["base"] == {"path": name, "hash": hash_of_base(base), "checked": False}
    assert f"{name} is not on this machine, so its weights were not checked" in capsys.readouterr().out


def test_a_base_with_other_weights_is_refused(tmp_path: Path, base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = make_checkpoint(tmp_path / "run", base)
    was = hash_of_base(base)
    save_file({"weight": torch.arange(12.0) + 1e-3}, base / "model.safetensors")
    message = refusal(capsys, checkpoint, tmp_path / "out")
    assert "not the base" in message and was[:12] in message and hash_of_base(base)[:12] in message


def test_a_base_that_is_needed_and_unreadable_is_refused(
    tmp_path: Path, base: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = make_checkpoint(tmp_path / "run", base, base="/gone")
    assert "--base" in refusal(capsys, checkpoint, tmp_path / "out", "--merged")
    assert "/elsewhere has no readable weights" in refusal(capsys, checkpoint, tmp_path / "out", "--base", "/elsewhere")
    (base / "model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0not json")
    assert "no readable weights" in refusal(capsys, checkpoint, tmp_path / "out", "--base", base)


def test_an_existing_folder_is_not_overwritten(tmp_path: Path, base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint, out = make_checkpoint(tmp_path / "run", base), tmp_path / "out"
    out.mkdir()
    (out / "mine").touch()
    assert "not an empty folder" in refusal(capsys, checkpoint, out)
    (out / "mine").unlink()
    exported(checkpoint, out)
    assert "not an empty folder" in refusal(capsys, checkpoint, out)
    assert "not an empty folder" in refusal(capsys, checkpoint, base / "model.safetensors")


def test_a_folder_that_is_not_a_checkpoint_is_refused(
    tmp_path: Path, base: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "global_step_1").mkdir()
    (tmp_path / "empty").mkdir()
    for name, words in [("none", "is not a folder"), ("global_step_1", "no pair.json"), ("empty", "has no checkpoint")]:
        assert words in refusal(capsys, tmp_path / name, tmp_path / "out")
    checkpoint = make_checkpoint(tmp_path / "run", base)
    exported(checkpoint, tmp_path / "first")
    assert "has no base_hash, game" in refusal(capsys, tmp_path / "first", tmp_path / "second")
    for text, words in [("{", "cannot be read"), ('{"format": 99}', "has format 99")]:
        (checkpoint / "pair.json").write_text(text)
        assert words in refusal(capsys, checkpoint, tmp_path / "out")


def test_an_unknown_setting_is_named(tmp_path: Path, base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = make_checkpoint(tmp_path / "run", base, game={"domain": "poems"})
    assert "agon.domain=poems" in refusal(capsys, checkpoint, tmp_path / "out")


def test_a_damaged_adapter_is_refused(tmp_path: Path, base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = make_checkpoint(tmp_path / "run", base) / "actor" / "B"
    weights = place / "adapter_model.safetensors"
    whole = weights.read_bytes()
    save_file({TENSOR: torch.tensor([1.0, float("nan")])}, weights)
    assert "NaN or infinity" in refusal(capsys, tmp_path / "run", tmp_path / "out")
    weights.write_bytes(whole[:-4])
    assert f"{place} is not a complete adapter" in refusal(capsys, tmp_path / "run", tmp_path / "out")
    weights.write_bytes(whole)
    (place / "adapter_config.json").unlink()
    assert f"{place} is not a complete adapter" in refusal(capsys, tmp_path / "run", tmp_path / "out")


@pytest.mark.parametrize(("rank", "room"), [(1, 8), (16, 16), (24, 32), (300, 320), (512, 512)])
def test_the_vllm_command_has_a_rank_that_vllm_accepts(
    tmp_path: Path, base: Path, capsys: pytest.CaptureFixture[str], rank: int, room: int
) -> None:
    checkpoint, out = make_checkpoint(tmp_path / "run", base), tmp_path / "my out"
    for adapter in "AB":
        (checkpoint / "actor" / adapter / "adapter_config.json").write_text(json.dumps({"r": rank}))
    exported(checkpoint, out)
    assert capsys.readouterr().out.endswith(
        f"vllm serve {base} --enable-lora --max-loras 2 --max-lora-rank {room} --lora-modules 'A={out}/A' 'B={out}/B'\n"
    )


def test_the_command_needs_no_verl_and_reports_errors_in_one_line(tmp_path: Path, base: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "run", base)
    (tmp_path / "verl.py").write_text("raise ImportError")  # its import takes ten seconds, and machines may lack it
    command = [sys.executable, "-m", "agon_verl.export", checkpoint, tmp_path / "out"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    first, second = (subprocess.run(command, env=environment, capture_output=True, text=True) for _ in range(2))
    assert first.returncode == 0 and first.stdout.startswith(f"wrote {tmp_path / 'out'}: A, B, pair.json, README.md\n")
    assert "B_to_A: the higher validation accuracy (A_to_B 0.500, B_to_A 0.750)" in first.stdout
    assert (second.returncode, second.stdout, second.stderr.count("\n")) == (1, "", 1)


def bash_and_python(out: Path) -> tuple[list[str], list[str]]:
    """The code blocks of an export's README."""
    text = (out / "README.md").read_text()
    return re.findall(r"```bash\n(.*?)```", text, re.S), re.findall(r"```python\n(.*?)```", text, re.S)


@pytest.mark.parametrize(
    ("changes", "mode"),
    [({}, "B_to_A"), ({"metrics": {}}, "A_to_B"), ({"game": {"players": "one", "reads": "nothing"}}, "A")],
)
def test_the_readme_plays_the_trained_game(
    tmp_path: Path, base: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], mode: str
) -> None:
    """The serve line goes through serve's own parser, and the script is executed."""
    exported(make_checkpoint(tmp_path / "run", base, **changes), tmp_path / "out")
    (serve, vllm), (solve, peft) = bash_and_python(tmp_path / "out")
    monkeypatch.chdir(tmp_path / "out")
    program, dash_m, module, *arguments = shlex.split(serve, comments=True)
    assert (program, dash_m, module) == ("python", "-m", "agon_verl.serve")
    options = parse_serve(arguments)
    assert (options.mode or default_mode(chosen_players(options))) == mode
    calls = []

    def solve_all(target: str, prompts: list[str], mode: str | None = None) -> list[Any]:
        calls.append((prompts, mode or default_mode(find_players(target))))
        return []

    monkeypatch.setattr("agon_verl.inference.solve_all", solve_all)
    exec(solve, {"__name__": "__main__"})
    assert calls == [(["What is 17 * 23?"], mode)]
    assert vllm.startswith(f"vllm serve {base} --enable-lora") and "A=./A B=./B" in vllm
    compile(peft, "README.md", "exec")


COMPLETIONS = st.lists(
    st.sampled_from(["<r>", "</r>", " ", "\n", "so x = 4", "The answer is 4.", r"\boxed{4}", "<answer>4</answer>"])
    | st.sampled_from(["</attempt>", "< Attempt>", "{problem}", "{attempt}", "#### 4"])
    | st.text(max_size=5),
    max_size=8,
).map("".join)


@pytest.fixture(scope="module")
def pair_json(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("pair_json")
    (folder / "base").mkdir()
    save_file({"weight": torch.arange(12.0)}, folder / "base" / "model.safetensors")
    return exported(make_checkpoint(folder / "run", folder / "base"), folder / "out")


@given(draft=COMPLETIONS, opened=st.booleans())
def test_pair_json_describes_what_training_showed(pair_json: dict[str, Any], draft: str, opened: bool) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is {2+2}?"}]
    summary = transcript.read(draft, opened=opened, tags=("<r>", "</r>")).summary
    expected = challenge_messages(messages, None if summary is None else withhold_answer(summary))
    assert challenge(pair_json, messages, draft, opened) == expected
