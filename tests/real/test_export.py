"""An export has the log-probs of the training engine: in plain PEFT, merged, and in plain vLLM with the cascade."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from agon_verl.export.__main__ import main
from agon_verl.game import transcript
from agon_verl.game.prompts import challenge_messages
from agon_verl.game.withhold import withhold_answer
from agon_verl.pair.base import hash_of_base
from agon_verl.pair.checkpoint import Manifest, versions
from tests.real.runs import ROOT
from tests.real.test_engine import batch, log_probs, make_engine, one_rank, update  # noqa: F401  one_rank is a fixture
from tests.recipes import composed
from tests.tiny import TEMPLATE

ROWS = 4
TOLERANCE = 1e-5  # of a log-prob near -6 in float32, summed in other orders; 1e-6 was measured
APART = 0.1  # what counts as another policy
PROBLEM = [{"role": "user", "content": "What is 2+3?"}]
GENERATION = {
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": -1,
    "max_response_length": 24,
    "apply_chat_template_kwargs": {"brief": True},
    "custom_chat_template": "{% if brief %}Be brief. {% endif %}" + TEMPLATE,
}


@dataclass(frozen=True)
class Exported:
    base: Path
    out: Path
    ids: torch.Tensor  # (rows, tokens)
    engine: dict[str, torch.Tensor]  # each adapter's log-probs of every token but the first


@pytest.fixture(scope="module")
def exported(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """Both adapters trained by the engine, saved, and exported with their merged models."""
    folder, base = tmp_path_factory.mktemp("export"), tiny / "model"
    engine, loss = make_engine(tiny, "actor_rollout_ref.actor.optim.lr=0.02", "agon.init_noise=0.02")
    for seed, adapter in enumerate("ABABAB"):
        update(engine, loss, batch(adapter, rows=4, seed=seed))
    checkpoint = folder / "run" / "global_step_3"
    engine.save_checkpoint(str(checkpoint / "actor"))
    game = OmegaConf.to_container(composed("+recipe=agon_cpu").agon, resolve=True)
    accuracy = {f"val-core/toy/sums/{d}/acc/mean@1": a for d, a in (("A_to_B", 0.4), ("B_to_A", 0.3))}
    settings = ({"lora_rank": 16}, game, versions(), accuracy, GENERATION)
    Manifest(3, str(base), hash_of_base(base), *settings).write(checkpoint)
    assert main([str(folder / "run"), str(folder / "out"), "--merged"]) == 0
    ids = torch.stack(list(batch("A", rows=ROWS, seed=9)["input_ids"].unbind()))
    own = {a: log_probs(engine, batch(a, rows=ROWS, seed=9)).view(ROWS, -1)[:, :-1] for a in "AB"}
    return Exported(base, folder / "out", ids, own)


def token_log_probs(model: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
    """The log-probs that a plain model gives to every token but the first: (rows, tokens - 1)."""
    with torch.no_grad():
        scores = model(ids).logits[:, :-1].log_softmax(-1)
    return scores.gather(-1, ids[:, 1:, None]).squeeze(-1)


def gap(x: torch.Tensor, y: torch.Tensor) -> float:
    return float((x - y).abs().max())


def loaded(path: Path) -> torch.nn.Module:
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)


def test_the_trained_adapters_differ(exported: Exported) -> None:
    """Otherwise the tests below could not distinguish them from each other and from the base."""
    base = token_log_probs(loaded(exported.base), exported.ids)
    a, b = exported.engine["A"], exported.engine["B"]
    assert min(gap(a, b), gap(a, base), gap(b, base)) > APART


@pytest.mark.parametrize("adapter", ["A", "B"])
def test_plain_peft_has_the_engines_log_probs(exported: Exported, adapter: str) -> None:
    model = PeftModel.from_pretrained(loaded(exported.base), str(exported.out / adapter))
    difference = gap(token_log_probs(model, exported.ids), exported.engine[adapter])
    print(f"{adapter}: PEFT beside the engine {difference:.2g}")
    assert difference < TOLERANCE


def test_both_adapters_fit_in_one_peft_model(exported: Exported) -> None:
    model = PeftModel.from_pretrained(loaded(exported.base), str(exported.out / "A"), adapter_name="A")
    model.load_adapter(str(exported.out / "B"), adapter_name="B")
    for adapter in "BAB":
        model.set_adapter(adapter)
        assert gap(token_log_probs(model, exported.ids), exported.engine[adapter]) < TOLERANCE


@pytest.mark.parametrize("adapter", ["A", "B"])
def test_a_merged_model_has_the_engines_log_probs(exported: Exported, adapter: str) -> None:
    folder = exported.out / "merged" / adapter
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.dtype == torch.float32  # the tiny base's own
    difference = gap(token_log_probs(model, exported.ids), exported.engine[adapter])
    print(f"{adapter}: merged beside the engine {difference:.2g}")
    assert difference < TOLERANCE
    tokenizers = [AutoTokenizer.from_pretrained(path) for path in (folder, exported.base)]
    texts = [t.apply_chat_template(PROBLEM, add_generation_prompt=True, tokenize=False) for t in tokenizers]
    assert texts[0] == texts[1] and len({tuple(t.encode(texts[0])) for t in tokenizers}) == 1


def test_a_merge_rounds_once_to_the_bases_own_type(exported: Exported, tmp_path: Path) -> None:
    """bfloat16, and a generation config that transformers reads but refuses to write."""
    base = tmp_path / "base"
    loaded(exported.base).bfloat16().save_pretrained(base)
    AutoTokenizer.from_pretrained(exported.base).save_pretrained(base)
    (base / "generation_config.json").write_text('{"do_sample": false, "temperature": 0.6}')
    with pytest.raises(ValueError, match="Fix these issues"):
        GenerationConfig.from_pretrained(base).save_pretrained(tmp_path)
    checkpoint = tmp_path / "global_step_3"
    checkpoint.mkdir()
    (checkpoint / "actor").symlink_to(exported.out)
    Manifest(3, str(base), hash_of_base(base), {}, {}, {}, {}).write(checkpoint)
    assert main([str(checkpoint), str(tmp_path / "out"), "--merged"]) == 0
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "out" / "merged" / "B")
    exact = PeftModel.from_pretrained(loaded(base), str(exported.out / "B")).merge_and_unload()
    assert merged.dtype == torch.bfloat16
    assert all(torch.equal(p, q.bfloat16()) for p, q in zip(merged.parameters(), exact.parameters(), strict=True))
    copied = tmp_path / "out" / "merged" / "B" / "generation_config.json"
    assert copied.read_text() == (base / "generation_config.json").read_text()


def test_a_base_that_cannot_be_loaded_is_named(
    exported: Exported, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base, checkpoint = tmp_path / "base", tmp_path / "global_step_3"
    base.mkdir()
    checkpoint.mkdir()
    (base / "model.safetensors").symlink_to(exported.base / "model.safetensors")
    (checkpoint / "actor").symlink_to(exported.out)
    Manifest(3, str(base), hash_of_base(base), {}, {}, {}, {}).write(checkpoint)
    assert main([str(checkpoint), str(tmp_path / "out"), "--merged"]) == 1
    assert f"agon-verl: {base} cannot be loaded for --merged: " in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_change_of_an_output_layer_that_is_also_the_embedding_is_not_merged(
    exported: Exported, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The merge would silently change the embedding too."""
    config = LoraConfig(task_type="CAUSAL_LM", target_modules=["lm_head"])
    checkpoint = tmp_path / "global_step_3"
    for adapter in "AB":
        get_peft_model(loaded(exported.base), config).save_pretrained(checkpoint / "actor" / adapter)
    Manifest(3, str(exported.base), hash_of_base(exported.base), {}, {}, {}, {}).write(checkpoint)
    assert main([str(checkpoint), str(tmp_path / "out"), "--merged"]) == 1
    assert "agon-verl: adapter A changes the output layer, which is also the embedding" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["global_step_3"]
    assert main([str(checkpoint), str(tmp_path / "out")]) == 0


SCRIPT = """
import json, sys
from pathlib import Path

from vllm import LLM, SamplingParams
from vllm.lora.request import LoRARequest

from tests.exported_cascade import challenge

PAIR = json.loads(Path("pair.json").read_text())
GENERATION = PAIR["generation"]
SAMPLING = SamplingParams(
    **{name: GENERATION[name] for name in ("temperature", "top_p", "top_k")},
    max_tokens=GENERATION["max_response_length"],
    seed=1,
    logprobs=0,
)
SLOTS = {name: LoRARequest(name, number, name) for number, name in enumerate("AB", 1)}


def turn(adapter, output, **more):
    completion = output.outputs[0]
    pairs = zip(completion.token_ids, completion.logprobs, strict=True)
    return {
        "adapter": adapter,
        "prompt": list(output.prompt_token_ids),
        "response": list(completion.token_ids),
        "log_probs": [by_token[token].logprob for token, by_token in pairs],
        "text": completion.text,
        **more,
    }


def main(base, rows, result):
    llm = LLM(
        base, dtype="float32", enforce_eager=True, enable_lora=True, max_loras=2, max_lora_rank=16, max_model_len=512
    )
    adapters = [name for _ in rows for name in SLOTS]  # one batch of both
    prompts = [{"prompt_token_ids": row} for row in rows for _ in SLOTS]
    outputs = llm.generate(prompts, SAMPLING, lora_request=[SLOTS[name] for name in adapters], use_tqdm=False)
    mixed = [turn(name, output) for name, output in zip(adapters, outputs, strict=True)]

    played = []

    def chat(adapter, messages):
        (output,) = llm.chat(
            messages,
            SAMPLING,
            lora_request=SLOTS[adapter],
            chat_template=GENERATION["custom_chat_template"],
            chat_template_kwargs=GENERATION["apply_chat_template_kwargs"],
            use_tqdm=False,
        )
        played.append(turn(adapter, output, messages=messages))
        return output.outputs[0].text

    problem = [{"role": "user", "content": "What is 2+3?"}]
    for drafter, challenger in ("AB", "BA"):
        chat(challenger, challenge(PAIR, problem, chat(drafter, problem)))
    Path(result).write_text(json.dumps({"mixed": mixed, "played": played}))


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]), sys.argv[3])
"""


@pytest.fixture(scope="module")
def served(exported: Exported, tmp_path_factory: pytest.TempPathFactory) -> dict:
    """The output of plain vLLM over the export, in a process of its own."""
    folder = tmp_path_factory.mktemp("vllm")
    (folder / "script.py").write_text(SCRIPT)
    command = [
        sys.executable,
        folder / "script.py",
        exported.base,
        json.dumps(exported.ids.tolist()),
        folder / "output.json",
    ]
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # one process, for each imports vLLM anew
    }
    done = subprocess.run(command, cwd=exported.out, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return json.loads((folder / "output.json").read_text())


def vllm_beside_peft(exported: Exported, turns: list[dict], adapter: str) -> float:
    """The largest gap between the log-probs that vLLM gave its own tokens and those of plain PEFT under `adapter`."""
    model = PeftModel.from_pretrained(loaded(exported.base), str(exported.out / adapter))
    gaps = []
    for turn in turns:
        scores = token_log_probs(model, torch.tensor([turn["prompt"] + turn["response"]]))[0, len(turn["prompt"]) - 1 :]
        gaps.append(gap(scores, torch.tensor(turn["log_probs"])))
    return max(gaps)


@pytest.mark.parametrize(("adapter", "other"), [("A", "B"), ("B", "A")])
def test_plain_vllm_has_the_log_probs_of_plain_peft(exported: Exported, served: dict, adapter: str, other: str) -> None:
    turns = [turn for turn in served["mixed"] + served["played"] if turn["adapter"] == adapter]
    assert len(turns) == ROWS + 2
    own, swapped = (vllm_beside_peft(exported, turns, name) for name in (adapter, other))
    print(f"{adapter}: vLLM beside PEFT {own:.2g}, beside the other adapter {swapped:.2g}")
    assert own < TOLERANCE and swapped > APART


def test_plain_vllm_plays_both_cascades_from_the_export_alone(exported: Exported, served: dict) -> None:
    """The prompts are those of training, token for token."""
    turns = served["played"]
    assert [turn["adapter"] for turn in turns] == ["A", "B", "B", "A"]
    tokenizer = AutoTokenizer.from_pretrained(exported.base)
    for draft, challenge in (turns[:2], turns[2:]):
        summary = transcript.read(draft["text"]).summary
        assert draft["messages"] == PROBLEM
        assert challenge["messages"] == challenge_messages(PROBLEM, summary and withhold_answer(summary))
    template, options = GENERATION["custom_chat_template"], GENERATION["apply_chat_template_kwargs"]
    for turn in turns:
        rendered = tokenizer.apply_chat_template(
            turn["messages"], chat_template=template, add_generation_prompt=True, **options
        )
        assert tokenizer.decode(rendered["input_ids"]).startswith("Be brief.")
        assert turn["prompt"] == rendered["input_ids"] and turn["response"]
