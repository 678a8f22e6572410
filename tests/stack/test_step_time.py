"""The benchmark of a step: arms that differ where they should, equal lengths, and a fair stock that really packs."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import hydra
import pytest
import torch
from omegaconf import OmegaConf
from transformers import AutoTokenizer
from verl.experimental.agent_loop.agent_loop import DictConfigWrap, ToolListWrap
from verl.utils import tensordict_utils as tu
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.dataset.rl_dataset import RLHFDataset
from verl.workers.engine.fsdp import transformer_impl
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead
from verl.workers.rollout.replica import TokenOutput
from verl.workers.utils.losses import ppo_loss
from vllm import SamplingParams

from agon_verl.actor import packed_attention
from agon_verl.actor.log_probs import token_log_probs
from agon_verl.actor.on_policy import on_policy
from agon_verl.actor.tensors import gather
from agon_verl.matrix.processes import processes
from agon_verl.trainer.preflight import check_settings
from benchmarks import fair_stock, step_time
from benchmarks.fixed_lengths import rollout_length, wait
from benchmarks.step_time import ARMS, STOCK, Arm, arms, complete, measured, table, unequal_work
from examples.gpu_settings import graph_sizes
from tests.ended import state
from tests.packed_against_padded import make_rows, one_rank
from tests.recipes import composed
from tests.tiny import make_model

N, CAP = 3, 40


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"))


def test_graphs_are_those_of_a_run_on_one_gpu() -> None:
    """Of the settings that the table in docs/speed.md has: 512 sequences and prompts of up to 1,536 tokens."""
    assert [*step_time.GRAPH_SIZES] == graph_sizes(512, 1536)


def made(monkeypatch: pytest.MonkeyPatch, out: Path, *options: str) -> dict[str, Arm]:
    command = ["step_time", "--model", "MODEL", "--data", "DATA", "--n", str(N), "--prompts", "4", "--out", str(out)]
    monkeypatch.setattr("sys.argv", [*command, "--response-length", str(CAP), *options])
    return arms(step_time.parsed(step_time.arguments(None, str(out))))


def leaves(config: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(config, dict):
        for key, value in config.items():
            yield from leaves(value, f"{path}.{key}".strip("."))
    else:
        yield path, config


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("rows", ["packed", "padded"])
def test_each_arm_is_a_command_that_verl_accepts(
    device: str, rows: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, arm in made(monkeypatch, tmp_path, "--device", device, "--layout", rows, "--mean-length", "20").items():
        config = composed(*arm.overrides)
        OmegaConf.resolve(config)
        omega_conf_to_dataclass(config.actor_rollout_ref.actor)
        omega_conf_to_dataclass(config.actor_rollout_ref.rollout)
        assert config.actor_rollout_ref.rollout.n * (1 if name in STOCK else 2) == 2 * N
        if name not in STOCK:
            check_settings(config)


def test_fair_stock_and_agon_differ_in_the_pair_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else the recipe sets, now or later, the fair stock has too."""
    made_arms = made(monkeypatch, tmp_path)
    fair, agon = (
        dict(leaves(OmegaConf.to_container(composed(*made_arms[name].overrides), resolve=True)))
        for name in ("fair", "agon")
    )
    missing = object()
    differing = {key for key in fair.keys() | agon.keys() if fair.get(key, missing) != agon.get(key, missing)}
    of_the_pair = (
        "agon.",
        "algorithm.adv_estimator",
        "actor_rollout_ref.model.lora.",
        "actor_rollout_ref.model.override_config.",  # the pair's engine chooses the same attention itself
        "actor_rollout_ref.actor.optim._target_",
        "actor_rollout_ref.actor.rollout_n",
        *("actor_rollout_ref.ref.rollout_n", "critic.rollout_n"),
        "actor_rollout_ref.rollout.n",
        "actor_rollout_ref.rollout.agent.",
        "actor_rollout_ref.rollout.val_kwargs.",
        "reward.custom_reward_function.reward_kwargs.",  # more of them, which the benchmark's reward ignores
        "trainer.v1.trainer_mode",
        *("trainer.project_name", "trainer.experiment_name", "trainer.default_local_dir"),
        "actor_rollout_ref.rollout.trace.",
    )
    assert {key for key in differing if not key.startswith(of_the_pair)} == set()


def test_a_setting_can_be_for_one_arm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ["fair:actor_rollout_ref.model.use_fused_kernels=true", "trainer.seed=1"]
    extra = {name: arm.overrides[-2:] for name, arm in made(monkeypatch, tmp_path, *options).items()}
    assert extra["fair"] == ("actor_rollout_ref.model.use_fused_kernels=true", "trainer.seed=1")
    assert all(last[-1] == "trainer.seed=1" for last in extra.values())
    assert all("fused" not in last[0] for name, last in extra.items() if name != "fair")


def test_lengths_have_the_mean_and_stay_below_the_cap() -> None:
    lengths = [
        rollout_length(0, f"problem {p}", s, stage, 520, 1024) for p in range(200) for s in range(8) for stage in (0, 1)
    ]
    assert 1 <= min(lengths) and max(lengths) < 1024
    assert sum(lengths) / len(lengths) == pytest.approx(520, rel=0.03)
    assert len(set(lengths)) > 700
    assert rollout_length(0, "p", 1, 0, 520, 1024) == rollout_length(0, "p", 1, 0, 520, 1024)
    assert len({rollout_length(seed, "p", 1, 0, 520, 1024) for seed in range(9)}) > 5


class Server:
    """In place of verl's client: it keeps the sampling parameters, and writes as many tokens as they allow."""

    def __init__(self) -> None:
        self.requests: list[SamplingParams] = []

    async def generate(self, *, sampling_params: dict[str, Any], **_: Any) -> TokenOutput:
        self.requests.append(SamplingParams(**{**sampling_params, "logprobs": 0}))
        length = self.requests[-1].max_tokens
        assert length is not None
        return TokenOutput(token_ids=[9] * length, log_probs=[-1.0] * length)


def played(arm: Arm, model: Path, problem: str, **more: Any) -> list[SamplingParams]:
    """The requests of all sessions of a problem, from the loop as verl constructs it."""
    config = composed(*arm.overrides, f"actor_rollout_ref.model.path={model}")
    server = Server()
    rollouts = config.actor_rollout_ref.rollout.n

    async def sessions() -> None:
        for session in range(rollouts):
            loop = hydra.utils.instantiate(
                config=OmegaConf.create(arm.loop),
                trainer_config=DictConfigWrap(config),
                server_manager=server,
                tokenizer=AutoTokenizer.from_pretrained(model),
                processor=None,
                hf_model_type="llama",
                dataset_cls=RLHFDataset,
                data_config=DictConfigWrap(config.data),
                tools=ToolListWrap([]),
            )
            messages = [{"role": "user", "content": problem}]
            sampling = {"temperature": 1.0, "logprobs": True}
            await loop.run(sampling, raw_prompt=messages, session_id=session, **more)
            assert sampling == {"temperature": 1.0, "logprobs": True}  # the sessions of a problem share it

    asyncio.run(sessions())
    return server.requests


def test_stock_and_agon_get_the_same_lengths(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_arms = made(monkeypatch, tmp_path, "--mean-length", "20", "--device", "cpu")
    pair = {
        "drafter": "B",
        "challenger": "A",
        "method": {"reads": "summary", "rival": "own"},
        "challenge_sampling": {"temperature": 0.7},
    }
    of_problems = []
    for problem in ("What is 1+1?", "What is 2+3?"):
        agon = played(made_arms["agon"], model, problem, **pair)
        drafts, challenges = agon[::2], agon[1::2]
        assert {r.temperature for r in challenges} == {0.7}
        lengths = [request.max_tokens for request in (*drafts, *challenges)]
        for name in STOCK:
            requests = played(made_arms[name], model, problem)
            assert [request.max_tokens for request in requests] == lengths
            assert all(request.ignore_eos for request in (*requests, *agon))
            assert {request.detokenize for request in requests} == {name == "stock"}
            assert {request.flat_logprobs for request in requests} == {name != "stock"}
        of_problems.append(lengths)
    assert of_problems[0] != of_problems[1]


def test_natural_lengths_leave_the_ending_to_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loops = {name: arm.loop for name, arm in made(monkeypatch, tmp_path).items()}
    assert {name for name, loop in loops.items() if loop} == {"fair", "bypass"}
    assert loops["fair"] is not None and loops["fair"]["mean"] is None


@pytest.fixture
def fair(monkeypatch: pytest.MonkeyPatch) -> None:
    """The patches of the fair stock, taken back after the test."""
    for owner, name in (
        (FSDPEngineWithLMHead, "prepare_model_inputs"),
        (transformer_impl, "logprobs_from_logits"),
        (transformer_impl.verl_F, "entropy_from_logits"),
        (packed_attention, "rows_in_use"),
    ):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    monkeypatch.setattr(packed_attention, "flash_attention_installed", lambda: False)
    fair_stock.improve(transformer_impl)


def gradients(arm: Arm, model: Path, packed: bool) -> dict[str, torch.Tensor]:
    """Of one update by verl's own engine, with the settings of an arm."""
    config = composed(*arm.overrides, f"actor_rollout_ref.model.path={model}")
    config.actor_rollout_ref.actor.optim.total_training_steps = 10
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    torch.manual_seed(0)  # verl does not seed the adapter
    settings = omega_conf_to_dataclass(config.actor_rollout_ref.model)
    engine = FSDPEngineWithLMHead(settings, actor.engine, actor.optim, actor.checkpoint)
    engine.initialize()
    rows = make_rows([5, 30, 17, 9, 60, 12], 300, packed=packed, cap=64)
    tu.assign_non_tensor(rows, use_fused_kernels=False)
    with engine.train_mode():
        engine.optimizer_zero_grad()
        engine.forward_backward_batch(rows, on_policy(partial(ppo_loss, config=actor)))
        return {n: gather(p.grad).float() for n, p in engine.module.named_parameters() if p.grad is not None}


def test_the_fair_stock_packs_and_has_stocks_gradient(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    made_arms = made(monkeypatch, tmp_path, "--device", "cpu", "--layout", "packed")
    (folder := tmp_path / "gloo").mkdir()
    with one_rank(folder):
        padded = gradients(made_arms["stock"], model, packed=False)
        request.getfixturevalue("fair")
        attended: list[tuple[int, ...]] = []
        attend = packed_attention.row_by_row

        def watched(query: torch.Tensor, *args: Any) -> torch.Tensor:
            rows = packed_attention.rows_in_use
            assert rows is not None and query.shape[2] == sum(rows.lengths)
            attended.append(rows.lengths)
            return attend(query, *args)

        monkeypatch.setattr(packed_attention, "row_by_row", watched)
        packed = gradients(made_arms["fair"], model, packed=True)
    assert transformer_impl.logprobs_from_logits is token_log_probs
    assert max(map(len, attended)) > 1  # several rows in one
    assert packed.keys() == padded.keys() and any(tensor.any() for tensor in padded.values())
    for name, gradient in padded.items():
        torch.testing.assert_close(packed[name], gradient, atol=1e-6, rtol=1e-4, msg=name)


def test_where_flash_attention_is_installed_stock_keeps_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_attention, "flash_attention_installed", lambda: True)
    before = transformer_impl.logprobs_from_logits
    fair_stock.improve(transformer_impl)
    assert transformer_impl.logprobs_from_logits is before


def write(out: Path, name: str, seconds: list[float], length: float = 20.0, early: float = 0.0) -> Arm:
    arm = Arm(name, rollouts=8, ranks=1, steps=len(seconds), overrides=("a=1",))
    (out / f"{name}.arm.json").write_text(json.dumps({**vars(arm)}))
    lines = [
        {
            "step": number,
            "data": {
                "training/global_step": number,
                "timing_s/gen": second / 2,
                "timing_s/early_update": early,
                "timing_s/update_actor": second / 4,
                "timing_s/update_weights": second / 8,
                "timing_s/step": second,
                "response_length/mean": length,
                "global_seqlen/mean": 300.0,
                "perf/max_memory_allocated_gb": 3.0,
            },
        }
        for number, second in enumerate(seconds, 1)
    ]
    (out / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (out / f"{name}.first").write_text("100.0")
    return arm


def test_the_table_is_made_of_the_arms_that_are_there(tmp_path: Path) -> None:
    write(tmp_path, "fair", [50, 40, 20, 22, 24])
    write(tmp_path, "agon", [50, 40, 11, 10, 12], early=1.5)
    with (tmp_path / "agon.jsonl").open("a") as file:
        file.write('{"step": 6, "data": {"timing')  # stopped while it wrote
    results = {name: measured(tmp_path, name) for name in ("fair", "agon")}
    lines = {line.split(" | ")[0].strip("| "): line for line in table(results).splitlines()}
    assert lines["median (range)"] == "| median (range) | stock, fair (3 steps) | Agon (3 steps) | Agon / stock, fair |"
    assert lines["step, s"] == "| step, s | 22.00 (20.00–24.00) | 11.00 (10.00–12.00) | 0.50 |"
    assert lines["of which early_update, s"] == "| of which early_update, s | – | 1.50 | – |"
    assert lines["rest, s"] == "| rest, s | 2.75 (2.50–3.00) | 1.38 (1.25–1.50) | 0.50 |"
    assert lines["tokens generated"] == "| tokens generated | 160.00 | 160.00 | 1.00 |"
    assert lines["start-up, s"] == "| start-up, s | 50.00 | 50.00 | 1.00 |"
    assert "old_log_prob, s" not in lines
    assert unequal_work(results) is None
    write(tmp_path, "agon", [50, 40, 11, 10, 12], length=21.0)
    assert unequal_work({name: measured(tmp_path, name) for name in ("fair", "agon")}) is not None


def test_an_arm_that_fails_leaves_the_others_to_be_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun = []

    def run(name: str, arm: Arm, out: Path) -> None:
        begun.append(name)
        write(out, name, [4.0, 3.0, 2.0, 2.0])
        (out / f"{name}.arm.json").write_text(json.dumps(vars(arm)))
        if name == "fair":
            os.truncate(out / "fair.jsonl", 100)
            raise step_time.ArmFailed("fair ended after 0 steps")

    monkeypatch.setattr(step_time, "run", run)
    made(monkeypatch, tmp_path, "--steps", "4")
    sys.argv.append("--fair")
    with pytest.raises(SystemExit, match="fair ended after 0 steps"):
        step_time.main()
    printed = capsys.readouterr().out
    assert begun == ["stock", "fair", "agon", "plain"]
    assert (
        "stock verl (2 steps) | Agon (2 steps) | Agon, plain (2 steps)" in printed
        and printed.strip() == (tmp_path / "table.md").read_text().strip()
    )
    with pytest.raises(SystemExit):
        step_time.main()
    assert begun == ["stock", "fair", "agon", "plain", "fair"]


def test_a_complete_arm_is_not_run_again(tmp_path: Path) -> None:
    arm = write(tmp_path, "fair", [1.0] * 4)
    assert complete("fair", arm, tmp_path)
    assert not complete("fair", Arm("fair", 8, 1, 5, ("a=1",)), tmp_path)
    assert not complete("fair", Arm("fair", 8, 1, 4, ("a=2",)), tmp_path)
    assert not complete("stock", arm, tmp_path)
    os.truncate(tmp_path / "fair.jsonl", 300)
    assert not complete("fair", arm, tmp_path)
    assert set(ARMS) == {"stock", "fair", "bypass", "agon", "plain"}


def test_arms_that_start_together_wait_for_their_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_arms = made(monkeypatch, tmp_path, "--together")
    turns = {name: step_time.turn_of(name, tmp_path) for name in made_arms}
    assert {name: arm.loop["wait_for"] for name, arm in made_arms.items() if arm.loop} == {
        name: str(turn) for name, turn in turns.items()
    }
    turn = turns["agon"]

    async def scene() -> None:
        waiting = asyncio.ensure_future(wait(str(turn)))
        await asyncio.sleep(0.3)
        assert not waiting.done() and step_time.waits_at(turn).exists()
        turn.touch()
        await asyncio.wait_for(waiting, 10)
        await wait(None)

    asyncio.run(scene())


@contextmanager
def sleeping(mark: str) -> Iterator[subprocess.Popen]:
    process = subprocess.Popen(["sleep", "100"], env=dict([mark.split("=")]))
    try:
        while process.pid not in processes(mark):  # its environment is empty for a moment after Popen returns
            time.sleep(0.01)
        yield process
    finally:
        process.kill()
        process.wait()


def becomes(letter: str, process: int) -> bool:
    """Whether a process comes to this state of `/proc`: a signal takes a moment to arrive."""
    for _ in range(100):
        time.sleep(0.1)
        if state(process) == letter:
            return True
    return False


def test_what_was_halted_can_end() -> None:
    """A halted process would keep its SIGTERM until somebody lets it go on."""
    with sleeping("OF_ARM=halted") as process:
        step_time.send("OF_ARM=halted", signal.SIGSTOP)
        assert becomes("T", process.pid)  # of two signals that wait, SIGTERM would be taken first
        process.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        step_time.send("OF_ARM=halted", signal.SIGCONT)
        assert process.wait(10) == -signal.SIGTERM


def test_each_stock_run_has_a_socket_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray is not started: its job has the same id in each run."""
    modules = {made(monkeypatch, tmp_path)[name].modules for name in STOCK}
    assert all("benchmarks.own_socket" in each for each in modules)
    printed = [
        subprocess.run(
            [sys.executable, "-c", HANDLES],
            env={**os.environ, "VERL_USE_EXTERNAL_MODULES": "benchmarks.own_socket", "RAY_TMPDIR": f"/tmp/ray{run}"},
            cwd=Path(step_time.__file__).parents[1],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()[-2:]
        for run in "ab"
    ]
    (sent, received), others = printed
    assert sent == received and others[0] == others[1] != sent
    assert sent.startswith("ipc:///tmp/") and sent.endswith("-raya.sock")


HANDLES = """
import os
from types import SimpleNamespace
from unittest import mock
import verl
from verl.workers.rollout.vllm_rollout import utils, vllm_rollout
os.environ.update(RANK="0", RAY_LOCAL_WORLD_SIZE="1", VERL_RAY_JOB_ID="01000000")
one = dict.fromkeys(("tensor_model_parallel_size", "data_parallel_size", "pipeline_model_parallel_size"), 1)
config = SimpleNamespace(**one, layered_summon=False)
def init(self, config, *_):
    self.config = config
with mock.patch.object(vllm_rollout, "ray") as ray, mock.patch.object(vllm_rollout.BaseRollout, "__init__", init):
    ray.get_runtime_context().get_job_id.return_value = "01000000"
    print(vllm_rollout.ServerAdapter(config, None, None).zmq_handle)
worker = object.__new__(utils.vLLMColocateWorkerExtension)
worker.local_rank, worker.model_runner = 0, SimpleNamespace()
print(worker._get_zmq_handle())
"""


def test_one_arm_steps_at_a_time_and_only_when_all_have_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_arms = made(monkeypatch, tmp_path, "--together")
    events: list[str] = []

    def run(name: str, arm: Arm, out: Path, watch: Any) -> None:
        time.sleep(0.3 * list(made_arms).index(name))  # they need different times to start
        events.append("up")
        if name == "bypass":
            raise step_time.ArmFailed("bypass ended after 0 steps")
        turn, mark = step_time.turn_of(name, out), f"OF_ARM={out / name}"
        with sleeping(mark) as process:
            watch(mark, out)
            assert becomes("S", process.pid)
            step_time.waits_at(turn).touch()
            watch(mark, out)
            assert becomes("T", process.pid)  # halted
            while not turn.exists():
                watch(mark, out)
                time.sleep(0.01)
            watch(mark, out)
            assert becomes("S", process.pid)
            events.append(f"{name} begins")
            time.sleep(0.1)
            events.append(f"{name} ends")

    monkeypatch.setattr(step_time, "run", run)
    monkeypatch.setattr(step_time, "STAGGER", 0)
    assert step_time.run_together(made_arms, tmp_path) == ["bypass ended after 0 steps"]
    steps = [f"{name} {what}" for name in made_arms if name != "bypass" for what in ("begins", "ends")]
    assert events == ["up"] * len(made_arms) + steps


def test_a_signal_ends_all_arms_that_start_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []

    def run(name: str, arm: Arm, out: Path, watch: Any) -> None:
        try:
            while True:
                watch("OF_ARM=none", out)
                time.sleep(0.01)
        finally:
            ended.append(name)

    sleep, here = time.sleep, threading.current_thread()

    def interrupted(seconds: float) -> None:
        if threading.current_thread() is here and seconds != step_time.STAGGER:
            raise SystemExit("stopped")
        sleep(seconds)

    monkeypatch.setattr(step_time, "run", run)
    monkeypatch.setattr(step_time, "STAGGER", 0)
    monkeypatch.setattr(time, "sleep", interrupted)
    with pytest.raises(SystemExit, match="stopped"):
        step_time.run_together(made(monkeypatch, tmp_path, "--together"), tmp_path)
    assert sorted(ended) == sorted(ARMS)
