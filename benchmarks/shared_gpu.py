"""What decoding and training cost each other on one GPU, as in a streamed step, by the trainer's share of it.

    nvidia-cuda-mps-control -d
    python -m benchmarks.shared_gpu --model MODEL --out shared_gpu.jsonl [--shares 100 70 50] [--sequences 128]

vLLM decodes with two adapters, in the settings of `benchmarks.decode --variants sends_once`, while a trainer of its
own process updates one adapter again and again. The share is CUDA_MPS_ACTIVE_THREAD_PERCENTAGE of the trainer alone;
0 is decoding without a trainer. Without NVIDIA's Multi-Process Service the two take turns, and the share has no effect.
Each trainer is also measured while nothing is decoded. One JSON line per share, written as soon as it is measured.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from agon_verl.cpu.platform import cpu_only, vllm_environment

SHARE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
VARIANT = "sends_once+prompt_graphs"
PROMPT, ROWS = 256, 32  # of an update: tokens of a prompt, rows
ALONE = 3  # updates of a trainer by itself


class Trainer:
    """A process that updates while the file `go` is there, and writes the seconds of each update."""

    def __init__(self, share: int, folder: Path, options: argparse.Namespace) -> None:
        self.share, self._go, self._log = share, folder / f"{share}.go", folder / f"{share}.log"
        command = [sys.executable, "-m", "benchmarks.shared_gpu", "--model", options.model, "--cap", str(options.cap)]
        command += ["--micro-batch", str(options.micro_batch), "--trainer", str(folder / str(share))]
        environment = {**os.environ, SHARE: str(share)}
        self._process = subprocess.Popen(command, env=environment, stdout=self._log.open("w"), stderr=subprocess.STDOUT)
        self._updates = folder / f"{share}.updates"

    async def ready(self) -> None:
        while not self._updates.exists():
            if self._process.poll() is not None:
                raise RuntimeError(f"the trainer ended: {self._log.read_text()[-2000:]}")
            await asyncio.sleep(0.1)

    def start(self) -> None:
        self._go.touch()

    async def stop(self) -> None:
        before = len(self.updates())
        self._go.unlink()
        while len(self.updates()) == before:  # the one that runs
            await asyncio.sleep(0.05)

    def updates(self) -> list[dict[str, float]]:
        return [json.loads(line) for line in self._updates.read_text().splitlines()]

    def rate(self, first: int, last: int) -> float:
        """Tokens per second, over complete updates."""
        own = self.updates()[first:last]
        return round(sum(each["tokens"] for each in own) / sum(each["seconds"] for each in own))

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def train(name: Path, options: argparse.Namespace) -> None:
    import torch

    from benchmarks.update_memory import lengths_of, update
    from tests.packed_against_padded import make_engine, one_rank

    lengths, gpu = lengths_of(ROWS, options.cap, PROMPT), not cpu_only()
    overrides = ["agon.init_noise=0.05", "actor_rollout_ref.model.enable_gradient_checkpointing=false"]
    backend = "cpu:gloo,cuda:nccl" if gpu else "gloo"
    with tempfile.TemporaryDirectory() as store, one_rank(Path(store), backend):
        recipe = "agon" if gpu else "agon_cpu"
        engine, loss = make_engine(Path(options.model), recipe, *overrides, packed=True)
        update(engine, loss, lengths, "packed", options.micro_batch, PROMPT)  # kernels, moments
        go, done = name.with_suffix(".go"), name.with_suffix(".updates")
        done.touch()
        while True:
            if not go.exists():
                if gpu:
                    torch.cuda.empty_cache()  # for the others
                time.sleep(0.02)
                continue
            started = time.perf_counter()
            update(engine, loss, lengths, "packed", options.micro_batch, PROMPT)
            if gpu:
                torch.cuda.synchronize()
            with done.open("a") as file:
                file.write(json.dumps({"tokens": sum(lengths), "seconds": time.perf_counter() - started}) + "\n")


async def measure(options: argparse.Namespace) -> None:
    from benchmarks.decode import DEFAULTS, Measured, make_adapters

    for key, value in (vllm_environment() if cpu_only() else DEFAULTS).items():
        os.environ.setdefault(key, value)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        trainers = [Trainer(share, folder, options) for share in options.shares]
        variant = "sends_once" if cpu_only() else VARIANT
        engine = Measured(variant, options, make_adapters(options.model, folder))
        try:
            write(options.out, {"share": 0, **await decoding(engine, options)})
            for trainer in trainers:
                await trainer.ready()
                trainer.start()
                while len(trainer.updates()) < ALONE:
                    await asyncio.sleep(0.05)
                alone = len(trainer.updates())
                cell = await decoding(engine, options)
                both = len(trainer.updates())
                await trainer.stop()
                rates = {"alone": trainer.rate(1, alone), "beside": trainer.rate(alone + 1, max(both, alone + 2))}
                write(options.out, {"share": trainer.share, **cell, "tokens_per_second": rates})
        finally:
            for trainer in trainers:
                trainer.end()
            engine.close()


async def decoding(engine: Any, options: argparse.Namespace) -> dict[str, Any]:
    cell = await engine.cell(options.sequences[0], 2)
    return {"sequences": cell.sequences, "ms": cell.ms, "low": cell.low, "high": cell.high}


def write(out: Path, record: dict[str, Any]) -> None:
    print(json.dumps(record), flush=True)
    with out.open("a") as file:
        file.write(json.dumps(record) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a folder")
    parser.add_argument("--out", type=Path, default=Path("shared_gpu.jsonl"), help="appended to")
    parser.add_argument("--shares", type=int, nargs="+", default=[100, 70, 50], metavar="PERCENT")
    parser.add_argument("--sequences", type=int, nargs=1, default=[128])
    parser.add_argument("--cap", type=int, default=1024, help="of a trained response, in tokens")
    parser.add_argument("--micro-batch", type=int, default=16384, help="tokens")
    parser.add_argument("--context", type=int, default=512, help="tokens of a prompt that is decoded")
    parser.add_argument("--tokens", nargs=2, type=int, default=[32, 544], metavar=("T1", "T2"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cache", type=float, default=8, help="GiB of vLLM's keys and values")
    parser.add_argument("--trainer", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.profile, options.joining, options.memory = None, None, 0.2
    if options.trainer:
        train(options.trainer, options)
    else:
        asyncio.run(measure(options))


if __name__ == "__main__":
    main()
