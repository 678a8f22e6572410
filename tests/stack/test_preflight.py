"""Errors stop a run before Ray starts, in one sentence with the field, the value and the fix."""

import errno
import fcntl
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
import verl.experimental
from omegaconf import OmegaConf
from ray.exceptions import ActorDiedError, RayTaskError
from transformers import AutoTokenizer, Gemma3nConfig, Gemma4Config, Qwen3_5Config, Qwen3Config, Qwen3NextConfig
from verl.trainer.constants_ppo import get_ppo_ray_runtime_env

from agon_verl.errors import CheckpointError, ConfigError
from agon_verl.pair.base import hash_of_base
from agon_verl.pair.checkpoint import Manifest, committing, game_settings, lora_settings, verifier_settings
from agon_verl.rollout.wire import BELOW_NORMAL, MPS_PRIORITY
from agon_verl.trainer import preflight
from agon_verl.trainer.guarded import RunFailed
from agon_verl.trainer.memory import GIB, MARGIN, USABLE, DecoderShape, estimate
from agon_verl.trainer.memory_line import memory_settings
from agon_verl.trainer.preflight import check_checkpoint, check_files, check_settings, keep_compiled, lock_output
from tests.recipes import composed
from tests.tiny import make_data, make_model

COMPILE_CACHE_OFF = "VLLM_DISABLE_COMPILE_CACHE"
TENSOR_PARALLEL = "actor_rollout_ref.rollout.tensor_model_parallel_size"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Overrides that pass every check."""
    folder = tmp_path_factory.mktemp("good")
    return [
        "+recipe=agon_cpu",
        f"actor_rollout_ref.model.path={make_model(folder / 'model')}",
        f"data.train_files={make_data(folder / 'train.parquet', 16)}",
        f"data.val_files={make_data(folder / 'val.parquet', 4)}",
        "data.train_batch_size=4",
    ]


def error_of(*overrides: str) -> str:
    config = composed(*overrides)
    with pytest.raises(ConfigError) as caught:
        check_settings(config)
        check_files(config)
    return str(caught.value)


def test_good_input_passes(good: list[str]) -> None:
    config = composed(*good)
    check_settings(config)
    check_files(config)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("actor_rollout_ref.rollout.n=1", ["actor_rollout_ref.rollout.n=1", "at least 2"]),
        ("actor_rollout_ref.rollout.temperature=0", ["rollout.temperature=0", "use 1.0"]),
        ("actor_rollout_ref.rollout.disaggregation.enabled=true", ["disaggregation.enabled=True", "use false"]),
        ("agon.challenge_sampling.temperature=0", ["agon.challenge_sampling.temperature=0", "greater than 0"]),
        ("agon.challenge_sampling.top_p=7", ["agon.challenge_sampling.top_p=7", "less than or equal to 1"]),
        ("actor_rollout_ref.model.lora_rank=1024", ["lora_rank=1024", "1 to 512"]),
        ("actor_rollout_ref.model.lora_rank=0", ["lora_rank=0", "1 to 512"]),
        ("actor_rollout_ref.rollout.name=sglang", ["rollout.name=sglang", "use vllm"]),
        ("actor_rollout_ref.rollout.name=trtllm", ["rollout.name=trtllm", "use vllm"]),
        ("actor_rollout_ref.rollout.mode=sync", ["rollout.mode=sync", "use async"]),
        ("actor_rollout_ref.rollout.nnodes=1", ["rollout.nnodes=1", "use 0"]),
        ("actor_rollout_ref.rollout.checkpoint_engine.backend=nccl", ["backend=nccl", "use naive"]),
        ("actor_rollout_ref.hybrid_engine=false", ["hybrid_engine=False", "use true"]),
        (
            "actor_rollout_ref.rollout.tensor_model_parallel_size=2",
            ["tensor_model_parallel_size=2", "= 1 is not a mul"],
        ),
        ("model_engine=megatron", ["model_engine=megatron", "use dp"]),
        ("model_engine=torchtitan", ["model_engine=torchtitan", "use dp"]),
        ("model_engine=veomni", ["model_engine=veomni", "use dp"]),
        ("actor_rollout_ref.actor.strategy=megatron", ["strategy=megatron", "fsdp2"]),
        ("actor_rollout_ref.actor.strategy=fsdp", ["strategy=fsdp", "fsdp2"]),
        ("actor_rollout_ref.rollout.load_format=dummy", ["load_format=dummy", "safetensors"]),
        ("actor_rollout_ref.rollout.max_model_len=64", ["max_model_len=64", "384"]),
        ("actor_rollout_ref.actor.ppo_max_token_len_per_gpu=300", ["ppo_max_token_len_per_gpu=300", "raise it to 384"]),
        (
            "actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu=300",
            ["log_prob_max_token_len_per_gpu=300", "raise it to 384"],
        ),
        ("algorithm.adv_estimator=gae", ["adv_estimator=gae", "agon_draft"]),
        ("critic.enable=true", ["critic.enable=True", "no critic"]),
        ("trainer.use_v1=false", ["trainer.use_v1=False", "V1"]),
        ("actor_rollout_ref.model.lora_adapter_path=/x", ["lora_adapter_path=/x", "agon.init.A"]),
        ("agon.reward=zero_sum", ["agon.reward=zero_sum", "margin"]),
        ("data.max_prompt_length=90", ["data.max_prompt_length=90", "raise it to"]),
        ("data.train_batch_size=64", ["data.train_batch_size=64", "16 problems"]),
        ("data.train_files=/nowhere.parquet", ["data.train_files=/nowhere.parquet", "is not a file"]),
        ("data.val_files=/nowhere.parquet", ["data.val_files=/nowhere.parquet", "is not a file"]),
        ("actor_rollout_ref.model.path=/nowhere", ["actor_rollout_ref.model.path=/nowhere", "tokenizer"]),
    ],
)
def test_refusals_name_the_field_the_value_and_the_fix(good: list[str], override: str, words: list[str]) -> None:
    message = error_of(*good, override)
    assert all(word in message for word in words), message
    assert "\n" not in message


@pytest.mark.parametrize("mode", ["colocate_async", "separate_async"])
def test_asynchronous_modes_are_refused_with_the_reason(good: list[str], mode: str) -> None:
    """By the callback: these modes have trainers of their own, which know nothing of our checks."""
    with pytest.raises(SystemExit, match=f"trainer_mode={mode}: .* several versions of its adapters; use agon"):
        preflight.Preflight().on_job_start(composed(*good, f"trainer.v1.trainer_mode={mode}"))


def test_every_mode_of_verl_is_played_or_refused() -> None:
    """verl's own synchronous mode may be chosen for a comparison."""
    from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY

    assert {name for name in TRAINER_REGISTRY if not name.startswith("agon")} == {"sync", *preflight.ASYNCHRONOUS}


@pytest.mark.parametrize(
    ("place", "name", "words"),
    [
        ("one_step_off_policy", "one_step_off_ppo_trainer", ["rollout.nnodes=1", "one-step-off", "main_ppo"]),
        (
            "fully_async_policy",
            "fully_async_ppo_trainer",
            ["trigger_parameter_sync_step=4", "fully asynchronous", "main_ppo"],
        ),
    ],
)
def test_verls_other_asynchronous_commands_are_refused(
    good: list[str], place: str, name: str, words: list[str]
) -> None:
    """They have configs of their own on top of verl's."""
    folder = Path(verl.experimental.__file__).parent / place / "config"
    above = OmegaConf.load(folder / f"{name}.yaml")
    config = composed(*good)
    OmegaConf.set_struct(config, False)
    config.merge_with({key: above[key] for key in above if key in ("async_training", "rollout")})
    with pytest.raises(ConfigError) as caught:
        check_settings(config)
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize("packed", ["true", "false"])
@pytest.mark.parametrize("field", ["fsdp_config.ulysses_sequence_parallel_size", "ulysses_sequence_parallel_size"])
def test_rows_are_split_over_ranks_in_flash_attention_only(good: list[str], packed: str, field: str) -> None:
    override = f"actor_rollout_ref.model.use_remove_padding={packed}"
    split = f"actor_rollout_ref.actor.{field}=2"
    with pytest.raises(ConfigError, match="ulysses_sequence_parallel_size=2: .* FlashAttention only, .* use 1"):
        preflight.check_model(composed(*good, override, split))


def test_a_row_shared_by_several_ranks_needs_less_room_on_each(good: list[str]) -> None:
    shared = "actor_rollout_ref.actor.fsdp_config.ulysses_sequence_parallel_size=2"
    check_settings(composed(*good, "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=192", shared))


@pytest.mark.parametrize(("deprecated", "own"), [(2, 1), (2, 4)])
def test_the_deprecated_field_for_shared_rows_wins_as_in_verl(good: list[str], deprecated: int, own: int) -> None:
    """verl copies it over the one in fsdp_config if it is more than 1."""
    ranks = [
        f"actor_rollout_ref.actor.ulysses_sequence_parallel_size={deprecated}",
        f"actor_rollout_ref.actor.fsdp_config.ulysses_sequence_parallel_size={own}",
    ]
    check_settings(composed(*good, "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=192", *ranks))
    with pytest.raises(ConfigError, match="ppo_max_token_len_per_gpu=191 .* raise it to 192"):
        check_settings(composed(*good, "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=191", *ranks))


def model_line(overrides: list[str], gpu: int | None, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> str:
    monkeypatch.setattr(preflight, "gpu_memory", lambda: gpu)
    preflight.check_model(composed(*overrides))
    return capsys.readouterr().out


def test_attention_and_memory_are_reported(good: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """The model is tiny: nearly all of it is what the kernels take at a time."""
    on_gpu = [*good[1:], "+recipe=agon"]
    assert "attention sdpa, rows are padded" in model_line(good, None, monkeypatch, capsys)
    line = model_line(on_gpu, 80 * GIB, monkeypatch, capsys)
    assert "attention packed_sdpa, rows are packed" in line
    assert "40 GiB while sampling (vLLM 40) per GPU, which has 80 GiB" in line and "WARNING" not in line
    unknown = model_line(on_gpu, None, monkeypatch, capsys)
    assert "GiB in an update" in unknown and "vLLM takes 50% of it" in unknown and "while sampling" not in unknown


def test_settings_that_do_not_fit_are_warned_of(good: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    on_gpu = [*good[1:], "+recipe=agon", "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=4000000"]
    line = model_line(on_gpu, 8 * GIB, monkeypatch, capsys)
    assert "WARNING" in line and "lower actor_rollout_ref.actor.ppo_max_token_len_per_gpu, to about" in line
    greedy = [*on_gpu, "actor_rollout_ref.rollout.gpu_memory_utilization=1.0"]
    line = model_line(greedy, 8 * GIB, monkeypatch, capsys)
    assert "lower actor_rollout_ref.rollout.gpu_memory_utilization; lower actor_rollout_ref.actor.ppo_max_t" in line


def random_4b(folder: Path) -> str:
    config = Qwen3Config(
        hidden_size=2560,
        num_hidden_layers=36,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=128,
        intermediate_size=9728,
        tie_word_embeddings=True,
    )
    config.save_pretrained(folder)
    return f"actor_rollout_ref.model.path={folder}"


FSDP = "actor_rollout_ref.actor.fsdp_config"


def test_what_is_offloaded_and_shared_out_is_counted_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """7.5 GiB of base and 1 GiB of adapters, on one card of 40 GiB or shared out over two, four or eight."""
    on_gpu = ["+recipe=agon", random_4b(tmp_path), "trainer.n_gpus_per_node=1", "trainer.nnodes=1"]
    sampling = [*on_gpu, "actor_rollout_ref.rollout.gpu_memory_utilization=0.8"]
    line = model_line(sampling, 40 * GIB, monkeypatch, capsys)
    assert "WARNING" in line and "40 GiB while sampling (vLLM 32)" in line
    offloaded = [*sampling, f"{FSDP}.param_offload=true", f"{FSDP}.optimizer_offload=true"]
    assert "32 GiB while sampling (vLLM 32)" in model_line(offloaded, 40 * GIB, monkeypatch, capsys)
    assert "rollout.gpu_memory_utilization" not in model_line(offloaded, 40 * GIB, monkeypatch, capsys)
    policy = [*on_gpu, f"{FSDP}.offload_policy=true"]
    assert "(base 0.0, adapters 0.0," in model_line(policy, 40 * GIB, monkeypatch, capsys)
    with_fsdp = ("actor_rollout_ref.model.enable_activation_offload=true", f"+{FSDP}.mixed_precision.param_dtype=fp16")
    for setting in with_fsdp:  # which keeps the base in model_dtype
        assert "(base 15.0," in model_line([*on_gpu, setting], 80 * GIB, monkeypatch, capsys)
    for size, base in ((-1, 1.9), (2, 7.5), (4, 3.7), (8, 1.9), (16, 1.9)):
        eight = [*on_gpu[:2], "trainer.n_gpus_per_node=4", "trainer.nnodes=2", f"{FSDP}.fsdp_size={size}"]
        assert f"(base {base}," in model_line(eight, 80 * GIB, monkeypatch, capsys)


def test_the_advised_micro_batch_fits_with_room_to_spare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """And preflight accepts it."""
    on_gpu = ["+recipe=agon", random_4b(tmp_path), "trainer.n_gpus_per_node=1", "trainer.nnodes=1"]
    line = model_line(on_gpu, 32 * GIB, monkeypatch, capsys)
    advised = int(line.strip().rsplit("to about ", 1)[1])
    override = f"actor_rollout_ref.actor.ppo_max_token_len_per_gpu={advised}"
    config = composed(*on_gpu, override)
    check_settings(config)
    shape = DecoderShape.of(Qwen3Config.from_pretrained(tmp_path).to_dict())
    assert shape is not None
    needed = estimate(shape, memory_settings(config, shape, 32 * GIB)).update
    assert 0.98 * USABLE * 32 * GIB < MARGIN * needed <= USABLE * 32 * GIB
    assert "WARNING" not in model_line([*on_gpu, override], 32 * GIB, monkeypatch, capsys)


def test_a_stated_cache_counts_in_place_of_the_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    cache = f"+actor_rollout_ref.rollout.engine_kwargs.vllm.kv_cache_memory_bytes={6 * GIB}"
    small = ["+recipe=agon", random_4b(tmp_path), "actor_rollout_ref.rollout.gpu_memory_utilization=0.05", cache]
    weights = 2 * DecoderShape.of(Qwen3Config.from_pretrained(tmp_path).to_dict()).parameters
    line = model_line(small, 141 * GIB, monkeypatch, capsys)
    assert f"(vLLM {(weights + 6 * GIB) / GIB:.0f})" in line and "WARNING" not in line
    assert "vLLM takes" not in model_line(small, None, monkeypatch, capsys)
    large = [*small[:-1], cache.replace(str(6 * GIB), str(150 * GIB))]
    advice = model_line(large, 141 * GIB, monkeypatch, capsys)
    assert "lower actor_rollout_ref.rollout.engine_kwargs.vllm.kv_cache_memory_bytes" in advice


@pytest.mark.parametrize("gpu", [10, 24])
def test_a_row_that_does_not_fit_is_called_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, gpu: int
) -> None:
    """On the smaller card the model alone does not fit; on the other, fewer tokens than a row has."""
    on_gpu = ["+recipe=agon", random_4b(tmp_path), "trainer.n_gpus_per_node=1", "trainer.nnodes=1"]
    few = [*on_gpu, "actor_rollout_ref.rollout.gpu_memory_utilization=0.1"]
    line = model_line(few, gpu * GIB, monkeypatch, capsys)
    assert line.strip().endswith(
        "a row of data.max_prompt_length + data.max_response_length = 19456 tokens does not fit: lower "
        "data.max_response_length, or use more GPUs or a smaller model"
    )


def test_rows_of_a_fixed_number_are_advised_by_their_own_field(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Without dynamic micro-batches ppo_max_token_len_per_gpu is not read."""
    fixed = ["use_dynamic_bsz=false", "ppo_micro_batch_size_per_gpu=4"]
    on_gpu = ["+recipe=agon", random_4b(tmp_path), "trainer.n_gpus_per_node=1", "trainer.nnodes=1"]
    line = model_line([*on_gpu, *(f"actor_rollout_ref.actor.{s}" for s in fixed)], 40 * GIB, monkeypatch, capsys)
    assert line.strip().endswith("lower actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu, to about 1")


@pytest.mark.parametrize("other", [Gemma3nConfig, Gemma4Config, Qwen3_5Config])
def test_a_model_of_another_shape_has_no_memory_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, other: type
) -> None:
    """No guess, and no error: the line only informs."""
    other().save_pretrained(tmp_path)
    path = f"actor_rollout_ref.model.path={tmp_path}"
    line = model_line(
        ["+recipe=agon", path, "actor_rollout_ref.model.use_remove_padding=false"], 80 * GIB, monkeypatch, capsys
    )
    assert "rows are padded" in line and "GiB" not in line


def test_a_model_that_verl_fetches_is_checked_by_the_engine(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    away = ["+recipe=agon", "actor_rollout_ref.model.path=hdfs://store/model"]
    assert model_line(away, 80 * GIB, monkeypatch, capsys) == ""


def test_the_shape_is_read_where_verl_reads_it(
    good: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    random_4b(tmp_path)
    line = model_line(
        ["+recipe=agon", good[1], f"actor_rollout_ref.model.hf_config_path={tmp_path}"], 80 * GIB, monkeypatch, capsys
    )
    assert "(base 1.9," in line  # an eighth of 15


def test_a_model_without_a_config_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        preflight.check_model(composed("+recipe=agon", f"actor_rollout_ref.model.path={tmp_path}"))
    message = str(caught.value)
    assert message.startswith(f"actor_rollout_ref.model.path={tmp_path} has no config.json that can be read: use a ")
    assert "\n" not in message


def test_a_model_that_cannot_be_packed_is_refused_unless_it_is_padded(
    good: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    Qwen3NextConfig().save_pretrained(tmp_path)
    overrides = ["+recipe=agon", *good[2:], f"actor_rollout_ref.model.path={tmp_path}"]
    with pytest.raises(ConfigError, match="qwen3_next cannot be packed.*linear_attention; use false"):
        model_line(overrides, None, monkeypatch, capsys)
    padded = [*overrides, "actor_rollout_ref.model.use_remove_padding=false"]
    assert "attention sdpa, rows are padded" in model_line(padded, None, monkeypatch, capsys)


def test_a_checkpoint_of_another_rank_is_refused(good: list[str], tmp_path: Path) -> None:
    config = composed(*good, f"trainer.default_local_dir={tmp_path}")
    base = config.actor_rollout_ref.model.path
    with committing(tmp_path, 1) as folder:
        Manifest(1, base, hash_of_base(Path(base)), lora_settings(config), {}, {}, {}).write(folder)
    check_checkpoint(config)
    config.actor_rollout_ref.model.lora_rank = 8
    with pytest.raises(CheckpointError, match="its lora_rank is 16, the run's is 8"):
        check_checkpoint(config)


@pytest.mark.parametrize("override", ["agon.seed=1", "agon.reward=coop", "+method=grpo", "agon.domain=code"])
def test_automatic_resume_under_another_game_is_refused(good: list[str], tmp_path: Path, override: str) -> None:
    place = f"trainer.default_local_dir={tmp_path}"
    config = composed(*good, place)
    base = config.actor_rollout_ref.model.path
    with committing(tmp_path, 1) as folder:
        game, lora = game_settings(config), lora_settings(config)
        Manifest(1, base, hash_of_base(Path(base)), lora, game, {}, {}, verifier=verifier_settings(config)).write(
            folder
        )
    check_checkpoint(config)
    with pytest.raises(CheckpointError, match="was trained with another game: its agon"):
        check_checkpoint(composed(*good, place, override))
    path = (f"trainer.resume_from_path={tmp_path / 'global_step_1'}", "trainer.resume_mode=resume_path")
    check_checkpoint(composed(*good, place, override, *path))


def test_empty_data(good: list[str], tmp_path: Path) -> None:
    pd.read_parquet(good[2].split("=")[1])[:0].to_parquet(tmp_path / "empty.parquet")
    assert "has no rows" in error_of(*good, f"data.train_files={tmp_path / 'empty.parquet'}")


@pytest.mark.parametrize("column", ["prompt", "data_source", "reward_model"])
def test_missing_column(good: list[str], tmp_path: Path, column: str) -> None:
    pd.read_parquet(good[2].split("=")[1]).drop(columns=column).to_parquet(tmp_path / "data.parquet")
    assert f"has no column {column}" in error_of(*good, f"data.train_files={tmp_path / 'data.parquet'}")


def test_file_that_is_no_parquet(good: list[str], tmp_path: Path) -> None:
    (tmp_path / "torn.parquet").write_bytes(b"")
    assert "cannot be read" in error_of(*good, f"data.train_files={tmp_path / 'torn.parquet'}")


@pytest.mark.parametrize("prompt", ["What is 2+2?", [], [{"role": "assistant", "content": "4"}]])
def test_prompts_that_state_no_problem(good: list[str], tmp_path: Path, prompt: Any) -> None:
    table = pd.read_parquet(good[2].split("=")[1])
    table["prompt"] = [prompt] * len(table)
    table.to_parquet(tmp_path / "data.parquet")
    assert "does not end with a user's text" in error_of(*good, f"data.train_files={tmp_path / 'data.parquet'}")


def test_agent_column(good: list[str], tmp_path: Path) -> None:
    pd.read_parquet(good[2].split("=")[1]).assign(agent_name="tool_agent").to_parquet(tmp_path / "data.parquet")
    assert "agent_name" in error_of(*good, f"data.train_files={tmp_path / 'data.parquet'}")


def test_reasoning_tags_that_decoding_drops(good: list[str]) -> None:
    message = error_of(*good, "agon.reasoning_tags=['<|user|>','</think>']")
    assert "<|user|>" in message and "reward.reward_manager" in message
    kept = ("reward.reward_manager.source=importlib", "reward.reward_manager.name=TagKeepingRewardManager")
    check_files(composed(*good, "agon.reasoning_tags=['<|user|>','</think>']", *kept))


@pytest.fixture
def caplog(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Libraries that other tests use in this process raise the level of the root logger or disable existing ones."""
    caplog.set_level(logging.WARNING, logger="agon_verl")
    for name, logger in logging.root.manager.loggerDict.items():
        if name.startswith("agon_verl") and isinstance(logger, logging.Logger):
            logger.disabled, logger.propagate = False, True
    return caplog


def test_a_model_that_knows_no_reasoning_tags_gets_a_warning(
    good: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    unknown = "agon.reasoning_tags=['<r>','</r>']"
    check_files(composed(*good))  # the tokenizer has <think>
    check_files(composed(*good, unknown, "+method=grpo"))  # nobody reads
    asked = make_data(tmp_path / "asked.parquet", 16)
    table = pd.read_parquet(asked)
    table["prompt"] = [[{"role": "user", "content": "Between <r> and </r>: what is 2+2?"}]] * len(table)
    table.to_parquet(asked)
    check_files(composed(*good, unknown, f"data.train_files={asked}"))
    assert not caplog.records
    check_files(composed(*good, unknown))
    (warning,) = caplog.records
    assert "mention </r>" in warning.getMessage() and "--reasoning-tags" in warning.getMessage()


def test_rows_without_ground_truth(good: list[str], tmp_path: Path) -> None:
    table = pd.read_parquet(good[2].split("=")[1])
    table["reward_model"] = [{"style": "rule"}] * len(table)
    table.to_parquet(tmp_path / "data.parquet")
    assert "lacks ground_truth" in error_of(*good, f"data.train_files={tmp_path / 'data.parquet'}")


def test_model_without_chat_template(good: list[str], tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(good[1].split("=")[1])
    tokenizer.chat_template = None
    tokenizer.save_pretrained(tmp_path)
    assert "has no chat template" in error_of(*good, f"actor_rollout_ref.model.path={tmp_path}")


def test_two_runs_into_one_folder(tmp_path: Path) -> None:
    lock = lock_output(str(tmp_path))
    with pytest.raises(ConfigError, match="is in use by another run"):
        lock_output(str(tmp_path))
    lock.close()
    lock_output(str(tmp_path)).close()


def test_a_request_to_stop_an_earlier_run_is_removed(tmp_path: Path) -> None:
    (request := tmp_path / "stop").touch()
    lock_output(str(tmp_path)).close()
    assert request.exists()  # made while this process starts
    os.utime(request, (0, 0))
    lock_output(str(tmp_path)).close()
    assert not request.exists()


def test_storage_without_locks_is_used_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def flock(*_: Any) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", flock)
    lock_output(str(tmp_path)).close()
    assert "this storage has no locks" in caplog.text


def test_the_command_stops_with_one_sentence_before_ray(good: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "verl.trainer.main_ppo", *good, "actor_rollout_ref.rollout.n=1"]
    command.append(f"trainer.default_local_dir={tmp_path}")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=dict(os.environ), timeout=120)
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1].startswith("agon-verl: actor_rollout_ref.rollout.n=1: ")
    assert "Traceback" not in done.stderr and "ray init" not in done.stdout


def test_a_dead_trainer_is_reported_with_what_remains(good: list[str], tmp_path: Path) -> None:
    """Here the command's own process is the only one that can: the trainer died, perhaps with its node."""
    config = composed(*good, f"trainer.default_local_dir={tmp_path}")
    dead = ActorDiedError()
    cause = "the trainer's process has died (ActorDiedError: The actor died unexpectedly before finishing this task). "
    again = "Once the cause is removed, start the same command again: the run "
    assert preflight.describe_loss(dead, config) == f"{cause}{again}starts anew"
    with committing(tmp_path, 3) as folder:
        Manifest(3, "base", "", {}, {}, {}, {}).write(folder)
    assert preflight.describe_loss(dead, config) == f"{cause}{again}continues from global_step_3"
    raised = RayTaskError("run", "traceback", RunFailed(4, "vLLM has failed", "Step 3 is saved"))
    assert preflight.describe_loss(raised.as_instanceof_cause(), config) is None
    assert preflight.describe_loss(None, config) is None


@pytest.mark.parametrize(
    ("set_before", "torch_version", "overrides", "kept"),
    [
        (None, "2.11.0+cu130", [], "0"),
        (None, "2.11.0+cu130", ["trainer.n_gpus_per_node=2", f"{TENSOR_PARALLEL}=2"], "0"),
        (None, "2.11.0+cu130", ["trainer.n_gpus_per_node=2"], "1"),  # two engines
        (None, "2.9.1", [], "1"),
        ("1", "2.11.0+cu130", [], "1"),
    ],
)
def test_one_engine_keeps_what_it_compiles(
    monkeypatch: pytest.MonkeyPatch, set_before: str | None, torch_version: str, overrides: list[str], kept: str
) -> None:
    monkeypatch.setenv(COMPILE_CACHE_OFF, set_before or "")
    if set_before is None:
        monkeypatch.delenv(COMPILE_CACHE_OFF)
    monkeypatch.setattr(torch, "__version__", torch_version)
    keep_compiled(composed("+recipe=agon_cpu", *overrides))
    of_verl = get_ppo_ray_runtime_env()["env_vars"].get(COMPILE_CACHE_OFF)
    assert os.environ.get(COMPILE_CACHE_OFF, of_verl) == kept
    assert (of_verl is None) == (COMPILE_CACHE_OFF in os.environ)


@pytest.mark.parametrize("set_before", [None, "0"])
def test_training_has_the_lower_priority_unless_the_shell_says_otherwise(
    good: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, set_before: str | None
) -> None:
    for name in (MPS_PRIORITY, COMPILE_CACHE_OFF):
        monkeypatch.setenv(name, set_before or "")
    if set_before is None:
        monkeypatch.delenv(MPS_PRIORITY)
    preflight.Preflight().on_job_start(composed(*good, f"trainer.default_local_dir={tmp_path}"))
    assert os.environ[MPS_PRIORITY] == (set_before or BELOW_NORMAL)
