"""What decoding and training cost each other on one GPU, by the trainer's priority and share of its processors.

    nvidia-cuda-mps-control -d
    python -m benchmarks.shared_gpu [--shares 100 80 70 60 50 40]
    python -m benchmarks.shared_gpu --shares 100                    # without the first line: they take turns

Not vLLM and not the trainer, but products of the same sizes, of a model of 1.5 B parameters: a CUDA graph with the
layers of one token of 128 sequences, and in another process products of 16,384 tokens without a pause. The second
process alone has the share (CUDA_MPS_ACTIVE_THREAD_PERCENTAGE) and the priority (CUDA_MPS_CLIENT_PRIORITY, 1 is below
normal). Before that, it is asked whether its products are right: forward and backward, with and without a layer of
rank 16, against products in float32.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import product

import torch

SHARE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
PRIORITY = "CUDA_MPS_CLIENT_PRIORITY"
PRIORITIES = ("normal", "below normal")  # by their numbers
WIDTH, INNER, QKV, VOCABULARY, LAYERS, RANK = 1536, 8960, 2048, 151_936, 28, 16
SEQUENCES, TOKENS = 128, 16_384
CHECKED = (60, 700, 4096, TOKENS)  # rows of the products that are checked
TOLERANCE = 0.02  # of the largest entry; in bfloat16 it is 0.003
SIDES = ((WIDTH, QKV), (WIDTH, WIDTH), (WIDTH, 2 * INNER), (INNER, WIDTH))
THIN = tuple((side, RANK) for side in (WIDTH, INNER)) + tuple((RANK, side) for side in (WIDTH, INNER))


def normal(*size: int) -> torch.Tensor:
    return torch.randn(*size, device="cuda", dtype=torch.bfloat16)


def wrong_products() -> Iterator[str]:
    for rows, (inside, outside) in product(CHECKED, SIDES + THIN):
        x, w, gradient = normal(rows, inside), normal(outside, inside), normal(rows, outside)
        pairs = {
            "forward": (x @ w.T, x.float() @ w.float().T),
            "backward, input": (gradient @ w, gradient.float() @ w.float()),
            "backward, weight": (gradient.T @ x, gradient.float().T @ x.float()),
        }
        for name, (ours, exact) in pairs.items():
            error = float((ours.float() - exact).abs().max() / exact.abs().max())
            if not error < TOLERANCE:  # also if it is not a number
                yield f"{rows} x {inside} x {outside}, {name}: {error:.2g}"


def decoding() -> Callable[[], None]:
    """A graph of one token. The thin products stand for the kernels of adapters."""
    layers = [[normal(outside, inside) for inside, outside in SIDES] for _ in range(LAYERS)]
    thin, output, start = normal(RANK, WIDTH), normal(VOCABULARY, WIDTH), normal(SEQUENCES, WIDTH)

    def token() -> torch.Tensor:
        x = start
        for qkv, back, up, down in layers:
            x = torch.rms_norm(x + (x @ qkv.T)[:, :WIDTH] @ back.T, (WIDTH,))
            gate, value = (x @ up.T).chunk(2, 1)
            x = torch.rms_norm(x + (torch.nn.functional.silu(gate) * value) @ down.T, (WIDTH,))
            for _ in range(4):
                x = x + (x @ thin.T) @ thin
        return x @ output.T

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(torch.cuda.Stream()):
        token()
        torch.cuda.synchronize()
        graph.capture_begin()
        token()
        graph.capture_end()
    return graph.replay


def training() -> Callable[[], None]:
    x, w, gate = normal(TOKENS, WIDTH), normal(INNER, WIDTH), normal(TOKENS, INNER)

    def layers() -> None:
        for _ in range(8):
            (torch.nn.functional.silu(x @ w.T) * gate) @ w

    return layers


def repeat(work: Callable[[], None], seconds: float) -> list[float]:
    """Milliseconds of each call."""
    times, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        started = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(1000 * (time.perf_counter() - started))
    return times


def trainer(seconds: float) -> None:
    """The process with a share. It says when it begins to train, and how fast it was."""
    print(torch.cuda.get_device_properties(0).multi_processor_count, flush=True)
    wrong = [*wrong_products()]
    print(f"{len(wrong)} wrong" + (f", the first: {wrong[0]}" if wrong else ""), flush=True)
    work = training()
    repeat(work, 1)
    print("trains", flush=True)
    ms = statistics.mean(repeat(work, seconds))
    print(f"{8 * 4 * TOKENS * WIDTH * INNER / ms / 1e9:.0f}", flush=True)


def beside(token: Callable[[], None], share: int, priority: int, seconds: float) -> str:
    """A row of the table: decoding goes on until the trainer has ended; its last fifth, without one, is left out."""
    command = [sys.executable, "-m", "benchmarks.shared_gpu", "--trainer", "--seconds", str(seconds)]
    environment = {**os.environ, SHARE: str(share), PRIORITY: str(priority)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        processors, wrong, _ = (process.stdout.readline().strip() for _ in range(3))
        times: list[float] = []
        while process.poll() is None:
            times += repeat(token, 0.1)
        rate = process.stdout.readline().strip()
    if process.returncode or not rate:
        raise SystemExit(f"the trainer with a share of {share} % ended with status {process.returncode}")
    ms = statistics.median(times[: max(1, 4 * len(times) // 5)])
    return f"| {share} | {PRIORITIES[priority]} | {processors} | {wrong} | {ms:.2f} | {rate} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shares", type=int, nargs="+", default=[100, 80, 70, 60, 50, 40], metavar="PERCENT")
    parser.add_argument("--seconds", type=float, default=3, help="per row (3)")
    parser.add_argument("--trainer", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.manual_seed(0)
    if args.trainer:
        trainer(args.seconds)
        return
    for name in (SHARE, PRIORITY):
        os.environ.pop(name, None)
    token = decoding()
    print("| share | priority | processors | products | a token, ms | training, TFLOP/s |\n|---|---|---|---|---|---|")
    print(f"| – | – | – | – | {statistics.median(repeat(token, args.seconds)):.2f} | – |", flush=True)
    for share, priority in product(args.shares, range(len(PRIORITIES))):
        print(beside(token, share, priority, args.seconds), flush=True)


if __name__ == "__main__":
    main()
