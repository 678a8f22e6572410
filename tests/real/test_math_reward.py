"""The math verifier where verl calls it: in a reward worker, an asyncio actor of Ray's, off the main thread."""

import tempfile
import time
from pathlib import Path

import numpy as np
import psutil

from agon_verl.game.transcript import ENDED

SUM, SAME_SUM = r"\sum_{k=1}^{n} k", r"\frac{n(n+1)}{2}"  # needs the worker processes
ENDLESS = r"\sum_{k=1}^{n} 9^{9^{9^{k}}}"


def test_verls_reward_worker(tiny: Path) -> None:
    import ray
    import torch
    from omegaconf import OmegaConf
    from transformers import AutoTokenizer
    from verl import DataProto
    from verl.experimental.reward_loop.reward_loop import RewardLoopWorker

    config = OmegaConf.create(
        {
            "actor_rollout_ref": {"model": {"path": str(tiny / "model"), "tokenizer_path": None}},
            "reward": {
                "reward_model": {"enable": False},
                "reward_manager": {"source": "register", "name": "naive"},
                "custom_reward_function": {
                    "path": "pkg://reward_fns.math_answer",
                    "name": "compute_score",
                    "reward_kwargs": {"format_weight": 0.5, "time_limit": 1.0},
                },
            },
        }
    )
    tokenizer = AutoTokenizer.from_pretrained(tiny / "model")
    cases = [(SAME_SUM, SUM, "correct"), ("n^2", SUM, "wrong"), (ENDLESS, SUM, "timeout"), ("12", "12", "correct")]
    written = [f"<think>r</think><answer>{answer}</answer>" for answer, _, _ in cases]
    # What the rollout reports of a completion decides about an answer inside reasoning that never closes.
    cases += [("12", "12", "correct"), ("12", "12", "no_answer")]
    written += ["<think>r<answer>12</answer>"] * 2
    reported = [{}] * (len(cases) - 2) + [{ENDED: True}, {ENDED: False}]
    texts = [tokenizer(text)["input_ids"] for text in written]
    readable = [tokenizer.decode(text, skip_special_tokens=True) for text in texts]
    length = max(map(len, texts))
    batch = DataProto.from_dict(
        tensors={
            "responses": torch.tensor([text + [0] * (length - len(text)) for text in texts]),
            "attention_mask": torch.tensor([[1] * len(text) + [0] * (length - len(text)) for text in texts]),
        },
        non_tensors={
            "data_source": np.array(["test"] * len(cases), dtype=object),
            "reward_model": np.array([{"ground_truth": gold} for _, gold, _ in cases], dtype=object),
            "extra_info": np.array([{} for _ in cases], dtype=object),
            "tool_extra_fields": np.array(reported, dtype=object),
        },
    )
    assert SAME_SUM in readable[0].replace(" ", ""), "the tiny tokenizer must be able to spell the answer"
    before = _pool_processes()
    # Ray's sockets live below this path, and a socket's path may have no more than 107 characters.
    with tempfile.TemporaryDirectory(prefix="agon", dir="/tmp") as folder:
        ray.init(num_cpus=2, include_dashboard=False, _temp_dir=folder)
        try:
            worker = ray.remote(RewardLoopWorker).remote(config)
            results = ray.get(worker.compute_score_batch.remote(batch), timeout=120)
            assert [item["reward_extra_info"]["verdict"] for item in results] == [verdict for _, _, verdict in cases]
            assert [item["reward_score"] for item in results] == [2.5, 0.5, 0.5, 2.5, 2.0, 0.0]
            pool = _pool_processes() - before
            assert pool
            ray.kill(worker)
            _, alive = psutil.wait_procs(pool, timeout=20)
            assert not alive
        finally:
            ray.shutdown()
            time.sleep(1)  # its processes write to the folder until they end


def _pool_processes() -> set[psutil.Process]:
    """The descendants of this process that compare answers; other tests may have left a pool of their own."""
    pool = set()
    for process in psutil.Process().children(recursive=True):
        try:
            if any("reward_fns.mathematics.pool_worker" in part for part in process.cmdline()):
                pool.add(process)
        except psutil.Error:
            continue
    return pool
