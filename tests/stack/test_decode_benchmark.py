"""benchmarks/decode.py: the arguments are verl's, variants change what they say, and results are read as written."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from verl.workers.config import RolloutConfig
from vllm.engine.arg_utils import AsyncEngineArgs

from agon_verl.trainer.memory import GIB, DecoderShape
from benchmarks import decode
from examples.gpu_settings import Work, fit, prompt_length
from tests.recipes import composed
from tests.tiny import make_model

QWEN = {
    "hidden_size": 1536,
    "intermediate_size": 8960,
    "num_hidden_layers": 28,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "vocab_size": 151_936,
}


def arguments(name: str) -> dict[str, Any]:
    return decode.engine_arguments(decode.chosen(name), "MODEL", 256, 2560, 0.5, cpu=False)


def test_the_baseline_has_the_settings_of_the_one_gpu_run() -> None:
    shape = DecoderShape.of(QWEN)
    assert shape is not None
    work = Work(16, 8, prompt_length(1024), 1024)
    rollout = composed("+recipe=agon", *fit(shape, 141 * GIB, work).overrides(work)).actor_rollout_ref.rollout
    baseline, defaults = arguments("baseline"), RolloutConfig(name="vllm")
    for key in ("max_num_seqs", "enable_prefix_caching", "logprobs_mode", "enforce_eager", "enable_chunked_prefill"):
        assert baseline[key] == rollout.get(key, getattr(defaults, key)), key
    for key in ("dtype", "load_format", "max_num_batched_tokens", "scheduling_policy", "disable_log_stats"):
        assert baseline[key] == rollout.get(key, getattr(defaults, key)), key
    assert baseline["enable_sleep_mode"] is defaults.enable_sleep_mode
    decoding = [size for size in rollout.cudagraph_capture_sizes if size <= rollout.max_num_seqs]  # no prompts join it
    assert baseline["compilation_config"]["cudagraph_capture_sizes"] == decoding
    assert baseline["max_lora_rank"] == composed("+recipe=agon").actor_rollout_ref.model.lora_rank


@pytest.mark.parametrize("name", decode.VARIANTS)
def test_vllm_knows_every_argument(name: str) -> None:
    fields = AsyncEngineArgs.__dataclass_fields__
    assert not {*arguments(name)} - {*fields}


def test_joined_variants_have_the_changes_of_both() -> None:
    both = decode.chosen("uniproc+v2_runner+no_log_probs")
    assert both.engine == {"distributed_executor_backend": "uni"} and both.sampling == {"logprobs": None}
    assert both.environment == {"VLLM_USE_V2_MODEL_RUNNER": "1"} and both.lora
    assert not decode.chosen("uniproc+no_lora").lora
    with pytest.raises(SystemExit):
        decode.parse(["--model", "m", "--variants", "uniproc+unknown"])


def test_adapters_have_a_pair_of_matrices_for_every_layer(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model")
    first, second = decode.make_adapters(str(model), tmp_path)
    tensors = load_file(first / "adapter_model.safetensors")
    assert len(tensors) == 2 * 2 * 7  # two layers of seven products
    assert tensors["base_model.model.model.layers.1.mlp.down_proj.lora_A.weight"].shape == (decode.RANK, 128)
    assert any(
        (tensors[name] != other).any() for name, other in load_file(second / "adapter_model.safetensors").items()
    )


def test_the_table_has_what_is_measured_so_far(tmp_path: Path) -> None:
    out = tmp_path / "decode.jsonl"
    for ms in (9.0, 8.0):
        decode.append(out, decode.Cell("baseline", 256, 2, ms, ms - 1, ms + 1, {"server": 5.0}, 512, "0.24.0"))
    decode.append(out, decode.Cell("baseline", 1, 2, 3.0, 3.0, 3.0, {"server": 0.1}, 512, "0.24.0"))
    decode.append(out, decode.Failure("ngram", "exit status 1: ValueError: no"))
    decode.append(out, decode.Started("baseline", 61.5, {}))
    decode.append(out, decode.Joined("baseline", 128, 2, 900, 19.0, 12.0, 24.0))
    text = decode.table(decode.read_results(out))
    assert "| baseline | 2 | 3.00 (3.00–3.00) | 8.50 (7.00–10.00) | server 5.0 |" in text
    assert "ngram: FAILED, exit status 1: ValueError: no" in text and "baseline: 62 s" in text
    assert "128 sequences, 2 adapters: a prompt of 900 tokens that joins costs 19.0 ms (12.0–24.0)" in text
    assert decode.table([]).startswith("| variant")


def test_time_on_the_gpu_is_split_into_kernels_and_gaps(tmp_path: Path) -> None:
    """Steps of 100 µs: a kernel of 60, one of 20 that begins inside it and ends 10 after it, and 30 of nothing."""
    events = [{"ph": "X", "cat": "cuda_runtime", "name": "cudaGraphLaunch", "ts": 100 * n, "dur": 2} for n in range(30)]
    for n in range(30):
        events.append({"ph": "X", "cat": "kernel", "name": "gemm", "ts": 100 * n, "dur": 60})
        events.append({"ph": "X", "cat": "kernel", "name": "argmax", "ts": 100 * n + 50, "dur": 20})
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": events}))
    seen = decode.gpu_time(events)
    assert seen.steps == 20 and seen.busy == pytest.approx(0.070) and seen.step == pytest.approx(0.1, rel=0.05)
    assert seen.gaps == pytest.approx(0.030, rel=0.06) and seen.largest[0][0] == "argmax … gemm"
    assert seen.kernels[0] == ("gemm", pytest.approx(0.060), 1.0)
    assert "20 steps" in decode.show_profile(tmp_path)
    with pytest.raises(ValueError, match="no kernels"):
        decode.gpu_time(events[:30])


def test_a_round_has_every_cell_once() -> None:
    line = ["--model", "m", "--sequences", "1", "64", "--adapters", "0", "2", "--rounds", "3"]
    alone, together = decode.parse(line), decode.parse([*line, "--together"])
    assert decode.cells_of(decode.chosen("baseline"), alone) == [(1, 0), (64, 0), (64, 2)]
    assert decode.cells_of(decode.chosen("baseline"), together) == 3 * [(1, 0), (64, 0), (64, 2)]
    assert decode.cells_of(decode.chosen("no_lora"), alone) == [(1, 0), (64, 0)]


WAITS_FOR_TURNS = """
import json, sys
name, out, turns = sys.argv[1], sys.argv[2], int(sys.argv[3])
def write(kind, **values):
    with open(out, "a") as lines:
        lines.write(json.dumps({"kind": kind, "variant": name, **values}) + chr(10))
write("Started", seconds=1.0)
for _ in range(turns):
    sys.stdin.readline()
    write("Cell", sequences=1, adapters=0, ms=1.0, low=1.0, high=1.0, cpu={"server": 1.0})
if turns < 3:
    raise ValueError("it failed")
"""


def test_together_variants_measure_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small processes in place of the engines: one that fails in its second round does not end the other."""
    script = tmp_path / "variant.py"
    script.write_text(WAITS_FOR_TURNS)
    variants = {"baseline": "3", "sends_once": "1"}
    line = ["--model", "m", "--together", "--sequences", "1", "--adapters", "0", "--out", str(tmp_path / "d.jsonl")]
    options = decode.parse([*line, "--variants", *variants])

    def start(name: str, options: Any, _: Any) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(script), name, str(options.out), variants[name]]
        with decode.log_of(name, options).open("wb") as log:
            return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True)

    monkeypatch.setattr(decode, "start", start)
    decode.run_together(options, line)
    records = decode.read_results(options.out)
    cells = [record["variant"] for record in records if record["kind"] == "Cell"]
    assert cells == ["baseline", "sends_once", "baseline", "baseline"]
    failed = [record for record in records if record["kind"] == "Failure"]
    assert [record["variant"] for record in failed] == ["sends_once"] and "it failed" in failed[0]["error"]
