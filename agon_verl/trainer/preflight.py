"""Errors in a run's config, data or folders are reported in one sentence before Ray starts or a device is used.

The recipes register `Preflight` as a Hydra callback, so it runs in the command's own process. The trainer checks the
settings again, for runs that are started in another way.
"""

import json
import logging
import operator
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, ListConfig, OmegaConf
from packaging.version import Version

from agon_verl.config import AgonConfig, gpus_per_replica
from agon_verl.errors import CheckpointError, ConfigError
from agon_verl.files import lock
from agon_verl.game.prompts import challenge_messages
from agon_verl.game.roles import ADAPTERS
from agon_verl.pair.base import hash_of_base
from agon_verl.pair.checkpoint import ADAPTER_FILE, STOP_REQUEST, check_fit, check_game, check_owner, foreign, to_resume
from agon_verl.rollout.wire import BELOW_NORMAL, MPS_PRIORITY
from agon_verl.trainer.memory import DecoderShape
from agon_verl.trainer.memory_line import memory_line, ranks_per_row, row_length

MAX_LORA_RANK = 512  # vLLM's largest (vllm.config.lora.MaxLoRARanks); importing it here would cost ten seconds
logger = logging.getLogger(__name__)
LOCK = ".agon.lock"
STARTED = time.time()  # of this process, nearly
KEEPS_TAGS = "TagKeepingRewardManager"  # of agon_verl.rollout.decoding, which imports verl
DR_GRPO = "seq-mean-token-sum-norm"
ASYNCHRONOUS = ("colocate_async", "separate_async")  # verl's names
LONGEST = 32  # how many of the longest problems are measured in tokens


_OFF = operator.not_
_INITS = " and ".join(f"agon.init.{adapter}" for adapter in ADAPTERS)
_ASYNC = "rollouts of a pair come from its latest adapters; use python -m verl.trainer.main_ppo"
RULES: tuple[tuple[str, Callable[[Any], bool], str], ...] = (  # field, accepted values, the reason and the fix
    (
        "async_training.trigger_parameter_sync_step",
        _OFF,
        f"verl's fully asynchronous trainer is not supported: {_ASYNC}",
    ),
    ("rollout.nnodes", _OFF, f"verl's one-step-off and asynchronous trainers are not supported: {_ASYNC}"),
    ("model_engine", lambda engine: engine == "dp", "the pair trains with FSDP2 only; use dp"),
    ("actor_rollout_ref.rollout.n", lambda n: n >= 2, "a group needs at least 2 drafts to compare"),
    (
        "actor_rollout_ref.rollout.temperature",
        lambda temperature: temperature > 0,
        "drafts must differ, and training divides logits by it; use 1.0",
    ),
    ("actor_rollout_ref.rollout.disaggregation.enabled", _OFF, "its servers hold one adapter each; use false"),
    ("actor_rollout_ref.hybrid_engine", bool, "training and vLLM share their GPUs; use true"),
    ("actor_rollout_ref.rollout.name", lambda name: name == "vllm", "the pair is served by vLLM only; use vllm"),
    ("actor_rollout_ref.rollout.mode", lambda mode: mode == "async", "the pair is served by vLLM's server; use async"),
    ("actor_rollout_ref.rollout.nnodes", _OFF, "vLLM has no nodes of its own; use 0"),
    (
        "actor_rollout_ref.rollout.checkpoint_engine.backend",
        lambda backend: backend == "naive",
        "adapters go from each training process to the vLLM beside it; use naive",
    ),
    ("actor_rollout_ref.rollout.load_format", lambda f: "dummy" not in f, "the base is never synced; use safetensors"),
    ("actor_rollout_ref.rollout.agent.default_agent_loop", lambda loop: loop == "agon", "pairs need the loop agon"),
    ("actor_rollout_ref.actor.strategy", lambda strategy: strategy == "fsdp2", "the pair trains with fsdp2 only"),
    (
        "actor_rollout_ref.model.lora_rank",
        lambda rank: 1 <= rank <= MAX_LORA_RANK,
        f"vLLM serves ranks from 1 to {MAX_LORA_RANK}; the paper uses 16",
    ),
    ("actor_rollout_ref.model.lora.merge", _OFF, "two adapters cannot be merged into one base; use false"),
    ("actor_rollout_ref.model.lora_adapter_path", _OFF, f"each adapter has its own start; use {_INITS}"),
    ("algorithm.filter_groups.enable", _OFF, "it drops both streams of a problem; use false, and agon.live_groups"),
    ("algorithm.adv_estimator", lambda name: name == "agon_draft", "each stream has its own; leave it at agon_draft"),
    ("critic.enable", _OFF, "the game has no critic; use null"),
    ("distillation.enabled", _OFF, "a pair has no teacher; use false"),
    ("trainer.use_v1", bool, "the pair needs verl's V1 trainer; use true"),
    ("trainer.default_hdfs_dir", _OFF, "a pair is saved to trainer.default_local_dir only; use null"),
    ("trainer.del_local_ckpt_after_load", _OFF, "a checkpoint is only removed after a newer one; use false"),
)


class Preflight(Callback):
    """Hydra turns exceptions of a callback into warnings, so every failure is raised as SystemExit."""

    _lock: IO[str] | None = None

    def on_job_start(self, config: DictConfig, **kwargs: Any) -> None:
        mode = OmegaConf.select(config, "trainer.v1.trainer_mode")
        if mode != "agon" and mode not in ASYNCHRONOUS:
            return
        try:
            check_mode(mode)
            check_settings(config)
            check_files(config)
            check_model(config)
            self._lock = lock_output(config.trainer.default_local_dir)
            check_adapters(config)
            check_checkpoint(config)
            keep_compiled(config)
            # Inherited by all processes of a Ray that starts here; vLLM's server drops it (rollout/server_process.py).
            os.environ.setdefault(MPS_PRIORITY, BELOW_NORMAL)
        except (ConfigError, CheckpointError) as error:
            raise SystemExit(f"agon-verl: {error}") from None
        except Exception as error:
            raise SystemExit(f"agon-verl: the checks before the run failed: {error!r}") from error

    def on_job_end(self, config: DictConfig, job_return: Any, **kwargs: Any) -> None:
        if self._lock is not None:
            self._lock.close()  # the next job of a sweep may have the same folder
            if loss := describe_loss(job_return._return_value, config):
                print(f"agon-verl: {loss}", file=sys.stderr, flush=True)


def describe_loss(error: object, config: DictConfig) -> str | None:
    """What Ray's error leaves out if the trainer's process has died, alone or with its node: nobody else can tell.

    An error that the trainer itself raised is another one (RayTaskError).
    """
    from ray.exceptions import RayActorError, RayTaskError

    from agon_verl.rollout.watchdog import describe_error

    if not isinstance(error, RayActorError) or isinstance(error, RayTaskError):
        return None
    trainer = config.trainer
    newest = to_resume(trainer.resume_mode, trainer.default_local_dir, trainer.resume_from_path)
    return (
        f"the trainer's process has died ({describe_error(error).rstrip('.')}). Once the cause is removed, "
        f"start the same command again: the run {f'continues from {newest.name}' if newest else 'starts anew'}"
    )


def check_mode(mode: str) -> None:
    """verl's asynchronous modes would train on rollouts of earlier adapters, and split a pair between two versions.

    They continue an interrupted rollout with newer weights, so a challenge could answer a draft that its own rival, as
    it is now, never wrote.
    """
    if mode in ASYNCHRONOUS:
        raise ConfigError(
            f"trainer.v1.trainer_mode={mode}: a pair would be sampled by several versions of its adapters; use agon, "
            "which with agon.streamed=true trains while vLLM samples, on rollouts of the latest adapters"
        )


def check_settings(config: DictConfig) -> None:
    """All checks that need nothing but the config."""
    AgonConfig.read(config)
    for field, accepts, reason in RULES:
        value = OmegaConf.select(config, field)
        if not accepts(value):
            raise ConfigError(f"{field}={value}: {reason}")
    rollout, reward_model = config.actor_rollout_ref.rollout, config.reward.reward_model
    if reward_model.enable and not reward_model.enable_resource_pool:
        raise ConfigError(
            f"reward.reward_model.enable_resource_pool={reward_model.enable_resource_pool}: rewards are computed while "
            "pairs are generated, so a reward model needs its own pool; use true"
        )
    actor = config.actor_rollout_ref.actor
    if actor.loss_agg_mode == DR_GRPO and actor.loss_scale_factor is None:
        raise ConfigError(
            f"actor_rollout_ref.actor.loss_scale_factor=null: {DR_GRPO} would divide by the padded width of each "
            "micro-batch, so a token's weight would depend on its neighbours; use ${data.max_response_length}"
        )
    need = row_length(config)
    if rollout.max_model_len is not None and rollout.max_model_len < need:
        raise ConfigError(
            f"actor_rollout_ref.rollout.max_model_len={rollout.max_model_len} is less than data.max_prompt_length + "
            f"data.max_response_length = {need}: raise it to that"
        )
    gpus = config.trainer.n_gpus_per_node * config.trainer.nnodes
    if gpus % (each := gpus_per_replica(rollout)):
        raise ConfigError(
            f"actor_rollout_ref.rollout.tensor_model_parallel_size={rollout.tensor_model_parallel_size}: a replica has "
            f"{each} GPUs, and trainer.nnodes × trainer.n_gpus_per_node = {gpus} is not a multiple of it; change either"
        )
    _check_micro_batches(config)


def _check_micro_batches(config: DictConfig) -> None:
    """verl notices in the middle of a step when a row is longer than a micro-batch may be."""
    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    need = row_length(config)
    ranks = ranks_per_row(actor)
    for dynamic, field, limit in (
        (actor.use_dynamic_bsz, "actor.ppo_max_token_len_per_gpu", actor.ppo_max_token_len_per_gpu),
        (
            rollout.log_prob_use_dynamic_bsz,
            "rollout.log_prob_max_token_len_per_gpu",
            rollout.log_prob_max_token_len_per_gpu,
        ),
    ):
        if dynamic and limit * ranks < need:
            raise ConfigError(
                f"actor_rollout_ref.{field}={limit} has no room for a row of data.max_prompt_length + "
                f"data.max_response_length = {need} tokens: raise it to {-(-need // ranks)} or more"
            )


def check_files(config: DictConfig) -> None:
    """The data, the tokenizer, and whether prompts fit into data.max_prompt_length."""
    tokenizer = _tokenizer(config)
    for field in ("data.train_files", "data.val_files"):
        files = OmegaConf.select(config, field)
        for path in files if isinstance(files, list | ListConfig) else [files]:
            if "://" in str(path):
                continue  # verl fetches it
            prompts = _prompts(field, str(path), config)
            if field == "data.train_files":
                _warn_without_tags(prompts[0], tokenizer, config)
            _check_room(field, prompts, tokenizer, config)
            if field == "data.train_files" and isinstance(files, str) and len(prompts) < config.data.train_batch_size:
                raise ConfigError(
                    f"data.train_batch_size={config.data.train_batch_size} is more than the {len(prompts)} problems in "
                    f"{path}: lower it"
                )


def check_model(config: DictConfig) -> None:
    """Whether the model's rows can be packed, and a line about its attention and memory.

    A model that verl fetches is not on this machine yet: the engine checks it later.
    """
    from transformers import AutoConfig

    from agon_verl.actor.packed_attention import PACKED_SDPA, attention_for, require_packable

    model = config.actor_rollout_ref.model
    field = "path" if model.hf_config_path is None else "hf_config_path"
    path = model[field]
    if "://" in path:
        return
    local = os.path.expanduser(path)
    try:
        known = AutoConfig.from_pretrained(
            local if os.path.exists(local) else path, trust_remote_code=model.trust_remote_code
        )
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"actor_rollout_ref.model.{field}={path} has no config.json that can be read: use a Hugging Face model's "
            f"folder or hub name ({str(error).splitlines()[0]})"
        ) from error
    attention = attention_for(model.override_config, model.use_remove_padding)
    ranks = ranks_per_row(config.actor_rollout_ref.actor)
    if ranks > 1 and not (model.use_remove_padding and attention.startswith("flash_attention")):
        raise ConfigError(
            f"actor_rollout_ref.actor.fsdp_config.ulysses_sequence_parallel_size={ranks}: verl splits rows over ranks "
            "in FlashAttention only, here rows are "
            f"{'packed' if model.use_remove_padding else 'padded'} for {attention}; use 1, or install flash-attn and "
            "set actor_rollout_ref.model.use_remove_padding=true"
        )
    if attention == PACKED_SDPA:
        require_packable(known)
    rows = "packed" if model.use_remove_padding else "padded"
    print(f"agon-verl: attention {attention}, rows are {rows}", flush=True)
    shape = DecoderShape.of(known.to_dict())
    if shape is not None and config.trainer.device != "cpu":
        print(f"agon-verl: {memory_line(shape, config, gpu_memory())}", flush=True)


def gpu_memory() -> int | None:
    """Bytes of this machine's smallest GPU; asking torch would take some of it for this process."""
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
        return min(int(line) for line in listed.splitlines()) * 2**20
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def check_adapters(config: DictConfig) -> None:
    """The adapters to start from, by their adapter_config.json; the engine compares every tensor later."""
    model = config.actor_rollout_ref.model
    for adapter, path in config.agon.init.items():
        if path is None:
            continue
        field, folder = f"agon.init.{adapter}={path}", Path(os.path.expanduser(path))
        if not (folder / ADAPTER_FILE).is_file():
            raise ConfigError(f"{field} contains no {ADAPTER_FILE}: use a folder to which PEFT saved an adapter")
        try:
            saved = json.loads((folder / "adapter_config.json").read_text())
        except (OSError, ValueError) as error:
            raise ConfigError(f"{field} has no readable adapter_config.json ({error})") from error
        wanted = {"peft_type": "LORA", "r": model.lora_rank, "lora_alpha": model.lora_alpha}
        plain = {"use_dora": False, "use_rslora": False, "bias": "none", "alpha_pattern": {}, "rank_pattern": {}}
        for name, value in {**wanted, **plain}.items():
            if (saved.get(name) or value) != value:
                raise ConfigError(f"{field} has {name}={saved.get(name)}, but the pair's adapters have {value}")


def check_checkpoint(config: DictConfig) -> None:
    """The checkpoint to resume from. If the base is not on this machine, the trainer checks it later."""
    settings = config.trainer
    if others := foreign(Path(settings.default_local_dir)):
        raise ConfigError(
            f"trainer.default_local_dir={settings.default_local_dir} contains {others[0]}, which is not a pair's "
            "checkpoint: move it away, or use another folder"
        )
    folder = to_resume(settings.resume_mode, settings.default_local_dir, settings.resume_from_path)
    if folder is not None:
        check_game(folder, config)
        check_owner(folder, config.agon.get("trust_checkpoint", False))
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
            f"actor_rollout_ref.model.path={path} has no tokenizer that can be loaded: use a Hugging Face model's "
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
                f"would be taken for the summary: set reward.reward_manager to {KEEPS_TAGS}, as +base=gemma4_e4b does"
            )
    return tokenizer


def _prompts(field: str, path: str, config: DictConfig) -> list[list[dict[str, Any]]]:
    import pandas as pd

    local = Path(os.path.expanduser(path))
    if not local.is_file():
        raise ConfigError(f"{field}={path} is not a file: use the path of a parquet or JSONL file")
    try:
        table = pd.read_parquet(local) if local.suffix == ".parquet" else pd.read_json(local, lines=True)
    except (OSError, ValueError) as error:  # pyarrow's errors are among these
        raise ConfigError(f"{field}={path} cannot be read: prepare the data again ({error})") from error
    if table.empty:
        raise ConfigError(f"{field}={path} has no rows: prepare the data again")
    key = config.data.prompt_key
    for column, what in ((key, "the chat messages"), ("data_source", "a name"), ("reward_model", "{ground_truth: …}")):
        if column not in table.columns:
            raise ConfigError(f"{field}={path} has no column {column} ({what}): it has {', '.join(table.columns)}")
    if not all(isinstance(entry, dict) and "ground_truth" in entry for entry in table["reward_model"]):
        raise ConfigError(f"{field}={path} has rows whose reward_model lacks ground_truth: add the answer to each")
    if "agent_name" in table.columns:
        raise ConfigError(f"{field}={path} has a column agent_name, which would replace the loop `agon`: remove it")
    prompts: list[list[Any]] = [[text] if isinstance(text, str) else list(text) for text in table[key]]
    for number, messages in enumerate(prompts):
        last = messages[-1] if messages else None
        if not isinstance(last, dict) or last.get("role") != "user" or not isinstance(last.get("content"), str):
            raise ConfigError(
                f"{field}={path} has in row {number} a {key} that does not end with a user's text: each row needs "
                "a list of chat messages of which the last states the problem"
            )
    return prompts


def _check_room(field: str, prompts: Sequence[list[dict[str, Any]]], tokenizer: Any, config: DictConfig) -> None:
    """The challenger's prompt must have room for the problem and a useful part of the opponent's summary."""
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


def _warn_without_tags(prompt: list[dict[str, Any]], tokenizer: Any, config: DictConfig) -> None:
    """A model that neither its tokenizer nor its prompt tells of the tags will hardly write them."""
    closing = config.agon.reasoning_tags[1]
    texts = [str(tokenizer.chat_template), *(str(turn["content"]) for turn in prompt)]
    if config.agon.reads != "nothing" and closing not in tokenizer.get_added_vocab() and closing not in "".join(texts):
        logger.warning(
            "agon-verl: neither the tokenizer nor the prompts in data.train_files mention %s, so drafts will probably "
            "have no private reasoning and challengers will read all of them: prepare the data with "
            "`agon data … --reasoning-tags`, or set agon.reasoning_tags to the model's own",
            closing,
        )


def _by_length(prompts: Sequence[list[dict[str, Any]]]) -> list[list[dict[str, Any]]]:
    return sorted(prompts, key=lambda m: sum(len(str(turn["content"])) for turn in m), reverse=True)


def keep_compiled(config: DictConfig) -> None:
    """Let vLLM keep what it compiles, which takes most of its first start. verl leaves a variable alone that is set.

    verl switches this cache off: engines that wrote it at the same time damaged it (vllm-project/vllm#31199). PyTorch
    replaces its files in one step since 2.10; vLLM's own index of them is written in place. So a run with several
    engines keeps verl's choice.
    """
    import torch

    rollout, settings = config.actor_rollout_ref.rollout, config.trainer
    if settings.n_gpus_per_node * settings.nnodes == gpus_per_replica(rollout) and Version(
        torch.__version__
    ) >= Version("2.10"):
        os.environ.setdefault("VLLM_DISABLE_COMPILE_CACHE", "0")


def lock_output(folder: str) -> IO[str]:
    """Lock the output folder until this process ends. A request to stop that is older than it is removed."""
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    file = (path / LOCK).open("w")
    try:
        lock(file)
    except BlockingIOError:
        raise ConfigError(
            f"trainer.default_local_dir={folder} is in use by another run: wait for it, or use another folder"
        ) from None
    request = path / STOP_REQUEST
    if request.exists() and request.stat().st_mtime < STARTED:
        request.unlink()
    return file
