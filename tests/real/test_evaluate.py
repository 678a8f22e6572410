"""One vLLM engine plays every mode of a pair of random adapters; plain vLLM gives the same tokens."""

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM
from vllm.config import SchedulerConfig
from vllm.engine import arg_utils
from vllm.v1.engine.async_llm import AsyncLLM

import agon_verl.evaluate.__main__ as command
from agon_verl.game import transcript
from agon_verl.game.prompts import challenge_messages
from agon_verl.game.withhold import withhold_answer
from agon_verl.inference import Completion, Engine, InferenceError, Sampling, find_players, solve
from agon_verl.pair.base import hash_of_base
from agon_verl.pair.checkpoint import Manifest, versions
from tests.real.runs import read_jsonl

GREEDY = Sampling(temperature=0.0, max_tokens=24)
GENERATION = {"temperature": 0.6, "top_p": 0.95, "max_prompt_length": 384, "max_response_length": 24}
PROBLEM = [{"role": "user", "content": "What is 2+3?"}]
COIN = """
import zlib

def compute_score(data_source, solution_str, ground_truth, extra_info):
    heads = zlib.crc32(solution_str.encode("utf-8", "replace")) % 2
    return {"acc": float(heads), "format": 1.0, "pred": solution_str[:1]}
"""
BROKEN = "def compute_score(**_): raise OSError('no sandbox')"

BY_HAND = """
import json, sys
from vllm import LLM, SamplingParams
from vllm.lora.request import LoRARequest

def main(base, adapters, sent, result):
    llm = LLM(base, dtype="float32", enforce_eager=True, enable_lora=True, max_loras=2, max_lora_rank=8)
    greedy, tokens = SamplingParams(temperature=0.0, max_tokens=24), {}
    for name, chats in json.load(open(sent)).items():
        lora = LoRARequest(name, 1 + "AB".index(name), f"{adapters}/{name}")
        outputs = llm.chat(chats, greedy, lora_request=lora, use_tqdm=False)
        tokens[name] = [list(output.outputs[0].token_ids) for output in outputs]
    json.dump(tokens, open(result, "w"))

if __name__ == "__main__":
    main(*sys.argv[1:])
"""


@pytest.fixture(scope="module")
def checkpoint(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_pair(tiny / "model", tmp_path_factory.mktemp("run") / "global_step_3", seed=0)


def make_pair(base: Path, folder: Path, seed: int) -> Path:
    for number, adapter in enumerate("AB"):
        torch.manual_seed(seed + number)
        model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
        config = LoraConfig(r=8, target_modules="all-linear", init_lora_weights=False, task_type="CAUSAL_LM")
        get_peft_model(model, config).save_pretrained(folder / "actor" / adapter)
    Manifest(3, str(base), hash_of_base(base), {"lora_rank": 8}, {}, versions(), {}, GENERATION).write(folder)
    return folder


class Running:
    """An engine in a loop of its own, and the command with that engine in place of a new one."""

    def __init__(self, checkpoint: Path) -> None:
        self.loop = asyncio.new_event_loop()
        self.engine = self.loop.run_until_complete(self._start(checkpoint))
        self.starts = 0

    async def _start(self, checkpoint: Path) -> Engine:
        return Engine(find_players(str(checkpoint)))

    def wait(self, coroutine: Any) -> Any:
        return self.loop.run_until_complete(coroutine)

    def _borrow(self, players: Any, **_: Any) -> Any:
        self.starts += 1
        lent = SimpleNamespace(close=lambda: None, players=players, alive=True, beside=self.engine.beside)
        for name in ("generate", "excess", "count", "read", "control"):
            setattr(lent, name, getattr(self.engine, name))
        return lent

    def evaluate(self, *arguments: object) -> int:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(command, "Engine", self._borrow)
            patch.setattr(command, "asyncio", SimpleNamespace(run=self.wait))
            return command.main([str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def running(checkpoint: Path) -> Iterator[Running]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_WORKER_MULTIPROC_METHOD", "spawn")  # other tests have used torch's threads
        started = Running(checkpoint)
    yield started
    started.engine.close()
    started.wait(asyncio.sleep(0.1))  # vLLM's tasks in the loop end
    started.loop.close()


@pytest.fixture(scope="module")
def evaluated(running: Running, checkpoint: Path, tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """All modes, two samples, eight problems of which two are for development."""
    folder = tmp_path_factory.mktemp("evaluate")
    (folder / "coin.py").write_text(COIN)
    arguments = [checkpoint, "--data", tiny / "val.parquet", "--samples", 2, "--dev-share", 0.25]
    arguments += ["--reward", folder / "coin.py", "--out"]
    assert running.evaluate(*arguments, folder / "out") == 0
    lines, results = read(folder / "out")
    return SimpleNamespace(folder=folder, arguments=arguments, out=folder / "out", lines=lines, results=results)


def read(folder: Path) -> tuple[list[dict], dict]:
    return read_jsonl(folder / "generations.jsonl"), json.loads((folder / "results.json").read_text())


def key(line: dict) -> tuple:
    return line["mode"], line["problem"], line["sample"]


def test_a_large_gpu_decodes_as_many_at_a_time_as_under_vllms_own_server(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine by itself would have 128, whatever `--concurrency` sends it. The GPU is one by name only."""
    gpu = SimpleNamespace(get_device_total_memory=lambda: 140 << 30, get_device_name=lambda: "NVIDIA H200")
    gpu.is_tpu = gpu.is_cpu = lambda: False
    sequences: list[int] = []

    def chosen(arguments: arg_utils.AsyncEngineArgs, usage_context: Any = None) -> None:
        monkeypatch.setattr(arg_utils, "current_platform", gpu)
        sequences.append(arguments.get_batch_defaults(1)[1].get(usage_context, SchedulerConfig.DEFAULT_MAX_NUM_SEQS))

    monkeypatch.setattr(AsyncLLM, "from_engine_args", chosen)
    Engine(find_players(str(checkpoint)))
    assert sequences == [1024]


def test_every_mode_plays_and_first_stages_are_shared(evaluated: Any) -> None:
    """Held out: 6 problems in all modes; development: 2 in both directions; 2 samples each, 4 of the mixture's base."""
    counts = Counter(line["mode"] for line in evaluated.lines)
    both, held_out = 2 * 8, 2 * 6
    assert counts == {
        **{"A": both, "B": both, "A_to_B": both, "B_to_A": both},
        **{"A_to_A": held_out, "B_to_B": held_out, "base": 2 * held_out, "moa": 2 * held_out},
    }
    assert len({key(line) for line in evaluated.lines}) == len(evaluated.lines)
    assert {line["player"] for line in evaluated.lines if line["mode"] == "B_to_A"} == {"A"}
    (toy,) = evaluated.results["sets"].values()
    assert list(toy["modes"]) == ["A_to_B", "B_to_A", "A_to_A", "B_to_B", "A", "B", "base", "moa"]
    assert evaluated.results["development"]["problems"] == 2 and toy["problems"] == 6
    assert evaluated.results["direction"]["chosen"] in ("A_to_B", "B_to_A")
    assert 0 < toy["modes"]["moa"]["pass@1"] < 1  # the coin verifier gave both verdicts
    assert "| A_to_B |" in (evaluated.out / "results.md").read_text()


def test_players_differ_and_so_do_samples(evaluated: Any) -> None:
    first = [line for line in evaluated.lines if line["stage"] == 1]
    problem = evaluated.lines[0]["problem"]
    texts = [line["text"] for line in first if line["problem"] == problem and line["player"] != "base"]
    assert len(set(texts)) == len(texts) == 4


def test_the_ledger_is_the_sum_of_the_lines(evaluated: Any) -> None:
    lines, results = evaluated.lines, evaluated.results
    assert results["ledger"] == {
        "generations": len(lines),
        "generated": sum(line["tokens"] for line in lines),
        "prefilled": sum(line["prompt_tokens"] for line in lines),
    }
    (toy,) = results["sets"].values()
    held_out = set(toy["outcomes"]["A_to_B"])
    drafts = [line for line in lines if line["mode"] == "A" and line["problem"] in held_out]
    finals = [line for line in lines if line["mode"] == "A_to_B" and line["problem"] in held_out]
    ledger = toy["modes"]["A_to_B"]["ledger"]
    for stage, made in (("draft", drafts), ("final", finals)):
        assert ledger[stage]["generated"] == sum(line["tokens"] for line in made)
        assert ledger[stage]["prefilled"] == sum(line["prompt_tokens"] for line in made)
    assert ledger["per_pass"]["generated"] == sum(line["tokens"] for line in drafts + finals) / 12
    right = {key(line)[1:]: line["acc"] for line in drafts}
    converted = sum(line["acc"] > right[key(line)[1:]] for line in finals)
    assert toy["modes"]["A_to_B"]["exchange"]["converted"] == converted


def test_what_was_shown_is_the_draft_without_its_answer(evaluated: Any) -> None:
    by_key = {key(line): line for line in evaluated.lines}
    for line in evaluated.lines:
        if "_to_" in line["mode"]:
            draft = by_key[line["mode"][0], line["problem"], line["sample"]]
            summary = transcript.read(draft["text"]).summary
            assert line["shown"] == (withhold_answer(summary) if summary else None)
            assert line["prompt_tokens"] > draft["prompt_tokens"] and not line["cut"]


def test_a_killed_evaluation_is_continued_and_ends_the_same(running: Running, evaluated: Any) -> None:
    again, starts = evaluated.folder / "again", running.starts
    again.mkdir()
    (again / "settings.json").write_bytes((evaluated.out / "settings.json").read_bytes())
    lines = (evaluated.out / "generations.jsonl").read_bytes().splitlines(keepends=True)
    kept = b"".join(lines[::2])  # also challenges whose drafts are gone
    (again / "generations.jsonl").write_bytes(kept + lines[1][:40])
    assert running.evaluate(*evaluated.arguments, again) == 0
    after, results = read(again)
    assert (again / "generations.jsonl").read_bytes().startswith(kept)
    assert len(after) == len(evaluated.lines) == len({key(line) for line in after})
    assert sorted(after, key=key) == sorted(evaluated.lines, key=key)
    assert results == evaluated.results
    assert running.evaluate(*evaluated.arguments, again) == 0
    assert running.starts == starts + 1  # with nothing missing there is no need of an engine


def test_other_settings_are_refused_and_more_samples_are_not(
    running: Running, evaluated: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert running.evaluate(*evaluated.arguments, evaluated.out, "--seed", 1) == 1
    assert "other settings: seed was 0, now 1." in capsys.readouterr().err
    few, more = (["--modes", "A", "--out", evaluated.folder / "few", "--samples", n] for n in (1, 2))
    command_line = [arg for arg in evaluated.arguments[:-1] if arg not in ("--samples", 2, "--dev-share", 0.25)]
    assert running.evaluate(*command_line, *few) == 0
    assert running.evaluate(*command_line, *more) == 0
    lines, results = read(evaluated.folder / "few")
    before = {key(line): line for line in evaluated.lines}
    assert len(lines) == 16 and all(line == before[key(line)] for line in lines)
    assert results["samples"] == 2


def test_without_two_directions_nothing_is_chosen_but_the_same_problems_are_reported(
    running: Running, evaluated: Any
) -> None:
    assert running.evaluate(*evaluated.arguments, evaluated.folder / "alone", "--modes", "A") == 0
    lines, results = read(evaluated.folder / "alone")
    [[source, toy]] = results["sets"].items()
    assert toy["modes"]["A"] == evaluated.results["sets"][source]["modes"]["A"]
    assert len(lines) == 2 * 6 and results["development"] is None


def test_a_judge_that_fails_ends_the_command_and_a_better_one_finds_the_generations(
    running: Running, evaluated: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    judge = tmp_path / "judge.py"
    judge.write_text(BROKEN)
    command_line = [*evaluated.arguments[:3], "--modes", "B", "--reward", judge, "--out", tmp_path / "out"]
    assert running.evaluate(*command_line) == 1
    assert "more than --max-failed=0.1 of 8; the last time: OSError: no sandbox" in capsys.readouterr().err
    assert running.evaluate(*command_line, "--max-failed", 1) == 0
    (toy,) = read(tmp_path / "out")[1]["sets"].values()
    assert toy["modes"]["B"]["left_out"] == 8 and toy["modes"]["B"]["pass@1"] is None
    judge.write_text(COIN)
    assert running.evaluate(*command_line) == 0
    lines, results = read(tmp_path / "out")
    (toy,) = results["sets"].values()
    assert toy["modes"]["B"]["answers"] == 8 and results["left_out"] == 0
    assert len({line["text"] for line in lines}) == len({key(line) for line in lines}) == 8


def test_the_cascade_is_that_of_plain_vllm(running: Running, checkpoint: Path, tmp_path: Path) -> None:
    solved_by = {
        mode: running.wait(solve(running.engine, PROBLEM, mode, GREEDY)) for mode in ("A_to_B", "B_to_A", "base")
    }
    assert solved_by["base"].draft is None
    sent: dict[str, list] = {"A": [PROBLEM], "B": [PROBLEM]}
    for mode, solved in solved_by.items():
        if solved.draft is not None:
            summary = transcript.read(solved.draft.text).summary
            sent[mode[-1]].append(challenge_messages(PROBLEM, summary and withhold_answer(summary)))
    (tmp_path / "script.py").write_text(BY_HAND)
    (tmp_path / "sent").write_text(json.dumps(sent))
    arguments = [running.engine.players.base, checkpoint / "actor", tmp_path / "sent", tmp_path / "outputs"]
    environment = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    environment["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    done = subprocess.run(
        [sys.executable, tmp_path / "script.py", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    outputs = json.loads((tmp_path / "outputs").read_text())
    assert outputs["A"] == [list(solved_by["A_to_B"].draft.ids), list(solved_by["B_to_A"].final.ids)]
    assert outputs["B"] == [list(solved_by["B_to_A"].draft.ids), list(solved_by["A_to_B"].final.ids)]
    assert len({solved_by["A_to_B"].draft.ids, solved_by["B_to_A"].draft.ids, solved_by["base"].final.ids}) == 3


def test_a_base_without_a_hash_is_compared_by_its_name(running: Running) -> None:
    """A name of the hub has no hash before it is downloaded."""
    players = running.engine.players
    running.engine.beside(replace(players, base_hash=None))
    for other in (replace(players, base_hash="0" * 64), replace(players, base_hash=None, base="another")):
        with pytest.raises(InferenceError, match="has another base"):
            running.engine.beside(other)


def test_the_base_is_the_base_beside_requests_of_adapters(running: Running) -> None:
    """vLLM's own CPU kernels take "no adapter" for the last slot."""

    async def beside() -> list[Completion]:
        return await asyncio.gather(*(running.engine.generate(PROBLEM, p, GREEDY) for p in ("A", "base", "B", "base")))

    alone = [running.wait(running.engine.generate(PROBLEM, player, GREEDY)) for player in ("A", "base", "B", "base")]
    assert running.wait(beside()) == alone
    model = AutoModelForCausalLM.from_pretrained(running.engine.players.base, dtype=torch.float32)
    prompt = torch.tensor([running.engine.prompt_ids(PROBLEM)])
    generated = model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=24)
    assert tuple(generated[0, prompt.shape[1] :].tolist()) == alone[1].ids


def test_pairs_over_one_base_share_a_vllm(running: Running, tiny: Path, checkpoint: Path, tmp_path: Path) -> None:
    """Four adapters in two slots, with the same prompt in the prefix cache: each answers as it does in PEFT."""
    base = tiny / "model"
    second = running.engine.beside(find_players(str(make_pair(base, tmp_path / "global_step_3", seed=7))))
    played = [(running.engine, checkpoint), (second, tmp_path / "global_step_3")]
    prompt = torch.tensor([running.engine.prompt_ids(PROBLEM)])
    answers = set()
    for _ in range(2):
        for engine, folder in played:
            for adapter in "AB":
                model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
                tuned = PeftModel.from_pretrained(model, folder / "actor" / adapter)
                mask = torch.ones_like(prompt)
                made = tuned.generate(input_ids=prompt, attention_mask=mask, do_sample=False, max_new_tokens=24)
                completion = running.wait(engine.generate(PROBLEM, adapter, GREEDY))
                assert completion.ids == tuple(made[0, prompt.shape[1] :].tolist())
                answers.add(completion.ids)
    assert len(answers) == 4


def test_several_targets_in_one_command(
    running: Running, evaluated: Any, tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One start for all; a target that cannot be evaluated does not stop the others."""
    second = make_pair(tiny / "model", tmp_path / "global_step_3", seed=7)
    rest, starts = [*evaluated.arguments[1:-1], "--modes", "A", "A_to_A", "--out"], running.starts
    parts = [[evaluated.arguments[0], *rest, tmp_path / "first"], ["--and", tmp_path / "none", *rest, tmp_path / "x"]]
    parts += [["--and", second, *rest, tmp_path / "second"]]
    assert running.evaluate(*[each for part in parts for each in part]) == 1
    assert running.starts == starts + 1
    assert f"1 of 3 targets failed: {tmp_path / 'none'}" in capsys.readouterr().err
    before = {key(line): line for line in evaluated.lines}
    lines, _ = read(tmp_path / "first")
    assert lines and all(line == before[key(line)] for line in lines)
    others, _ = read(tmp_path / "second")
    assert {key(line) for line in others} == {key(line) for line in lines}
    assert {line["text"] for line in others if line["mode"] == "A"}.isdisjoint(line["text"] for line in lines)
    other, again = ["--and", second, *rest, tmp_path / "b"], [evaluated.arguments[0], *rest, tmp_path / "a"]
    assert running.evaluate(*again, "--engine", "max_num_seqs=4", *other) == 1
    assert "--engine differs between targets" in capsys.readouterr().err


def test_a_stream_ends_with_the_completion_of_generate(running: Running) -> None:
    async def streamed() -> list[str | Completion]:
        return [piece async for piece in running.engine.stream(PROBLEM, "A", GREEDY)]

    *pieces, last = running.wait(streamed())
    assert last == running.wait(running.engine.generate(PROBLEM, "A", GREEDY)) and isinstance(last, Completion)
    assert "".join(pieces) == last.text and len(pieces) > 1


def test_a_cancelled_caller_ends_its_request(running: Running) -> None:
    async def leave() -> None:
        task = asyncio.ensure_future(running.engine.generate(PROBLEM, "B", Sampling(max_tokens=24)))
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    running.wait(leave())
    assert running.wait(running.engine.generate(PROBLEM, "B", GREEDY)).ids and running.engine.alive


def test_bad_requests(running: Running) -> None:
    with pytest.raises(InferenceError, match="player 'C' does not exist: use one of A, B, base"):
        running.wait(running.engine.generate(PROBLEM, "C"))
    with pytest.raises(InferenceError, match="tokens, more than the limit 384"):
        running.wait(running.engine.generate([{"role": "user", "content": "2+3 " * 400}], "A"))
