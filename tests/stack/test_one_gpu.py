"""The one-GPU quickstart without a GPU: its data, its settings in verl's config, what it prints."""

import json
from pathlib import Path

import pandas as pd
import pytest
from omegaconf import OmegaConf

from agon_verl.trainer.memory import GIB, DecoderShape
from agon_verl.trainer.preflight import check_settings
from benchmarks.random_model import COMMON, SHAPES
from examples import one_gpu
from examples.gpu_settings import Work, fit, prompt_length
from tests.recipes import composed
from tests.tiny import make_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "sums.jsonl"
    path.write_text(
        "".join(json.dumps({"question": f"What is {n} + 7?", "answer": str(n + 7)}) + "\n" for n in range(40))
    )
    return path


@pytest.mark.parametrize(("shape", "memory", "response"), [("qwen3-0.6b", 141, 15_360), ("qwen3-4b", 48, 1024)])
def test_the_settings_compose_and_pass_the_checks(shape: str, memory: int, response: int) -> None:
    work = Work(16, 8, prompt_length(response), response)
    settings = fit(DecoderShape.of({**COMMON, **SHAPES[shape]}), memory * GIB, work)
    options = one_gpu.arguments(["--model", "some/model", "--steps", "30", "agon.reward=coop"])
    overrides = one_gpu.example(options, settings, work, asks_for_tags=True).command(Path("/somewhere"))[3:]
    config = composed(*(o for o in overrides if not o.startswith("hydra.")))
    check_settings(config)
    OmegaConf.resolve(config)
    assert (config.agon.reward, config.trainer.total_training_steps) == ("coop", 30)
    rollout = config.actor_rollout_ref.rollout
    assert rollout.max_model_len == work.row <= config.actor_rollout_ref.actor.ppo_max_token_len_per_gpu
    assert (rollout.gpu_memory_utilization, rollout.free_cache_engine) == (settings.share, settings.frees_cache)
    assert rollout.engine_kwargs.vllm.kv_cache_memory_bytes == settings.cache


def test_any_table_becomes_data_that_asks_for_tags(table: Path, tmp_path: Path) -> None:
    options = one_gpu.arguments(["--model", "m", "--data", str(table), "--heldout", "8"])
    (out := tmp_path / "data").mkdir()
    one_gpu.write_data(one_gpu.data_arguments(options, asks_for_tags=True), out)
    train, held_out = (pd.read_parquet(out / f"{name}.parquet") for name in ("train", "heldout"))
    assert (len(train), len(held_out)) == (32, 8)
    prompt = held_out["prompt"][0][-1]["content"]
    assert prompt.startswith("What is") and "between <think> and </think>" in prompt


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ([], ["gsm8k", "--heldout", "200", "--against", "none"]),
        (
            ["--from", "train.jsonl", "--heldout-from", "test.jsonl", "--heldout", "50"],
            ["gsm8k", "--from", "train.jsonl", "--heldout-from", "test.jsonl", "--heldout", "50", "--against", "none"],
        ),
        (
            ["--data", "math"],
            [
                *("custom", "--from", one_gpu.MATH, "--problem", "problem", "--answer", "answer", "--name", "math"),
                *("--heldout", "200", "--against", "none"),
            ],
        ),
    ],
)
def test_the_data_command(line: list[str], expected: list[str]) -> None:
    """A model that reasons by itself gets the plain prompt."""
    assert one_gpu.data_arguments(one_gpu.arguments(["--model", "m", *line]), asks_for_tags=False) == expected


def test_a_dry_run_prints_both_commands_and_writes_nothing(
    model: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["--model", str(model), "--data", str(table), "--memory", "80", "--dry-run", "--out", str(tmp_path / "out")]
    one_gpu.run(one_gpu.arguments([*line, "trainer.save_freq=5"]))
    printed = capsys.readouterr().out
    assert (
        "the prompt asks for <think> tags" in printed
        and "micro-batches of 8,192 tokens with all activations kept" in printed
    )
    assert "agon_verl.data custom" in printed and "verl.trainer.main_ppo +recipe=agon" in printed
    assert printed.index("trainer.save_freq=20") < printed.index("trainer.save_freq=5")
    assert not (tmp_path / "out").exists()


def test_a_model_that_cannot_fit_is_refused_before_anything_starts(model: Path, tmp_path: Path) -> None:
    line = ["--model", str(model), "--memory", "1", "--out", str(tmp_path / "out")]
    with pytest.raises(SystemExit, match="the GPU has 1 GiB"):
        one_gpu.run(one_gpu.arguments(line))
    assert not (tmp_path / "out").exists()


def test_a_table_of_the_same_name_but_other_content_is_other_data(table: Path, tmp_path: Path) -> None:
    def folders() -> tuple[Path, Path]:
        options = one_gpu.arguments(["--model", "m", "--data", str(table)])
        work = Work(16, 8, prompt_length(1024), 1024)
        settings = fit(DecoderShape.of({**COMMON, **SHAPES["qwen3-0.6b"]}), 80 * GIB, work)
        made = one_gpu.example(options, settings, work, asks_for_tags=True)
        return made.inputs(tmp_path), made.folder(tmp_path)

    before = folders()
    assert folders() == before
    table.write_text(table.read_text().replace("What is", "Compute"))
    assert not set(folders()) & set(before)


def test_settings_may_stand_anywhere_but_the_steps_have_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    options = one_gpu.arguments(["agon.reward=coop", "--model", "m", "agon.lr.A=1e-5", "--steps", "5", "data.seed=1"])
    assert options.overrides == ["agon.reward=coop", "agon.lr.A=1e-5", "data.seed=1"] and options.steps == 5
    with pytest.raises(SystemExit):
        one_gpu.arguments(["--model", "m", "trainer.total_training_steps=5"])
    assert "use --steps" in capsys.readouterr().err
