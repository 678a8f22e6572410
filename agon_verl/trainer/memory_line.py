"""The line before a run that says what a GPU needs, and what to lower if it has less."""

from omegaconf import DictConfig, OmegaConf

from agon_verl.trainer.memory import GIB, MARGIN, USABLE, DecoderShape, MemorySettings, estimate, tokens_that_fit


def memory_line(shape: DecoderShape, config: DictConfig, gpu: int | None) -> str:
    """Roughly what a GPU needs, and a warning if it has less."""
    settings = memory_settings(config, shape, gpu or 0)
    needed = estimate(shape, settings)
    line, rollout = f"roughly {needed} per GPU", config.actor_rollout_ref.rollout
    if gpu is None:
        return line if _stated_cache(rollout) else f"{line}; vLLM takes {rollout.gpu_memory_utilization:.0%} of it"
    line += f", which has {gpu / GIB:.0f} GiB"
    advice = []
    if needed.sampling > gpu > needed.kept:
        size = "engine_kwargs.vllm.kv_cache_memory_bytes" if _stated_cache(rollout) else "gpu_memory_utilization"
        advice.append(f"lower actor_rollout_ref.rollout.{size}")
    if needed.update > gpu:
        advice.append(_smaller(config, tokens_that_fit(shape, settings, int(USABLE * gpu / MARGIN))))
    return f"WARNING: {line}: {'; '.join(advice)}" if advice else line


def memory_settings(config: DictConfig, shape: DecoderShape, gpu: int) -> MemorySettings:
    """`gpu`: bytes of its memory."""
    actor, model, rollout = (config.actor_rollout_ref[part] for part in ("actor", "model", "rollout"))
    precision = OmegaConf.select(actor.fsdp_config, "mixed_precision.param_dtype", default="bf16")
    tokens = actor.ppo_max_token_len_per_gpu
    if not actor.use_dynamic_bsz:
        tokens = _tokens_per_gpu(config, actor.ppo_micro_batch_size_per_gpu or 1)
    gpus, shard = config.trainer.n_gpus_per_node * config.trainer.nnodes, actor.fsdp_config.fsdp_size
    unsharded = gpus == 1 and not model.enable_activation_offload and precision not in ("fp16", "float16")
    stored = precision if unsharded else actor.fsdp_config.model_dtype  # as in actor/engine.py
    cache = _stated_cache(rollout)
    return MemorySettings(
        tokens=tokens,
        rank=model.lora_rank,
        adapters=len(model.lora.adapters),
        gpus=shard if 0 < shard < gpus else gpus,
        weight_bytes=_bytes(stored),
        compute_bytes=_bytes(precision),
        checkpointing=model.enable_gradient_checkpointing,
        packed=model.use_remove_padding,
        fused=model.use_fused_kernels,
        vllm=_bytes("bf16") * shape.parameters + cache if cache else int(rollout.gpu_memory_utilization * gpu),
        vllm_sleeps=rollout.free_cache_engine,
        param_offload=actor.fsdp_config.param_offload,
        optimizer_offload=actor.fsdp_config.optimizer_offload,
        offload_policy=actor.fsdp_config.offload_policy,
    )


def _smaller(config: DictConfig, most: int) -> str:
    """What to lower so that an update has at most `most` tokens on a GPU."""
    actor, row = config.actor_rollout_ref.actor, row_length(config)
    if most < _tokens_per_gpu(config, 1):
        return (
            f"a row of data.max_prompt_length + data.max_response_length = {row} tokens does not fit: lower "
            "data.max_response_length, or use more GPUs or a smaller model"
        )
    if actor.use_dynamic_bsz:
        return f"lower actor_rollout_ref.actor.ppo_max_token_len_per_gpu, to about {most}"
    rows = most * ranks_per_row(actor) // row
    return f"lower actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu, to about {rows}"


def _stated_cache(rollout: DictConfig) -> int:
    """Bytes of vLLM's cache; 0: it takes what is left of its share of the GPU."""
    return OmegaConf.select(rollout, "engine_kwargs.vllm.kv_cache_memory_bytes") or 0


def _tokens_per_gpu(config: DictConfig, rows: int) -> int:
    return -(-rows * row_length(config) // ranks_per_row(config.actor_rollout_ref.actor))


def row_length(config: DictConfig) -> int:
    rollout = config.actor_rollout_ref.rollout
    return rollout.prompt_length + rollout.response_length


def ranks_per_row(actor: DictConfig) -> int:
    """verl copies the deprecated field over the one in fsdp_config if it is more than 1."""
    deprecated = actor.ulysses_sequence_parallel_size
    return deprecated if deprecated > 1 else actor.fsdp_config.ulysses_sequence_parallel_size


def _bytes(dtype: str | None) -> int:
    return 2 if "16" in str(dtype) else 4
