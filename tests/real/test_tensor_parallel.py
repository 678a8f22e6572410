"""A run whose only vLLM replica is split over two processes, and the same adapters in a vLLM of one process.

Each of the two training ranks sends all of both adapters to the vLLM process beside it, which keeps its own part.
"""

from collections.abc import Iterator
from math import exp
from pathlib import Path
from typing import Any

import pytest

from agon_verl.cpu.platform import ONE_PROCESS, vllm_environment
from agon_verl.rollout.wire import lora_ids
from tests.real.runs import Run, main_ppo, read_jsonl, sizes, succeeded

SAME = 1e-7  # between two probabilities of a token that are only computed in another order; measured: 4e-9
ADAPTERS = ("A", "B")
STEP_1 = Path("checkpoints", "global_step_1", "actor")


@pytest.fixture(scope="module")
def run(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("tensor_parallel")
    overrides = [
        "+recipe=agon_cpu",
        *sizes(tiny),
        "trainer.v1.trainer_mode=agon_probe",
        "trainer.n_gpus_per_node=2",
        "ray_kwargs.ray_init.num_gpus=2",
        "actor_rollout_ref.rollout.tensor_model_parallel_size=2",
        "agon.init_noise=0.3",
        "actor_rollout_ref.actor.optim.lr=0.01",
        "trainer.total_training_steps=2",
        "trainer.save_freq=1",
        "trainer.val_before_train=false",
        "trainer.test_freq=-1",
        f"trainer.default_local_dir={folder / 'checkpoints'}",
    ]
    probe = {"VERL_USE_EXTERNAL_MODULES": "tests.real.probe", "PROBE_SERVED": str(folder / "served.jsonl")}
    return succeeded(main_ppo(folder, *overrides, env=probe))


@pytest.fixture(scope="module")
def one_process(tiny: Path) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**vllm_environment(), "VLLM_LOGGING_LEVEL": "ERROR"}.items():
            patch.setenv(name, value)
        from vllm import LLM

        engine = LLM(
            str(tiny / "model"),
            dtype="float32",
            enable_lora=True,
            max_loras=2,
            max_lora_rank=16,
            max_model_len=256,
            max_logprobs=-1,
            enforce_eager=True,
            enable_prefix_caching=False,
            distributed_executor_backend=ONE_PROCESS,
            worker_extension_cls="agon_verl.cpu.lora.LoraOnCpu",
        )
        yield engine
        engine.llm_engine.engine_core.shutdown()


def probabilities(llm: Any, checkpoint: Path, adapter: str, samples: list[dict]) -> list[tuple[float, float]]:
    """For each token of each response: its probability under the adapter, and the largest of any token there.

    One request per token: vLLM's CPU build has no log-probs of prompts under an adapter.
    """
    from vllm import SamplingParams
    from vllm.lora.request import LoRARequest

    places = [(sample["prompt"], sample["response"], n) for sample in samples for n in range(len(sample["response"]))]
    outputs = llm.generate(
        [{"prompt_token_ids": prompt + response[:n]} for prompt, response, n in places],
        SamplingParams(temperature=0, max_tokens=1, logprobs=-1, detokenize=False),
        lora_request=LoRARequest(adapter, lora_ids(ADAPTERS)[adapter], str(checkpoint / adapter)),
        use_tqdm=False,
    )
    nexts = [output.outputs[0].logprobs[0] for output in outputs]
    return [
        (exp(after[response[n]].logprob), exp(max(token.logprob for token in after.values())))
        for (_, response, n), after in zip(places, nexts, strict=True)
    ]


def test_the_self_check_passes_and_rollouts_match_training(run: Run) -> None:
    assert "agon-verl: the self-check passed in" in run.output
    assert len(run.steps) == 2
    for step in run.steps:
        for adapter in ADAPTERS:
            assert step[f"{adapter}/training/rollout_probs_diff_mean"] < SAME


def served_under(run: Run, adapter: str) -> tuple[list[dict], list[float]]:
    """What the run's vLLM answered before the second step, and the probabilities that it gave its tokens."""
    samples = [sample for sample in read_jsonl(run.folder / "served.jsonl") if sample["adapter"] == adapter]
    return samples, [exp(log_prob) for sample in samples for log_prob in sample["log_probs"]]


def test_outputs_at_temperature_0_are_those_of_one_process(run: Run, one_process: Any) -> None:
    for adapter in ADAPTERS:
        samples, served = served_under(run, adapter)
        assert len(served) > 50
        alone = probabilities(one_process, run.folder / STEP_1, adapter, samples)
        widest = max(abs(theirs - own) for theirs, (own, _) in zip(served, alone, strict=True))
        print(f"{adapter}: {len(served)} tokens, probabilities up to {max(served):.2g}, widest gap {widest:.2g}")
        assert widest < SAME
        assert all(own >= largest - SAME for own, largest in alone)


def test_the_other_adapter_gives_other_outputs(run: Run, one_process: Any) -> None:
    """What the test above would see if the adapters were swapped, or not applied."""
    samples, served = served_under(run, "A")
    under_b = probabilities(one_process, run.folder / STEP_1, "B", samples)
    assert max(abs(theirs - own) for theirs, (own, _) in zip(served, under_b, strict=True)) > 1000 * SAME
