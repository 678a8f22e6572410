"""The size of a checkpoint of a pair compared with its base, and the time to save and load it.

    python benchmarks/checkpoint.py --model MODEL [--rank 16] [--repeats 5]

Only the engine, in one process, on the CPU: two adapters that have both been updated once, so that they have moments.
It saves as the trainer does: written, flushed to disk, renamed.
"""

import argparse
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import torch
import verl.trainer.main_ppo  # noqa: F401  loads the plugin
from hydra import compose, initialize_config_module
from verl.utils.config import omega_conf_to_dataclass

from agon_verl.actor.engine import MultiAdapterEngine
from agon_verl.actor.tensors import adapter_parameters
from agon_verl.game.roles import ADAPTERS
from agon_verl.pair.base import hash_of_base
from agon_verl.pair.checkpoint import Manifest, committing


def make_engine(model: str, rank: int) -> MultiAdapterEngine:
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose(
            "ppo_trainer",
            [
                "+recipe=agon_cpu",
                f"actor_rollout_ref.model.path={model}",
                f"actor_rollout_ref.model.lora_rank={rank}",
            ],
        )
    config.actor_rollout_ref.actor.optim.total_training_steps = 10
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    engine = MultiAdapterEngine(
        omega_conf_to_dataclass(config.actor_rollout_ref.model), actor.engine, actor.optim, actor.checkpoint
    )
    engine.initialize()
    for adapter in ADAPTERS:
        for parameter in adapter_parameters(engine.module, adapter).values():
            parameter.grad = torch.ones_like(parameter)
        engine.activate(adapter)
        engine.optimizer_step()
    return engine


def size(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    os.environ.setdefault("LOCAL_RANK", "0")
    with tempfile.TemporaryDirectory() as folder:
        torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        engine = make_engine(args.model, args.rank)
        started = time.perf_counter()
        base_hash = hash_of_base(Path(args.model))
        hashing = time.perf_counter() - started
        root, saves, loads = Path(folder, "run"), [], []
        for step in range(args.repeats):
            started = time.perf_counter()
            with committing(root, step) as scratch:
                engine.save_checkpoint(str(scratch / "actor"))
                Manifest(step, args.model, base_hash, {}, {}, {}, {}).write(scratch)
            saves.append(time.perf_counter() - started)
            started = time.perf_counter()
            engine.load_checkpoint(str(root / f"global_step_{step}" / "actor"))
            loads.append(time.perf_counter() - started)
        base = sum(path.stat().st_size for path in Path(args.model).glob("*.safetensors")) / 1e6
        checkpoint = size(root / "global_step_0")
        adapters = size(root / "global_step_0" / "actor" / "A") + size(root / "global_step_0" / "actor" / "B")
        shutil.rmtree(root)
        torch.distributed.destroy_process_group()
    share = f"{checkpoint:.0f} MB ({checkpoint / base:.0%}), {adapters:.0f} MB of it adapters"
    print(f"base {base:.0f} MB; checkpoint {share}")
    for what, times in (("save", saves), ("load", loads)):
        print(f"{what} {statistics.median(times):.2f} s ({min(times):.2f} to {max(times):.2f}, {args.repeats} times)")
    print(f"hash of the base {hashing:.3f} s")


if __name__ == "__main__":
    main()
