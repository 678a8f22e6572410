"""Does agon-verl work on this machine, with this model?

    pytest tests/gpu --model PATH_OR_NAME        # 8 minutes with SmolLM2 on an H200

Three launches of Agon and one of stock verl, then export, evaluation and serving. Needs nothing but pytest beside the
environment in which verl trains. What was measured is printed at the end. The order of the tests keeps the GPU busy:
what starts from the first checkpoint begins as soon as it is there.
"""

import re
from pathlib import Path

import pytest
from safetensors.torch import load_file

from agon_verl.pair import checkpoint
from tests.gpu import jobs
from tests.gpu.jobs import HELD_OUT, LAST, SAVED, LaterJobs, Served, Setting
from tests.real.runs import Run, succeeded

GAP = 0.02  # between rollout and training, in probability on average; 0.002 to 0.007 with models in bfloat16
ROUNDING = 0.1  # of two kernels in bfloat16
WAYS = ("A_to_B", "B_to_A", "A_alone", "B_alone")


def gaps(run: Run, prefix: str = "") -> list[float]:
    return [step[f"{prefix}training/rollout_probs_diff_mean"] for step in run.steps]


def test_the_self_check_passes(killed: Run, figures: list[str]) -> None:
    passed = re.search(r"agon-verl: (the self-check passed.*)", killed.output)
    assert passed, killed.output[-4000:]
    figures.append(passed[1])


def test_agon_takes_two_steps(killed: Run, figures: list[str]) -> None:
    assert [step["training/global_step"] for step in killed.steps] == list(range(1, SAVED + 1)), killed.output[-4000:]
    figures.append("Agon, seconds per step: " + ", ".join(f"{step['timing_s/step']:.1f}" for step in killed.steps))


def test_the_killed_run_left_its_last_save(killed: Run, setting: Setting) -> None:
    assert killed.returncode != 0 and len(killed.steps) == SAVED
    assert checkpoint.latest(setting.checkpoints) == setting.checkpoints / f"global_step_{SAVED}"


def test_the_checkpoint_is_exported(exported: Path, later_jobs: LaterJobs) -> None:
    assert all((exported / adapter / checkpoint.ADAPTER_FILE).is_file() for adapter in "AB")


def test_stock_grpo_takes_two_steps(stock: Run, figures: list[str]) -> None:
    assert len(succeeded(stock).steps) == SAVED
    figures.append("stock, seconds per step: " + ", ".join(f"{step['timing_s/step']:.1f}" for step in stock.steps))


@pytest.mark.parametrize("adapter", ["A", "B"])
def test_vllm_samples_from_the_adapter_that_is_trained(killed: Run, adapter: str, figures: list[str]) -> None:
    seen = gaps(killed, f"{adapter}/")
    figures.append(f"gap between rollout and training, {adapter}: " + ", ".join(f"{gap:.1e}" for gap in seen))
    assert len(seen) == SAVED and max(seen) < GAP


def test_the_gap_of_stock(stock: Run, figures: list[str]) -> None:
    seen = gaps(stock)
    figures.append("gap between rollout and training, stock: " + ", ".join(f"{gap:.1e}" for gap in seen))
    assert len(seen) == SAVED and max(seen) < GAP


def test_the_same_command_goes_on_from_there(resumed: Run) -> None:
    assert re.search(rf"Resuming from \S*global_step_{SAVED}\b", succeeded(resumed).output)
    assert [step["training/global_step"] for step in resumed.steps] == [LAST]


def test_both_adapters_learn_after_the_resume(setting: Setting, resumed: Run) -> None:
    for adapter in "AB":
        before, after = (
            load_file(setting.checkpoints / f"global_step_{step}" / "actor" / adapter / checkpoint.ADAPTER_FILE)
            for step in (SAVED, LAST)
        )
        assert before.keys() == after.keys()
        assert all(tensor.isfinite().all() for tensor in after.values())
        assert any(not tensor.equal(before[name]) for name, tensor in after.items())


def test_the_last_step_validates_both_cascades_and_both_adapters(resumed: Run, figures: list[str]) -> None:
    (step,) = resumed.steps
    names = {way: name for way in WAYS for name in step if re.fullmatch(rf"val-core/.*/{way}/acc/mean@1", name)}
    assert set(names) == set(WAYS) and all(0 <= step[name] <= 1 for name in names.values())


def test_the_export_is_evaluated(evaluated: dict, figures: list[str]) -> None:
    (results,) = evaluated["sets"].values()
    assert results["problems"] == HELD_OUT and evaluated["left_out"] == 0
    shares = {mode: results["modes"][mode]["pass@1"] for mode in ("A_to_B", "B_to_A", "A", "base")}
    assert all(0 <= share <= 1 for share in shares.values())
    figures.append(f"right of {HELD_OUT}: " + ", ".join(f"{mode} {s * HELD_OUT:.0f}" for mode, s in shares.items()))


def test_the_export_is_served(served: Served) -> None:
    answer, draft = served.answer["choices"][0], served.answer["agon"]["draft"]
    assert answer["finish_reason"] in ("stop", "length") and draft["player"] == "A"
    assert served.answer["usage"]["completion_tokens_details"]["final_tokens"] > 0
    assert (served.returncode, served.left) == (0, 0)


def test_swapped_slots_stop_the_run(swapped: Run, figures: list[str]) -> None:
    """A fault on purpose: without it the self-check above would prove nothing."""
    assert swapped.returncode != 0 and not (swapped.folder / "metrics.jsonl").exists()
    stopped = re.search(r"SelfCheckFailed: (.*)", swapped.output)
    assert stopped, swapped.output[-4000:]
    figures.append(f"with swapped slots: {stopped[1]}")


def test_packed_rows_teach_what_padded_ones_teach(packed: dict[str, float], figures: list[str]) -> None:
    figures.append("packed against padded: " + ", ".join(f"{name} {value:.1e}" for name, value in packed.items()))
    assert packed["log_probs"] < ROUNDING and packed["entropy"] < ROUNDING and packed["gradients"] < ROUNDING


@pytest.mark.parametrize("runner", [1, 2])
def test_log_probs_are_those_of_the_tokens(
    setting: Setting, later_jobs: LaterJobs, runner: int, figures: list[str]
) -> None:
    if setting.on_cpu and runner == 2:
        pytest.skip("vLLM has its second model runner on GPUs only")
    seen = jobs.rescored(setting, runner)
    figures.append(f"log-probs read again, runner {runner}: {seen}")
    assert seen["tokens"] > 1000 and seen["gap"] < GAP and seen["worst completion"] < 2 * GAP
    assert seen["preempted"] > 0
