"""The commands that `tests/gpu` runs: three launches of Agon, one of stock verl, export, evaluation and serving.

Start-up is most of the time, so nothing is compiled, no CUDA graph is captured, and jobs run side by side. vLLM gets a
cache of a fixed size: it would otherwise measure the free memory while another process takes or frees some, and fail.
"""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from examples.toy.problems import distinct
from tests.real.runs import ROOT, Run, kill_marked, main_ppo, marked, python_path, wait_for_step

PROMPTS, N = 4, 4
RESPONSE_TOKENS = 96
SAVED, LAST = 2, 3  # the step whose checkpoint is resumed, and the last one
TRAINED, HELD_OUT = 56, 8  # problems
CACHE = 2 << 30  # bytes of vLLM's cache
PROMPT = "{problem} Reason between <think> and </think>, then answer between <answer> and </answer>."
TIME_LIMIT = 300  # seconds for a command that starts vLLM alone


@dataclass(frozen=True)
class Setting:
    folder: Path
    model: str
    on_cpu: bool
    overrides: tuple[str, ...] = ()
    mark: str = field(default_factory=lambda: f"AGON_GPU_TESTS={os.getpid()}")  # in every process of these tests

    @property
    def environment(self) -> dict[str, str]:
        """FlashInfer compiles its sampler at the first use, and may not be installed."""
        return {"VLLM_USE_FLASHINFER_SAMPLER": "0", **dict([self.mark.split("=")])}

    @property
    def prompt_tokens(self) -> int:
        return 384 if self.on_cpu else 1024  # the tests' own small model has 512 positions

    @property
    def train_file(self) -> Path:
        return self.folder / "data" / "train.parquet"

    @property
    def heldout_file(self) -> Path:
        return self.folder / "data" / "heldout.parquet"

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"


@dataclass(frozen=True)
class Served:
    answer: dict[str, Any]
    returncode: int
    left: int  # processes that outlived the server


@dataclass(frozen=True)
class FirstRuns:
    killed: Future
    stock: Future
    swapped: Future
    packed: Future


@dataclass(frozen=True)
class LaterJobs:
    resumed: Future
    evaluated: Future
    served: Future


def prepare(setting: Setting, table: str | None) -> None:
    """With the data command, as a user does."""
    if table is None:
        table = str(setting.folder / "problems.jsonl")
        problems = distinct(random.Random(0), TRAINED + HELD_OUT)
        Path(table).write_text(
            "".join(json.dumps({"question": p.text, "answer": str(p.answer)}) + "\n" for p in problems)
        )
    command(
        setting,
        *(
            "agon_verl.data",
            "custom",
            "--from",
            table,
            "--problem",
            "question",
            "--answer",
            "answer",
            "--prompt",
            PROMPT,
        ),
        *("--train", 64 - HELD_OUT, "--heldout", HELD_OUT, "--against", "none", "--out", setting.folder / "data"),
    )


def command(setting: Setting, module: str, *arguments: object) -> str:
    """`python -m module …`, of which it returns the output; raises with all that was printed if it fails."""
    line = ["-m", module, *map(str, arguments)]
    done = subprocess.run(
        [sys.executable, *line],
        env={**os.environ, **setting.environment, "PYTHONPATH": python_path()},
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT,
    )
    assert done.returncode == 0, f"{' '.join(line)}:\n{(done.stdout + done.stderr)[-4000:]}"
    return done.stdout


def fit_side_by_side(setting: Setting) -> bool:
    """Whether three processes with the model fit on the GPU: float32 in a trainer, half precision and a cache in vLLM.

    A hub name counts as a model of 2 B parameters: its size is not on this machine yet.
    """
    if setting.on_cpu:
        return False
    import torch

    weights = sum(path.stat().st_size for path in Path(setting.model).glob("*.safetensors")) or 4 << 30
    one = 3 * weights + CACHE + (8 << 30)  # the last for activations, logits and CUDA's own
    return 3 * one < torch.cuda.get_device_properties(0).total_memory


def shared(setting: Setting) -> list[str]:
    """The settings of both kinds of run."""
    sizes = [
        f"actor_rollout_ref.model.path={setting.model}",
        f"data.train_files={setting.train_file}",
        f"data.val_files={setting.heldout_file}",
        f"data.train_batch_size={PROMPTS}",
        f"data.max_prompt_length={setting.prompt_tokens}",
        f"data.max_response_length={RESPONSE_TOKENS}",
        "data.dataloader_num_workers=0",
        f"actor_rollout_ref.rollout.max_model_len={setting.prompt_tokens + RESPONSE_TOKENS}",
        "actor_rollout_ref.rollout.max_num_seqs=64",
        "actor_rollout_ref.rollout.agent.num_workers=1",
        "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=4096",
        "actor_rollout_ref.actor.optim.lr=1e-4",
        "reward.num_workers=1",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
        "ray_kwargs.ray_init.num_cpus=16",
        "trainer.n_gpus_per_node=1",
        "trainer.nnodes=1",
        "trainer.logger=[console,file]",
        "trainer.val_before_train=false",
    ]
    return [*(["+machine=cpu"] if setting.on_cpu else on_gpu()), *sizes, *setting.overrides]


def on_gpu() -> list[str]:
    return [
        "actor_rollout_ref.rollout.enforce_eager=true",
        "actor_rollout_ref.rollout.gpu_memory_utilization=0.1",
        f"+actor_rollout_ref.rollout.engine_kwargs.vllm.kv_cache_memory_bytes={CACHE}",
        "actor_rollout_ref.actor.use_torch_compile=false",
        "actor_rollout_ref.actor.fsdp_config.use_torch_compile=false",
        "+ray_kwargs.ray_init.include_dashboard=false",
    ]


def padded(setting: Setting) -> list[str]:
    """What stock verl needs where FlashAttention is not installed; Agon chooses its attention itself."""
    from agon_verl.actor.packed_attention import flash_attention_installed  # needs PyTorch, as the other jobs do not

    if setting.on_cpu or flash_attention_installed():
        return []
    return [
        "actor_rollout_ref.model.use_remove_padding=false",
        "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
    ]


def agon(setting: Setting) -> list[str]:
    """The recipe, but rewards by a coin: an adapter must move whatever the model can do."""
    return [
        "+recipe=agon",
        *shared(setting),
        f"actor_rollout_ref.rollout.n={N}",
        f"reward.custom_reward_function.path={ROOT / 'benchmarks' / 'coin_reward.py'}",
        "+reward.custom_reward_function.reward_kwargs.ties=false",
        f"trainer.total_training_steps={LAST}",
        f"trainer.save_freq={SAVED}",
        f"trainer.test_freq={LAST}",
        f"trainer.default_local_dir={setting.checkpoints}",
    ]


def killed(setting: Setting) -> Run:
    """Agon, until all its processes are killed in step 3."""
    folder = setting.folder / "killed"

    def kill(mark: str) -> None:
        wait_for_step(folder / "metrics.jsonl", SAVED)
        kill_marked(mark)

    return main_ppo(folder, *agon(setting), env=setting.environment, meanwhile=kill)


def resumed(setting: Setting) -> Run:
    """The same command again."""
    return main_ppo(setting.folder / "resumed", *agon(setting), env=setting.environment)


def swapped(setting: Setting) -> Run:
    """Agon, with the two adapters' slots in vLLM exchanged."""
    folder = setting.folder / "swapped"
    places = [f"trainer.default_local_dir={folder / 'checkpoints'}", "trainer.total_training_steps=1"]
    fault = {"VERL_USE_EXTERNAL_MODULES": "tests.faults", "FAULT": "swapped"}
    return main_ppo(folder, *agon(setting), *places, env={**setting.environment, **fault})


def packed(setting: Setting) -> dict[str, float]:
    """How far an update of packed rows is from that of padded ones, on this device."""
    recipe, settings = ("agon_cpu", []) if setting.on_cpu else ("agon", on_gpu())
    output = command(setting, "tests.gpu.packed_rows", setting.model, recipe, *settings, *setting.overrides)
    return json.loads(output.splitlines()[-1])


def rescored(setting: Setting, runner: int) -> dict[str, float]:
    """How far vLLM's log-probs are from those of the same tokens read as prompts, with requests that were preempted."""
    return json.loads(command(setting, "tests.gpu.rescored", setting.model, runner).splitlines()[-1])


def stock(setting: Setting) -> Run:
    """verl's own trainer without anything of ours but the verifier: GRPO with one adapter and 2N rollouts."""
    folder = setting.folder / "stock"
    overrides = [
        *shared(setting),
        *padded(setting),
        "algorithm.adv_estimator=grpo",
        "data.filter_overlong_prompts=true",
        "actor_rollout_ref.model.lora_rank=16",
        "actor_rollout_ref.model.lora_alpha=32",
        "actor_rollout_ref.actor.strategy=fsdp2",
        "actor_rollout_ref.actor.use_dynamic_bsz=true",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={PROMPTS}",
        "actor_rollout_ref.rollout.name=vllm",
        f"actor_rollout_ref.rollout.n={2 * N}",
        "actor_rollout_ref.rollout.tensor_model_parallel_size=1",
        "actor_rollout_ref.rollout.load_format=safetensors",
        "actor_rollout_ref.rollout.calculate_log_probs=true",
        "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=true",
        "actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu=4096",
        "reward.custom_reward_function.path=pkg://reward_fns.math_answer",
        f"trainer.total_training_steps={SAVED}",
        "trainer.save_freq=-1",
        "trainer.test_freq=-1",
        f"trainer.default_local_dir={folder / 'checkpoints'}",
        "trainer.resume_mode=disable",
    ]
    return main_ppo(folder, *overrides, env=setting.environment)


def exported(setting: Setting) -> Path:
    out = setting.folder / "exported"
    command(setting, "agon_verl.export", setting.checkpoints / f"global_step_{SAVED}", out, "--direction", "A_to_B")
    return out


def engine_arguments(setting: Setting) -> list[str]:
    on_gpu = ["enforce_eager=true", "gpu_memory_utilization=0.1", f"kv_cache_memory_bytes={CACHE}"]
    return ["--engine", "max_num_seqs=32", *([] if setting.on_cpu else on_gpu)]


def evaluated(setting: Setting, pair: Path) -> dict[str, Any]:
    """Both cascades, one adapter and the base on the held-out problems, judged by the mathematical verifier."""
    out = setting.folder / "evaluated"
    command(
        setting,
        *("agon_verl.evaluate", pair, "--data", setting.heldout_file, "--out", out, *engine_arguments(setting)),
        *("--modes", "A_to_B", "B_to_A", "A", "base", "--reward", "pkg://reward_fns.math_answer"),
    )
    return json.loads((out / "results.json").read_text())


def served(setting: Setting, pair: Path) -> Served:
    """One request to the cascade, then the end."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    own = f"AGON_SERVED_HERE={port}"
    log = setting.folder / "serve.log"
    environment = {**os.environ, **setting.environment, "PYTHONPATH": python_path(), **dict([own.split("=")])}
    with log.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "agon_verl.serve", str(pair), "--port", str(port), *engine_arguments(setting)],
            env=environment,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        url, end = f"http://127.0.0.1:{port}", time.monotonic() + TIME_LIMIT
        while not healthy(url):
            assert process.poll() is None and time.monotonic() < end, f"agon serve: {log.read_text()[-4000:]}"
            time.sleep(0.5)
        messages = [{"role": "user", "content": "What is 17 + 25?"}]
        answer = post(f"{url}/v1/chat/completions", {"model": "agon", "messages": messages, "agon": {"draft": True}})
        process.send_signal(signal.SIGTERM)
        returncode, end = process.wait(timeout=60), time.monotonic() + 10
        while (left := len(list(marked(own)))) and time.monotonic() < end:  # Python's own helpers go a moment later
            time.sleep(0.2)
        return Served(answer, returncode, left)
    finally:
        kill_marked(own)
        process.wait(timeout=30)


_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # this machine, whatever proxy is configured


def healthy(url: str) -> bool:
    try:
        with _OPENER.open(f"{url}/health", timeout=10) as reply:
            return reply.status == 200
    except (urllib.error.URLError, ConnectionError):
        return False


def post(url: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with _OPENER.open(request, timeout=120) as reply:
        return json.load(reply)
