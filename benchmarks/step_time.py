"""How long a step takes: stock verl GRPO with 2N rollouts per problem, and Agon with N drafts and N challenges.

    python benchmarks/step_time.py --model MODEL --data DATA.parquet [--device cuda] [--steps 12] [--n 8] [--prompts 32]

Both run in one command on one machine, one after the other, with the same model, data, caps, batch settings and reward,
and differ in the recipe only. The reward is random (`coin_reward.py`), so that every group is live unless all its
completions are equal: the worst case for Agon, which skips dead groups while stock verl trains on them. The first
steps are warm-up and are left out; the table has medians with the range, from verl's own timers. Rewards are computed
during generation and have no row; there is no reference pass, because the KL term is off.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
WARM_UP = 2
PARTS = ("gen", "old_log_prob", "adv", "update_actor", "update_weights", "step")


def shared(args: argparse.Namespace) -> list[str]:
    """Settings of both runs, in addition to their recipes."""
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
        "+reward.custom_reward_function.reward_kwargs.ties=false",
        f"trainer.total_training_steps={args.steps}",
        "trainer.total_epochs=1000",  # total_training_steps ends the run
        f"trainer.n_gpus_per_node={args.ranks}",
        "trainer.nnodes=1",
        "trainer.logger=[console,file]",
        "trainer.val_before_train=false",
        "trainer.test_freq=-1",
        "trainer.save_freq=-1",
        "trainer.resume_mode=disable",
        *args.overrides,
    ]


def on_cpu(ranks: int) -> list[str]:
    """What verl needs on a machine without an accelerator, for stock as for Agon."""
    return [
        "trainer.device=cpu",
        "ray_kwargs.ray_init.num_cpus=16",
        "+ray_kwargs.ray_init._system_config.task_events_max_num_task_in_gcs=10000",
        f"+ray_kwargs.ray_init.num_gpus={ranks}",
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
        name: [*run, *(on_cpu(args.ranks) if args.device == "cpu" else [])]
        for name, run in (("stock", stock), ("agon", agon))
    }


def run(name: str, overrides: list[str], out: Path, watch: Callable[[str, Path], None] | None = None) -> Path:
    """`watch` is called several times per second, with a variable that marks the run's processes, and the metrics."""
    metrics = out / f"{name}.jsonl"
    metrics.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp") as ray_dir, (out / f"{name}.log").open("w") as log:
        environment = {**os.environ, "VERL_FILE_LOGGER_PATH": str(metrics), "RAY_TMPDIR": ray_dir}
        command = [sys.executable, "-m", "verl.trainer.main_ppo", *overrides, f"trainer.default_local_dir={out / name}"]
        begun, first = time.time(), 0.0
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
        while process.poll() is None:
            if not first and metrics.exists() and metrics.stat().st_size:
                first = time.time() - begun
            if watch:
                watch(f"RAY_TMPDIR={ray_dir}", metrics)
            time.sleep(0.2)
        if process.returncode:
            raise SystemExit(f"{name} failed: see {out / f'{name}.log'}")
    logged = len(metrics.read_text().splitlines())
    if f"trainer.total_training_steps={logged}" not in overrides:
        raise SystemExit(f"{name} ended after {logged} steps: see {out / f'{name}.log'}")
    (out / f"{name}.first").write_text(f"{first:.1f}")
    return metrics


def measured(out: Path, name: str, rollouts: int, ranks: int) -> dict[str, list[float]]:
    """The values of each row of the table, one per step after warm-up."""
    logged = [json.loads(line)["data"] for line in (out / f"{name}.jsonl").read_text().splitlines()]
    first = float((out / f"{name}.first").read_text()) - logged[0]["timing_s/step"]
    rows: dict[str, list[float]] = {"start-up, s": [first]}
    for step in (s for s in logged if s.get("training/global_step", 0) > WARM_UP):
        seconds = {part: step.get(f"timing_s/{part}", 0.0) for part in PARTS}
        trained = seconds["old_log_prob"] + seconds["update_actor"]
        # The mean over ranks, of each stream; Agon leaves dead groups out and fills batches up.
        tokens = ranks * sum(value for key, value in step.items() if key.endswith("global_seqlen/mean"))
        memory = [value for key, value in step.items() if key.endswith("perf/max_memory_allocated_gb")]
        values = {f"{part}, s": value for part, value in seconds.items()} | {
            "rest, s": seconds["step"] - sum(seconds[part] for part in PARTS[:-1]),
            "old_log_prob + update_actor, s": trained,
            "tokens generated per second": rollouts * step["response_length/mean"] / seconds["gen"],
            "tokens trained on per second": tokens / trained,
            "tokens trained on": tokens,
            "peak training memory, GiB": max(memory),
        }
        for row, value in values.items():
            rows.setdefault(row, []).append(value)
    return rows


def table(stock: dict[str, list[float]], agon: dict[str, list[float]]) -> str:
    lines = ["| median (range) | stock GRPO, 2N | Agon, N + N | ratio |", "|---|---|---|---|"]
    for row in stock:
        a, b = statistics.median(stock[row]), statistics.median(agon[row])
        ratio = f"{b / a:.2f}" if a else "–"
        lines.append(f"| {row} | {_cell(stock[row])} | {_cell(agon[row])} | {ratio} |")
    return "\n".join(lines)


def _cell(values: list[float]) -> str:
    digits = 0 if statistics.median(values) >= 1000 else 2
    low, middle, high = (f"{v:,.{digits}f}" for v in (min(values), statistics.median(values), max(values)))
    return middle if low == high else f"{middle} ({low}–{high})"


def arguments(description: str | None, out: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--n", type=int, default=8)
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--prompt-length", type=int, default=512)
    parser.add_argument("--response-length", type=int, default=256)
    parser.add_argument("--micro-batch", type=int, default=64)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("overrides", nargs="*", help="further settings for both runs, as verl's command takes them")
    parser.add_argument("--out", type=lambda path: Path(path).absolute(), default=Path(out).absolute())
    return parser


def main() -> None:
    parser = arguments(__doc__, "outputs/step_time")
    parser.add_argument(
        "--only", choices=("stock", "agon"), help="run one of the two, and print the table if both have results"
    )
    args = parser.parse_args()
    out = args.out
    out.mkdir(parents=True, exist_ok=True)
    for name, overrides in commands(args).items():
        if args.only in (None, name):
            run(name, overrides, out)
    if (out / "stock.jsonl").exists() and (out / "agon.jsonl").exists():
        rollouts = 2 * args.n * args.prompts
        print(table(*(measured(out, name, rollouts, args.ranks) for name in ("stock", "agon"))))


if __name__ == "__main__":
    main()
