"""vLLM with the pair's scheduler and worker: are its log-probs those of the tokens that it returns? Prints JSON.

    python -m tests.gpu.rescored MODEL RUNNER        # vLLM's model runner: 1 or 2

The cache is too small for all requests that may run at a time, so that some are preempted and begin again; the others
wait, and take the places of those that end, each after another number of tokens. Each completion is then read as a
prompt by the same engine: a token that went into the model at a wrong place, or not at all, would change the log-probs
after it.
"""

import json
import math
import os
import random
import sys
from pathlib import Path
from statistics import mean

from agon_verl.cpu.platform import cpu_only

REQUESTS, AT_A_TIME, PROMPT, BLOCK = 120, 48, 40, 16
SHORTEST, LONGEST = 20, 200  # tokens of a completion
CACHED = 16  # completions of full length for which the cache has room


def main(model: str, runner: str) -> dict[str, float]:
    os.environ["VLLM_USE_V2_MODEL_RUNNER"] = str(int(runner) - 1)
    from vllm import LLM, SamplingParams

    from agon_verl.rollout.server import SCHEDULER
    from agon_verl.rollout.wire import WORKER_EXTENSION

    llm = LLM(
        model,
        dtype="float32" if cpu_only() else "bfloat16",
        max_model_len=256,
        max_num_seqs=AT_A_TIME,
        compilation_config={"mode": 0, "cudagraph_mode": "NONE" if cpu_only() else "FULL_DECODE_ONLY"},
        block_size=BLOCK,
        num_gpu_blocks_override=CACHED * math.ceil((PROMPT + LONGEST) / BLOCK),
        kv_cache_memory_bytes=1 << 30,
        distributed_executor_backend="mp",
        scheduler_cls=SCHEDULER,
        worker_extension_cls=WORKER_EXTENSION,
        logprobs_mode="processed_logprobs",
        disable_log_stats=False,
    )
    text = llm.get_tokenizer().encode(Path(__file__).read_text() * 4)
    chance = random.Random(0)
    prompts = [text[place : place + PROMPT] for place in chance.sample(range(len(text) - PROMPT), REQUESTS)]
    sampling = [
        SamplingParams(max_tokens=chance.randint(SHORTEST, LONGEST), logprobs=0, ignore_eos=True, detokenize=False)
        for _ in prompts
    ]
    completions = [each.outputs[0] for each in llm.generate([{"prompt_token_ids": ids} for ids in prompts], sampling)]
    preempted = sum(metric.value for metric in llm.get_metrics() if metric.name == "vllm:num_preemptions")
    texts = [{"prompt_token_ids": [*ids, *done.token_ids]} for ids, done in zip(prompts, completions, strict=True)]
    reading = SamplingParams(max_tokens=1, prompt_logprobs=0, detokenize=False)
    gaps = [
        [
            abs(math.exp(sampled[token].logprob) - math.exp(read[token].logprob))
            for token, sampled, read in zip(done.token_ids, done.logprobs, answer.prompt_logprobs[PROMPT:], strict=True)
        ]
        for done, answer in zip(completions, llm.generate(texts, reading), strict=True)
    ]
    return {
        "preempted": preempted,
        "tokens": sum(map(len, gaps)),
        "gap": mean(map(mean, gaps)),
        "worst completion": max(map(mean, gaps)),
    }


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
