"""The self-check between the real trainer's engine and a real vLLM, with every fault.

Twice: on a shallow model, and on a deep one whose weights are rounded to bfloat16 for vLLM alone. Both engines compute
in float32, because few CPUs have bfloat16: the engines then differ by that rounding, as two engines do on a GPU.
"""

import pickle
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed
from tensordict import TensorDict
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
from verl.utils import tensordict_utils as tu

from agon_verl.actor import self_check
from agon_verl.actor.engine import MultiAdapterEngine
from agon_verl.actor.self_check import SAMPLES, TOKENS, UNMARKED, Mark, Marks, SelfCheckFailed
from agon_verl.actor.served import LogProbs, Sample
from agon_verl.cpu.platform import ONE_PROCESS, vllm_environment
from agon_verl.game.prompts import CHALLENGE
from agon_verl.rollout.wire import lora_ids
from tests.faults import spoiled
from tests.real.runs import main_ppo, sizes
from tests.real.test_engine import differing, make_engine, one_rank, snapshot  # noqa: F401

SERVED = "served"  # the folder beside `model` with the weights that vLLM loads


def take(worker: Any, sync: bytes) -> None:
    """Inside vLLM: what its worker does with a transfer of weights."""
    weights, config = pickle.loads(sync)
    worker._put_adapters(weights, config)


@dataclass
class LocalEngines:
    """Both sides in and below this process, without Ray."""

    engine: MultiAdapterEngine
    llm: Any
    prompt: list[int]
    fault: str = ""
    syncs: int = 0
    tried: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.marks = Marks(self.engine)

    def served(self, mark: Mark) -> list[Sample]:
        from vllm import SamplingParams
        from vllm.lora.request import LoRARequest

        self.syncs += 1
        self.tried.append(mark.loudness)
        self.marks.put(mark)
        tensors, config = self.engine.get_per_tensor_param(base_sync_done=True)
        sync = pickle.dumps((spoiled(self.fault, self.syncs, list(tensors)), config))
        self.llm.collective_rpc(take, args=(sync,))
        adapters = [adapter for adapter in self.engine.adapters for _ in range(SAMPLES)]
        outputs = self.llm.generate(
            [{"prompt_token_ids": self.prompt} for _ in adapters],
            SamplingParams(max_tokens=TOKENS, logprobs=0, detokenize=False),
            lora_request=[LoRARequest(a, lora_ids(self.engine.adapters)[a], a) for a in adapters],
            use_tqdm=False,
        )
        drawn = [output.outputs[0] for output in outputs]
        return [
            Sample(
                0,
                a,
                self.prompt,
                list(o.token_ids),
                [s[t].logprob for s, t in zip(o.logprobs, o.token_ids, strict=True)],
            )
            for a, o in zip(adapters, drawn, strict=True)
        ]

    def trained(self, samples: Sequence[Sample], mark: Mark, policies: Sequence[str]) -> Mapping[str, LogProbs]:
        self.marks.put(mark)
        return self_check.log_probs(self._infer, samples, policies, self.engine.adapters[0])

    def _infer(self, data: TensorDict) -> TensorDict:
        tu.assign_non_tensor(data, use_remove_padding=False)
        disabled = self.engine.disable_adapter if tu.pop(data, key="no_lora_adapter") else nullcontext
        with self.engine.eval_mode(), disabled():
            return self.engine.infer_batch(data)["model_output"]


def deep_model(tiny: Path, folder: Path) -> Path:
    """As many layers as models of 4B and 8B have, with weights so large that the layers amplify what enters them."""
    tokenizer = AutoTokenizer.from_pretrained(tiny / "model")
    torch.manual_seed(0)
    narrow = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 1, "head_dim": 32}
    config = LlamaConfig.from_pretrained(tiny / "model", num_hidden_layers=36, initializer_range=0.15, **narrow)
    model = LlamaForCausalLM(config)
    model.save_pretrained(folder / "model")
    model.bfloat16().float().save_pretrained(folder / SERVED)
    for name in ("model", SERVED):
        tokenizer.save_pretrained(folder / name)
    return folder


@pytest.fixture(scope="module", params=["shallow", "deep"])
def model(request: pytest.FixtureRequest, tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny if request.param == "shallow" else deep_model(tiny, tmp_path_factory.mktemp("deep"))


@pytest.fixture(scope="module")
def llm(model: Path) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in vllm_environment().items():
            patch.setenv(name, value)
        patch.setenv("VLLM_LOGGING_LEVEL", "ERROR")
        patch.setenv("VLLM_ALLOW_INSECURE_SERIALIZATION", "1")  # `take`, to our own process
        from vllm import LLM

        engine = LLM(
            str(model / SERVED if (model / SERVED).exists() else model / "model"),
            dtype="float32",
            enable_lora=True,
            max_loras=2,
            max_lora_rank=16,
            max_model_len=256,
            enforce_eager=True,
            enable_prefix_caching=False,
            distributed_executor_backend=ONE_PROCESS,
            worker_extension_cls="agon_verl.rollout.extension.MultiAdapterWorkerExtension",
        )
        yield engine
        engine.llm_engine.engine_core.shutdown()


@pytest.fixture
def prompt(model: Path) -> list[int]:
    return AutoTokenizer.from_pretrained(model / "model").encode(CHALLENGE)[: self_check.PROMPT]


def test_a_healthy_pair_passes_and_is_left_as_it_was(model: Path, llm: Any, prompt: list[int]) -> None:
    engine, _ = make_engine(model)
    before, engines = snapshot(engine), LocalEngines(engine, llm, prompt)
    outcome = self_check.check_serving(engine.adapters, engines)
    print(engines.tried, outcome)
    assert not outcome.undecided and len(outcome.figures) == 2  # one mark was enough
    engines.marks.put(UNMARKED)
    assert differing(before, snapshot(engine)) == set()


@pytest.mark.parametrize(
    ("fault", "named"),
    [
        ("swapped", [r"adapter A on .* from B \(.*\): the slots", r"adapter B on .* from A \(.*\): the slots"]),
        ("stale", [r"adapter A on .* from A before the last sync \(.*\): it is stale"]),
        ("base", [r"adapter B on .* from the base \(.*\): the adapter is not applied"]),
    ],
)
def test_every_fault_stops_the_run_and_is_named(
    model: Path, llm: Any, prompt: list[int], fault: str, named: list[str]
) -> None:
    engine, _ = make_engine(model)
    with pytest.raises(SelfCheckFailed) as failure:
        self_check.check_serving(engine.adapters, LocalEngines(engine, llm, prompt, fault))
    print(failure.value)
    faults = str(failure.value).split("vLLM does not serve ")[1:]
    assert len(faults) == len(named)
    for text, pattern in zip(faults, named, strict=True):
        assert re.search(pattern, text)


def test_swapped_slots_of_a_trained_pair_stop_the_run(model: Path, llm: Any, prompt: list[int]) -> None:
    """What differs between two trained adapters must not be taken for the noise of the engines."""
    engine, _ = make_engine(model, "agon.init_noise=0.2")
    with pytest.raises(SelfCheckFailed, match="the slots are swapped"):
        self_check.check_serving(engine.adapters, LocalEngines(engine, llm, prompt, "swapped"))


def test_adapters_at_half_their_strength_do_not_pass(model: Path, llm: Any, prompt: list[int]) -> None:
    engine, _ = make_engine(model)
    with suppress(SelfCheckFailed):  # half an adapter may also be so near to the base that the run stops
        outcome = self_check.check_serving(engine.adapters, LocalEngines(engine, llm, prompt, "scaled"))
        print(*outcome.figures, sep="\n")
        assert outcome.undecided == ["A on replica 0", "B on replica 0"]


def test_where_no_mark_decides_the_run_goes_on(
    model: Path, llm: Any, prompt: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Marks so quiet that the engines differ by more than the adapters."""
    quiet = tuple(Mark(1e-12, seed) for seed in (1, 2))
    monkeypatch.setattr(self_check, "MARKS", quiet)
    engine, _ = make_engine(model, "agon.init_noise=0.0")
    outcome = self_check.check_serving(engine.adapters, LocalEngines(engine, llm, prompt))
    assert outcome.undecided == ["A on replica 0", "B on replica 0"]


def test_a_run_with_swapped_slots_stops_before_its_first_step(tiny: Path, tmp_path: Path) -> None:
    fault = {"VERL_USE_EXTERNAL_MODULES": "tests.faults", "FAULT": "swapped"}
    run = main_ppo(tmp_path, "+recipe=agon_cpu", *sizes(tiny), "trainer.total_training_steps=1", env=fault)
    assert run.returncode != 0 and not (tmp_path / "metrics.jsonl").exists()
    assert (
        "SelfCheckFailed: the self-check at start-up failed: vLLM does not serve adapter A on replica 0" in run.output
    )
