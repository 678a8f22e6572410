"""What is wrong with a run, said in one sentence before Ray starts or a device is touched.

The recipes hang `Preflight` into Hydra as a callback, so it runs in the command's own process. The trainer checks the
settings once more, for those who start verl another way.
"""

import fcntl
import json
import os
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, ListConfig, OmegaConf

from agon_verl.config import AgonConfig
from agon_verl.errors import CheckpointError, ConfigError
from agon_verl.game.prompts import challenge_messages
from agon_verl.pair.base import hash_of_base
from agon_verl.pair.checkpoint import ADAPTER_FILE, check_fit, foreign, to_resume

MAX_LORA_RANK = 512  # vLLM's largest (vllm.config.lora.MaxLoRARanks); importing it here would cost ten seconds
LOCK = ".agon.lock"
KEEPS_TAGS = "TagKeepingRewardManager"  # of agon_verl.rollout.decoding, which imports verl
LONGEST = 32  # how many of the longest problems are measured in tokens


class Preflight(Callback):
    """Hydra turns exceptions of a callback into warnings, so whatever fails here leaves as SystemExit."""

    _lock: IO[str] | None = None

    def on_job_start(self, config: DictConfig, **kwargs: Any) -> None:
        if OmegaConf.select(config, "trainer.v1.trainer_mode") != "agon":
            return
        try:
            check_settings(config)
            check_files(config)
            self._lock = lock_output(config.trainer.default_local_dir)
            check_adapters(config)
            check_checkpoint(config)
        except (ConfigError, CheckpointError) as error:
            raise SystemExit(f"agon-verl: {error}") from None
        except Exception as error:
            raise SystemExit(f"agon-verl: the checks before the run failed: {error!r}") from error

    def on_job_end(self, config: DictConfig, job_return: Any, **kwargs: Any) -> None:
        if self._lock is not None:
            self._lock.close()  # the next job of a sweep may have the same folder


def check_settings(config: DictConfig) -> None:
    """Everything that the config alone can tell."""
    AgonConfig.read(config)
    model, rollout, actor = (config.actor_rollout_ref[part] for part in ("model", "rollout", "actor"))
    reward_model = config.reward.reward_model
    rules: list[tuple[str, Any, bool, str]] = [
        ("actor_rollout_ref.rollout.n", rollout.n, rollout.n >= 2, "a group needs at least 2 drafts to compare"),
        (
            "actor_rollout_ref.model.lora_rank",
            model.lora_rank,
            1 <= model.lora_rank <= MAX_LORA_RANK,
            f"vLLM serves ranks from 1 to {MAX_LORA_RANK}; the paper's is 16",
        ),
        ("actor_rollout_ref.rollout.name", rollout.name, rollout.name == "vllm", "the pair is served by vllm alone"),
        ("actor_rollout_ref.actor.strategy", actor.strategy, actor.strategy == "fsdp2", "the pair trains under fsdp2"),
        (
            "actor_rollout_ref.rollout.load_format",
            rollout.load_format,
            "dummy" not in rollout.load_format,
            "the frozen base is never synced; use safetensors",
        ),
        (
            "actor_rollout_ref.model.lora.merge",
            model.lora.get("merge", False),
            not model.lora.get("merge", False),
            "two adapters cannot be merged into one base; use false",
        ),
        (
            "actor_rollout_ref.rollout.agent.default_agent_loop",
            rollout.agent.default_agent_loop,
            rollout.agent.default_agent_loop == "agon",
            "a session is a pair only in the loop `agon`",
        ),
        (
            "algorithm.filter_groups.enable",
            config.algorithm.filter_groups.enable,
            not config.algorithm.filter_groups.enable,
            "groups without variance are dropped already, each stream's own; use false",
        ),
        (
            "algorithm.adv_estimator",
            config.algorithm.adv_estimator,
            config.algorithm.adv_estimator == "agon_draft",
            "each stream has its own estimator; leave it at agon_draft",
        ),
        ("critic.enable", config.critic.enable, not config.critic.enable, "the game has no critic; use null"),
        (
            "distillation.enabled",
            config.distillation.enabled,
            not config.distillation.enabled,
            "a pair has no teacher; use false",
        ),
        (
            "actor_rollout_ref.model.lora_adapter_path",
            model.lora_adapter_path,
            model.lora_adapter_path is None,
            "each adapter has a start of its own; use agon.init.A and agon.init.B",
        ),
        (
            "trainer.del_local_ckpt_after_load",
            config.trainer.del_local_ckpt_after_load,
            not config.trainer.del_local_ckpt_after_load,
            "a checkpoint is only removed once a newer one is complete; use false",
        ),
        ("trainer.use_v1", config.trainer.use_v1, config.trainer.use_v1, "the pair needs verl's V1 trainer; use true"),
        (
            "trainer.default_hdfs_dir",
            config.trainer.default_hdfs_dir,
            config.trainer.default_hdfs_dir is None,
            "a pair is saved to trainer.default_local_dir alone; use null",
        ),
        (
            "reward.reward_model.enable_resource_pool",
            reward_model.enable_resource_pool,
            not reward_model.enable or reward_model.enable_resource_pool,
            "rewards are computed while pairs are generated, so a reward model needs a pool of its own; use true",
        ),
    ]
    for name, value, good, why in rules:
        if not good:
            raise ConfigError(f"{name}={value}: {why}")
    need = rollout.prompt_length + rollout.response_length
    if rollout.max_model_len is not None and rollout.max_model_len < need:
        raise ConfigError(
            f"actor_rollout_ref.rollout.max_model_len={rollout.max_model_len} is less than data.max_prompt_length + "
            f"data.max_response_length = {need}: raise it to that"
        )


def check_files(config: DictConfig) -> None:
    """The data, the tokenizer, and whether the one fits the other."""
    tokenizer = _tokenizer(config)
    for field in ("data.train_files", "data.val_files"):
        files = OmegaConf.select(config, field)
        for path in files if isinstance(files, list | ListConfig) else [files]:
            if "://" in str(path):
                continue  # verl fetches it
            prompts = _prompts(field, str(path), config)
            _check_room(field, prompts, tokenizer, config)
            if field == "data.train_files" and isinstance(files, str) and len(prompts) < config.data.train_batch_size:
                raise ConfigError(
                    f"data.train_batch_size={config.data.train_batch_size} is more than the {len(prompts)} problems in "
                    f"{path}: lower it"
                )


def check_adapters(config: DictConfig) -> None:
    """The adapters to start from, as far as their own config tells; the engine compares every tensor."""
    model = config.actor_rollout_ref.model
    for adapter, path in config.agon.init.items():
        if path is None:
            continue
        field, folder = f"agon.init.{adapter}={path}", Path(os.path.expanduser(path))
        if not (folder / ADAPTER_FILE).is_file():
            raise ConfigError(f"{field} holds no {ADAPTER_FILE}: give a folder that PEFT saved an adapter to")
        try:
            found = json.loads((folder / "adapter_config.json").read_text())
        except (OSError, ValueError) as error:
            raise ConfigError(f"{field} has no adapter_config.json that can be read ({error})") from error
        wanted = {"peft_type": "LORA", "r": model.lora_rank, "lora_alpha": model.lora_alpha}
        plain = {"use_dora": False, "use_rslora": False, "bias": "none", "alpha_pattern": {}, "rank_pattern": {}}
        for name, value in {**wanted, **plain}.items():
            if (found.get(name) or value) != value:
                raise ConfigError(f"{field} has {name}={found.get(name)}, but the pair's adapters have {value}")


def check_checkpoint(config: DictConfig) -> None:
    """The checkpoint that the run would go on from; where the base is not on this machine, the trainer checks it."""
    settings = config.trainer
    if others := foreign(Path(settings.default_local_dir)):
        raise ConfigError(
            f"trainer.default_local_dir={settings.default_local_dir} holds {others[0]}, which is no pair's checkpoint: "
            "move it away, or give this run its own folder"
        )
    folder = to_resume(settings.resume_mode, settings.default_local_dir, settings.resume_from_path)
    path = os.path.expanduser(config.actor_rollout_ref.model.path)
    if folder is not None and os.path.isdir(path):
        check_fit(folder, config, hash_of_base(Path(path)))


def _tokenizer(config: DictConfig) -> Any:
    from transformers import AutoTokenizer

    model = config.actor_rollout_ref.model
    path = model.tokenizer_path or model.path
    local = os.path.expanduser(path)
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            local if os.path.exists(local) else path, trust_remote_code=model.trust_remote_code
        )
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"actor_rollout_ref.model.path={path} holds no tokenizer that can be loaded: give a Hugging Face model's "
            f"folder or hub name ({str(error).splitlines()[0]})"
        ) from error
    if model.custom_chat_template is None and tokenizer.chat_template is None:
        raise ConfigError(
            f"actor_rollout_ref.model.path={path} has no chat template to render prompts with: use an instruct model, "
            "or set actor_rollout_ref.model.custom_chat_template"
        )
    tokenizer.chat_template = model.custom_chat_template or tokenizer.chat_template
    for tag in config.agon.reasoning_tags if config.reward.reward_manager.name != KEEPS_TAGS else ():
        ids = tokenizer.encode(tag, add_special_tokens=False)
        if tokenizer.decode(ids, skip_special_tokens=True).strip() != tag:
            raise ConfigError(
                f"agon.reasoning_tags has {tag}, which the tokenizer of {path} drops from decoded text, so reasoning "
                f"would pass for the summary: set reward.reward_manager to {KEEPS_TAGS}, as +base=gemma4_e4b does"
            )
    return tokenizer


def _prompts(field: str, path: str, config: DictConfig) -> list[list[dict[str, Any]]]:
    import pandas as pd

    local = Path(os.path.expanduser(path))
    if not local.is_file():
        raise ConfigError(f"{field}={path} is not a file: give the path of a parquet or JSONL file")
    try:
        table = pd.read_parquet(local) if local.suffix == ".parquet" else pd.read_json(local, lines=True)
    except (OSError, ValueError) as error:  # pyarrow's errors are among these
        raise ConfigError(f"{field}={path} cannot be read: prepare the data again ({error})") from error
    if table.empty:
        raise ConfigError(f"{field}={path} holds no rows: prepare the data again")
    key = config.data.prompt_key
    for column, what in ((key, "the chat messages"), ("data_source", "a name"), ("reward_model", "{ground_truth: …}")):
        if column not in table.columns:
            raise ConfigError(f"{field}={path} has no column {column} ({what}): it has {', '.join(table.columns)}")
    if not all(isinstance(entry, dict) and "ground_truth" in entry for entry in table["reward_model"]):
        raise ConfigError(f"{field}={path} has rows whose reward_model lacks ground_truth: add the answer to each")
    if "agent_name" in table.columns:
        raise ConfigError(f"{field}={path} has a column agent_name, which would replace the loop `agon`: drop it")
    prompts: list[list[Any]] = [[text] if isinstance(text, str) else list(text) for text in table[key]]
    for number, messages in enumerate(prompts):
        last = messages[-1] if messages else None
        if not isinstance(last, dict) or last.get("role") != "user" or not isinstance(last.get("content"), str):
            raise ConfigError(
                f"{field}={path} has in row {number} a {key} that does not end with a user's text: give each row a "
                "list of chat messages whose last states the problem"
            )
    return prompts


def _check_room(field: str, prompts: Sequence[list[dict[str, Any]]], tokenizer: Any, config: DictConfig) -> None:
    """The challenger's prompt must hold the problem and a useful part of the opponent's summary."""
    limit, room = config.data.max_prompt_length, config.agon.min_summary_tokens

    def tokens(messages: list[dict[str, Any]]) -> int:
        kwargs = dict(config.data.apply_chat_template_kwargs)
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False, **kwargs)
        return len(tokenizer.encode(text, add_special_tokens=False))

    kept = (m for m in _by_length(prompts) if not config.data.filter_overlong_prompts or tokens(m) <= limit)
    for messages in islice(kept, LONGEST):
        need = tokens(challenge_messages(messages, "x")) + room
        if need > limit:
            raise ConfigError(
                f"data.max_prompt_length={limit} leaves no room for an opponent's summary beside the longest problem "
                f"of {field} (agon.min_summary_tokens={room}): raise it to {need} or more"
            )


def _by_length(prompts: Sequence[list[dict[str, Any]]]) -> list[list[dict[str, Any]]]:
    return sorted(prompts, key=lambda m: sum(len(str(turn["content"])) for turn in m), reverse=True)


def lock_output(folder: str) -> IO[str]:
    """Hold the output folder for as long as this process lives; the system frees it even after a kill."""
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    lock = (path / LOCK).open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ConfigError(
            f"trainer.default_local_dir={folder} is in use by another run: wait for it, or give this one its own folder"
        ) from None
    return lock
