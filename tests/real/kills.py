"""Kill -9 at random moments of a real training run, again and again: what each restart goes on from.

    python -m tests.real.kills [--kills 20] [--seed 0] [--out outputs/kills]

Takes about two minutes a kill, so it is a command and no test; `test_resume.py` has one such kill. A tiny model, a save
after each step. Every kill takes all of the run's processes at once: some at any moment (start-up included), half of
them inside a save, which is waited for. Nothing is cleaned up in between. Each restart must go on from the checkpoint
that was complete at the kill; the table shows which one it was. The last line is the exit status: 0 if all did.
"""

import argparse
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file

from agon_verl.pair import checkpoint
from agon_verl.pair.checkpoint import Manifest
from tests.real.runs import ROOT, kill_marked, ray_environment, read_jsonl
from tests.tiny import make_data, make_model

RESUMED = re.compile(r"Resuming from \S*global_step_(\d+)")


def command(out: Path) -> list[str]:
    return [
        *(sys.executable, "-m", "verl.trainer.main_ppo", "+recipe=agon_cpu"),
        f"actor_rollout_ref.model.path={out / 'model'}",
        f"data.train_files={out / 'train.parquet'}",
        f"data.val_files={out / 'train.parquet'}",
        *("data.train_batch_size=4", "data.max_response_length=32", "actor_rollout_ref.rollout.n=4"),
        f"reward.custom_reward_function.path={ROOT / 'benchmarks' / 'coin_reward.py'}",
        *("trainer.total_epochs=1000", "trainer.total_training_steps=10000", "trainer.val_before_train=false"),
        *("trainer.save_freq=1", "trainer.max_actor_ckpt_to_keep=2", "trainer.logger=[console,file]"),
        f"trainer.default_local_dir={out / 'run'}",
    ]


def newest(root: Path) -> int:
    """The step that a restart goes on from, its checkpoint read in full; 0 for none."""
    folder = checkpoint.latest(root)
    if folder is None:
        return 0
    step = Manifest.read(folder).step
    assert folder.name == f"global_step_{step}"
    torch.load(folder / "actor" / checkpoint.TRAINING_STATE, weights_only=True)
    for name in ("data.pt", "trainer.pt", "actor/rng_0.pt"):
        torch.load(folder / name, weights_only=False)
    for adapter in "AB":
        assert load_file(folder / "actor" / adapter / checkpoint.ADAPTER_FILE)
    return step


def wait(until: Callable[[], bool], process: subprocess.Popen, pause: float = 0.05) -> None:
    while not until():
        if process.poll() is not None:
            raise RuntimeError(f"the run ended by itself with status {process.returncode}: see its log")
        time.sleep(pause)


def one(out: Path, number: int, chance: random.Random, inside_save: bool) -> dict:
    """Start or restart the run, kill it, and see what it went on from and what it left."""
    root, expected = out / "run", newest(out / "run")
    log, metrics = out / f"{number}.log", out / f"{number}.jsonl"
    with ray_environment({"VERL_FILE_LOGGER_PATH": str(metrics)}) as (environment, mark), log.open("w") as file:
        process = subprocess.Popen(
            command(out), cwd=out, env=environment, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
        started, moment = time.monotonic(), "start-up"
        if inside_save or chance.random() < 0.7:
            steps = chance.randint(1, 2)
            wait(lambda: metrics.exists() and len(read_jsonl(metrics)) >= steps, process)
            if inside_save:
                moment = "save"
                wait(lambda: any(root.glob(".saving_*")), process, pause=0.0005)
                time.sleep(chance.uniform(0, 0.1))
            else:
                moment = "step"
                time.sleep(chance.uniform(0, 6))
        else:
            time.sleep(chance.uniform(5, 80))
        kill_marked(mark)
        process.wait()
    resumed = RESUMED.search(log.read_text(errors="replace"))
    left = sorted(entry.name for entry in root.glob(".*") if entry.name != ".agon.lock") if root.exists() else []
    return {
        "moment": moment,
        "expected": expected,
        "resumed": int(resumed[1]) if resumed else 0,
        "reached": len(read_jsonl(metrics)) if metrics.exists() else 0,
        "seconds": time.monotonic() - started,
        "newest": newest(root),
        "left": " ".join(left),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("outputs/kills"))
    args = parser.parse_args()
    out = args.out.absolute()
    out.mkdir(parents=True)
    make_model(out / "model")
    make_data(out / "train.parquet", 24)
    chance, bad = random.Random(args.seed), 0
    print("| kill | at | seconds | resumed from | complete before | steps done | complete after | left behind |")
    print("|---|---|---|---|---|---|---|---|")
    for number in range(1, args.kills + 1):
        result = one(out, number, chance, inside_save=number % 2 == 0)
        # A kill before the trainer loads its state says nothing about what it would have loaded.
        good = result["newest"] >= result["expected"] and (
            result["resumed"] == result["expected"] or (result["moment"] == "start-up" and not result["resumed"])
        )
        bad += not good
        cells = [
            result["moment"],
            f"{result['seconds']:.0f}",
            result["resumed"] or "none",
            result["expected"] or "none",
        ]
        cells += [result["reached"], result["newest"], result["left"] or "nothing"]
        print(f"| {number} | " + " | ".join(map(str, cells)) + ("" if good else " WRONG") + " |", flush=True)
    print(f"{args.kills - bad} of {args.kills} restarts went on from the newest complete checkpoint")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
