"""The cost of a second adapter in vLLM: one slot and adapter compared with two, each with half of the requests.

    python benchmarks/second_adapter.py --model MODEL [--requests 64] [--tokens 96] [--rounds 10]

Both engines run at the same time and take turns, so that other load on the machine affects both; the first round is
warm-up. The adapters are random. On a GPU each engine takes the share --memory, and the memory of the second adapter is
the difference in what is left for the cache of keys and values.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from itertools import count
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from agon_verl.cpu.platform import cpu_only
from agon_verl.inference.players import Players, Sampling
from agon_verl.inference.vllm_engine import Engine

NUMBERS = count()
PROMPT = [{"role": "user", "content": "What is 2+3?"}]


def make_adapters(model: str, rank: int, out: Path) -> tuple[dict[str, Path], int]:
    """Folders of two random adapters, and how many parameters each has."""
    config = LoraConfig(r=rank, target_modules="all-linear", init_lora_weights=False, task_type="CAUSAL_LM")
    for seed, name in enumerate("AB"):
        torch.manual_seed(seed)
        peft = get_peft_model(AutoModelForCausalLM.from_pretrained(model), config)
        peft.save_pretrained(out / name)
    return {name: out / name for name in "AB"}, peft.get_nb_trainable_parameters()[0]


async def tokens_per_second(engine: Engine, requests: int, tokens: int) -> float:
    """Calls vLLM directly, to ignore the end of a turn: adapters differ in where they put it."""
    from vllm import SamplingParams

    loras, prompt = [*engine._loras.values()], engine.prompt_ids(PROMPT)

    async def one(number: int) -> None:
        sampling = SamplingParams(max_tokens=tokens, ignore_eos=True, detokenize=False)
        lora = loras[number % len(loras)]
        async for _ in engine._llm.generate(
            {"prompt_token_ids": prompt}, sampling, f"{next(NUMBERS)}", lora_request=lora
        ):
            pass

    started = time.perf_counter()
    await asyncio.gather(*map(one, range(requests)))
    return requests * tokens / (time.perf_counter() - started)


def start(args: argparse.Namespace, adapters: dict[str, Path]) -> Engine:
    memory = {} if cpu_only() else {"gpu_memory_utilization": args.memory}
    sampling = Sampling(max_tokens=args.tokens)
    players = Players(args.model, args.model, adapters=adapters, rank=args.rank, sampling=sampling, max_prompt=64)
    return Engine(players, max_num_seqs=args.requests, **memory)


async def compare(args: argparse.Namespace, adapters: dict[str, Path], parameters: int) -> None:
    engines: dict[int, Engine] = {}
    speeds: dict[int, list[float]] = {1: [], 2: []}
    try:
        for number in speeds:
            engines[number] = start(args, dict([*adapters.items()][:number]))
        for _ in range(args.rounds + 1):
            for number, engine in engines.items():
                speeds[number].append(await tokens_per_second(engine, args.requests, args.tokens))
        print(f"{parameters:,} parameters per adapter, {args.requests} requests of {args.tokens} tokens")
        for number, engine in engines.items():
            rounds, cache = speeds[number][1:], engine._llm.vllm_config.cache_config
            speed = f"{statistics.median(rounds):,.0f} tokens/s ({min(rounds):,.0f}–{max(rounds):,.0f})"
            print(f"{number}: {speed}; room for {(cache.num_gpu_blocks or 0) * cache.block_size:,} tokens in the cache")
        ratios = [two / one for one, two in zip(speeds[1][1:], speeds[2][1:], strict=True)]
        print(f"two / one: {statistics.median(ratios):.3f} ({min(ratios):.3f}–{max(ratios):.3f}), {args.rounds} rounds")
    finally:
        for engine in engines.values():
            engine.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--memory", type=float, default=0.3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(compare(args, *make_adapters(args.model, args.rank, Path(folder))))


if __name__ == "__main__":
    main()
