"""How long a step takes: stock verl GRPO with 2N rollouts a problem beside Agon with N drafts and N challenges.

    python benchmarks/step_time.py --model MODEL --data DATA.parquet [--device cuda] [--steps 12] [--n 8] [--prompts 32]

Both run in one command on one machine, one after the other, with the same model, data, caps, batch settings and reward,
and nothing is set differently but the recipe. The reward is a coin (`coin_reward.py`): it makes nearly every group
live, the worst case for Agon, which skips the groups that teach nothing while stock verl trains on them. The first
steps warm up and are left out; the table has medians with the range, from verl's own timers.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
WARM_UP = 2
PARTS = ("gen", "old_log_prob", "adv", "update_actor", "update_weights", "step")


def shared(args: argparse.Namespace) -> list[str]:
    """Settings that both runs get, after their recipe's."""
    micro = args.micro_batch
    return [
        f"actor_rollout_ref.model.path={args.model}",
        f"data.train_files={args.data}",
        f"data.val_files={args.data}",
        f"data.train_batch_size={args.prompts}",
        f"data.max_prompt_length={args.prompt_length}",
        f"data.max_response_length={args.response_length}",
        "data.dataloader_num_workers=0",
        "data.seed=0",
        f"actor_rollout_ref.rollout.max_model_len={args.prompt_length + args.response_length}",
        "actor_rollout_ref.rollout.max_num_seqs=512",
        "actor_rollout_ref.rollout.agent.num_workers=2",
        "actor_rollout_ref.rollout.tensor_model_parallel_size=1",
        "actor_rollout_ref.rollout.gpu_memory_utilization=0.3",
        "actor_rollout_ref.rollout.load_format=safetensors",
        "actor_rollout_ref.rollout.calculate_log_probs=true",
        f"actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu={micro}",
        f"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu={micro}",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={args.prompts}",
        "actor_rollout_ref.actor.use_dynamic_bsz=false",
        "actor_rollout_ref.actor.strategy=fsdp2",
        "actor_rollout_ref.actor.optim.lr=5e-5",
        "actor_rollout_ref.model.lora_rank=16",
        "actor_rollout_ref.model.lora_alpha=32",
        "actor_rollout_ref.model.use_remove_padding=false",
        "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units=2",
        "+ray_kwargs.ray_init.include_dashboard=false",
        "reward.num_workers=2",
        f"reward.custom_reward_function.path={HERE / 'coin_reward.py'}",
        f"trainer.total_training_steps={args.steps}",
        "trainer.n_gpus_per_node=1",
        "trainer.nnodes=1",
        "trainer.logger=[console,file]",
        "trainer.val_before_train=false",
        "trainer.test_freq=-1",
        "trainer.save_freq=-1",
        "trainer.resume_mode=disable",
        *args.overrides,
    ]


def on_cpu() -> list[str]:
    """What verl needs on a machine without an accelerator, for stock as for Agon."""
    return [
        "trainer.device=cpu",
        "ray_kwargs.ray_init.num_cpus=16",
        "+ray_kwargs.ray_init.num_gpus=1",
        "actor_rollout_ref.rollout.dtype=float32",
        "actor_rollout_ref.rollout.enforce_eager=true",
        "actor_rollout_ref.rollout.free_cache_engine=false",
        "+actor_rollout_ref.rollout.enable_sleep_mode=false",
        "actor_rollout_ref.model.enable_gradient_checkpointing=false",
        "actor_rollout_ref.actor.use_torch_compile=false",
        "actor_rollout_ref.actor.fsdp_config.use_torch_compile=false",
        "+actor_rollout_ref.actor.fsdp_config.mixed_precision={param_dtype:fp32,reduce_dtype:fp32,buffer_dtype:fp32}",
    ]


def commands(args: argparse.Namespace) -> dict[str, list[str]]:
    stock = [
        "algorithm.adv_estimator=grpo",
        "actor_rollout_ref.rollout.name=vllm",
        f"actor_rollout_ref.rollout.n={2 * args.n}",
        *shared(args),
    ]
    agon = ["+recipe=agon", f"actor_rollout_ref.rollout.n={args.n}", *shared(args)]
    return {
        name: [*run, *(on_cpu() if args.device == "cpu" else [])] for name, run in (("stock", stock), ("agon", agon))
    }


def run(name: str, overrides: list[str], out: Path) -> Path:
    metrics = out / f"{name}.jsonl"
    metrics.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp") as ray_dir, (out / f"{name}.log").open("w") as log:
        environment = {**os.environ, "VERL_FILE_LOGGER_PATH": str(metrics), "RAY_TMPDIR": ray_dir}
        command = [sys.executable, "-m", "verl.trainer.main_ppo", *overrides, f"trainer.default_local_dir={out / name}"]
        subprocess.run(command, check=True, env=environment, stdout=log, stderr=subprocess.STDOUT)
    return metrics


def medians(metrics: Path) -> dict[str, tuple[float, float, float]]:
    """Median, least and most seconds of each part over the steps after warm-up."""
    steps = [json.loads(line)["data"] for line in metrics.read_text().splitlines()]
    timed = [{p: s[f"timing_s/{p}"] for p in PARTS} for s in steps if s.get("training/global_step", 0) > WARM_UP]
    columns = {part: [step[part] for step in timed] for part in PARTS}
    columns["rest"] = [step["step"] - sum(step[part] for part in PARTS[:-1]) for step in timed]
    return {part: (statistics.median(c), min(c), max(c)) for part, c in columns.items()}


def table(stock: dict, agon: dict) -> str:
    lines = ["| seconds | stock GRPO, 2N | Agon, N + N | ratio |", "|---|---|---|---|"]
    for part in (*PARTS[:-1], "rest", "step"):
        (a, *range_a), (b, *range_b) = stock[part], agon[part]
        cells = [f"{m:.2f} ({low:.2f}–{high:.2f})" for m, (low, high) in ((a, range_a), (b, range_b))]
        lines.append(f"| {part} | {cells[0]} | {cells[1]} | {b / a:.2f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--n", type=int, default=8)
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--prompt-length", type=int, default=512)
    parser.add_argument("--response-length", type=int, default=256)
    parser.add_argument("--micro-batch", type=int, default=64)
    parser.add_argument("overrides", nargs="*", help="further settings for both runs, as verl's command takes them")
    parser.add_argument("--out", type=Path, default=Path("outputs/step_time"))
    parser.add_argument(
        "--only", choices=("stock", "agon"), help="run one of the two, and show the table from what is there"
    )
    args = parser.parse_args()
    out = args.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    for name, overrides in commands(args).items():
        if args.only in (None, name):
            run(name, overrides, out)
    if (out / "stock.jsonl").exists() and (out / "agon.jsonl").exists():
        print(table(medians(out / "stock.jsonl"), medians(out / "agon.jsonl")))


if __name__ == "__main__":
    main()
