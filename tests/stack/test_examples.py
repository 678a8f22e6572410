"""The examples without a training run: problems, solutions, tokenizer, metrics, table, report, failure messages."""

import json
import random
import re
import sys
from pathlib import Path

import pandas as pd
import pytest

import agon_verl.report
from agon_verl.game.prompts import challenge_messages
from agon_verl.game.transcript import read
from agon_verl.game.withhold import WITHHELD, withhold_answer
from agon_verl.pair.checkpoint import MANIFEST
from agon_verl.pair.run_folder import read_metrics
from examples import quickstart, runner, smollm2
from examples.toy.build import split
from examples.toy.corpus import drills, encode, solutions
from examples.toy.model import ToySettings
from examples.toy.problems import GAINS, LOSSES, distinct, row
from examples.toy.tokenizer import train_tokenizer
from examples.toy.traces import SlipRates, solve
from tests.ended import gone

NO_SLIPS = SlipRates(0, 0, 0)
ALL_SLIPS = SlipRates(1, 1, 1)
SOURCE = "toy/arithmetic"


def answer_from_story(text: str) -> int:
    """The answer computed from the words alone, independently of the generator."""
    match = re.fullmatch(r"(\w+) has (\d+) (\w+) and (\w+) (\d+)( more)?\. How many \3 does \1 have now\?", text)
    assert match is not None, text
    start, verb, change = int(match[2]), match[4], int(match[5])
    assert (verb in GAINS) == bool(match[6]) == (verb not in LOSSES)
    return start + change if match[6] else start - change


def test_ground_truths_are_what_the_stories_say() -> None:
    for index, problem in enumerate(distinct(random.Random(3), 500) + smollm2.problems(0)):
        data = row(problem, index, "train")
        assert int(data["reward_model"]["ground_truth"]) == answer_from_story(data["prompt"][0]["content"])


def test_splits_are_disjoint_and_reproducible() -> None:
    settings = ToySettings()
    train, held_out = split(settings)
    assert len(held_out) == len({p.key for p in held_out}) == settings.held_out >= 200
    assert len(train) == len({p.key for p in train}) == settings.train_problems
    assert not {p.key for p in train} & {p.key for p in held_out}
    assert split(settings) == (train, held_out)
    assert split(ToySettings(seed=1)) != (train, held_out)


def test_working_without_slips_is_right_and_any_slip_makes_it_wrong() -> None:
    rng = random.Random(0)
    for problem in distinct(rng, 500):
        assert solve(problem, rng, NO_SLIPS).result == problem.answer
        sloppy = solve(problem, rng, SlipRates())
        assert (sloppy.result == problem.answer) == (not sloppy.slips)


def test_working_is_written_out_column_by_column() -> None:
    problem = next(p for p in distinct(random.Random(0), 5000) if p.sign == "+" and p.a == 48)
    assert problem.b == 34, "pick another seed"
    right, wrong = solve(problem, random.Random(0), NO_SLIPS), solve(problem, random.Random(0), ALL_SLIPS)
    assert right.completion == ("<think>48+34: 8+4=12, carry 1. 4+3+1=8.</think>Ones 12, tens 8. <answer>82</answer>")
    assert wrong.completion == "<think>48+34: 8+4=12. 4+3=7.</think>Ones 12, tens 7. <answer>72</answer>"


def test_completions_are_well_formed_and_their_summaries_hide_the_answer() -> None:
    rng = random.Random(0)
    for problem in distinct(rng, 100):
        solution = solve(problem, rng, SlipRates())
        transcript = read(solution.completion)
        assert transcript.well_formed and transcript.answer == str(solution.result)
        shown = withhold_answer(solution.summary, "math")
        assert shown.endswith(WITHHELD) and str(solution.result) not in re.findall(r"\d+", shown)[2:]


@pytest.fixture(scope="module")
def corpus() -> list:
    return list(solutions(random.Random(0), 600, SlipRates(), held_out=set()))


def test_no_held_out_sum_is_in_the_corpus() -> None:
    held_out = {p.key for p in distinct(random.Random(1), 300)}
    texts = solutions(random.Random(0), 2000, SlipRates(), held_out)
    sums = (re.search(r"<think>(\d+)([+-])(\d+):", text.completion) for text in texts)
    assert not held_out & {(int(m[1]), m[2], int(m[3])) for m in sums if m}


def test_tokenizer_splits_digits_keeps_tags_and_reads_challenges_cheaply(corpus: list) -> None:
    tokenizer = train_tokenizer(part for t in corpus for part in (t.messages[-1]["content"], t.completion))
    text = corpus[0].completion
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.decode([*ids, tokenizer.eos_token_id], skip_special_tokens=True) == text
    assert tokenizer.tokenize("1234") == list("1234")
    plain = [{"role": "user", "content": "Ann has 12 pens and buys 99 more. How many pens does Ann have now?"}]
    lengths = [
        len(tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"])
        for messages in (plain, challenge_messages(plain, "Ones 11, tens 11. " + WITHHELD))
    ]
    assert lengths[1] - lengths[0] < 30  # a hundred words of instructions and an attempt


def test_drills_teach_their_results_alone(corpus: list) -> None:
    tokenizer = train_tokenizer(part for t in corpus for part in (t.messages[-1]["content"], t.completion))
    drill = next(drills(random.Random(0), 1))
    (encoded,) = encode([drill], tokenizer)
    learned = "".join(tokenizer.decode([i]) for i, learn in zip(encoded.ids, encoded.learn, strict=True) if learn)
    facts = [fact.split("=") for fact in drill.completion.removesuffix(".").split(". ")]
    assert all(eval(left) == int(right) for left, right in facts)
    assert re.sub(r"\D", "", learned) == "".join(right for _, right in facts)


def write_metrics(path: Path, steps: int, *, cut_off: bool = False) -> Path:
    """As verl's file logger writes them: a validation, steps, and a validation at the last step."""
    ways = ("A_to_B", "B_to_A", "A_alone", "B_alone")

    def held_out(share: float) -> dict[str, float]:
        return {f"val-core/{SOURCE}/{way}/acc/mean@1": share - i / 100 for i, way in enumerate(ways)}

    lines: list[dict] = [{"step": 0, "data": held_out(0.45)}]
    for step in range(1, steps + 1):
        share = step / steps
        data = {"draft/acc": share, "challenge/acc": share, "draft/length": 40.0, "challenge/length": 41}
        data |= {"pair/damage": 1 - share, "note": "text"}
        if step % 2:
            data["pair/conversion"] = share  # a step whose drafts are all right has none
        lines.append({"step": step, "data": data | (held_out(0.9) if step == steps else {})})
    text = "".join(json.dumps(line) + "\n" for line in lines)
    path.write_text(text[:-20] if cut_off else text)
    return path


def test_metrics_are_read_by_step(tmp_path: Path) -> None:
    metrics = read_metrics(write_metrics(tmp_path / "metrics.jsonl", steps=4))
    assert metrics.last_step == 4
    assert metrics.curve("draft/acc") == ([1, 2, 3, 4], [0.25, 0.5, 0.75, 1.0])
    assert metrics.curve("pair/conversion") == ([1, 3], [0.25, 0.75])
    assert metrics.curve(f"val-core/{SOURCE}/A_to_B/acc/mean@1") == ([0, 4], [0.45, 0.9])


def test_an_incomplete_last_line_is_ignored(tmp_path: Path) -> None:
    assert read_metrics(write_metrics(tmp_path / "metrics.jsonl", steps=4, cut_off=True)).last_step == 3
    assert read_metrics(tmp_path / "not-there.jsonl").by_step == {}


def test_table(tmp_path: Path) -> None:
    metrics = read_metrics(write_metrics(tmp_path / "m.jsonl", steps=4))
    lines = runner.accuracy_table(metrics, SOURCE, problems=300).splitlines()
    assert "n = 300" in lines[0]
    assert lines[2].split() == "A drafts, B challenges 45.0 % [39, 51] 90.0 % [86, 93] +45.0".split()
    assert lines[5].startswith("B alone")
    cut_off = read_metrics(write_metrics(tmp_path / "m.jsonl", steps=4, cut_off=True))
    with pytest.raises(ValueError, match="before and after"):
        runner.accuracy_table(cut_off, SOURCE, problems=300)


def test_a_finished_run_prints_its_table_and_writes_its_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def build(folder: Path) -> None:
        pd.DataFrame([{"problem": i, "data_source": SOURCE} for i in range(300)]).to_parquet(folder / "test.parquet")

    example = runner.Example("name", "A title", build, "built from this", [], steps=4)
    run = example.folder(tmp_path)
    run.mkdir()
    (run / "finished.json").write_text("{}")
    write_metrics(run / "metrics.jsonl", steps=4)
    example.run(tmp_path, rerun=False)
    printed = capsys.readouterr().out
    assert "A drafts, B challenges" in printed and str(run / "report.html") in printed
    html = (run / "report.html").read_text()
    assert "<h1>A title</h1>" in html and "Training accuracy" in html


def test_without_the_reports_packages_the_rest_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(folder: Path) -> None:
        pd.DataFrame([{"data_source": SOURCE} for _ in range(300)]).to_parquet(folder / "test.parquet")

    example = runner.Example("name", "A title", build, "built from this", [], steps=4)
    example.folder(tmp_path).mkdir()
    (example.folder(tmp_path) / "finished.json").write_text("{}")
    write_metrics(example.folder(tmp_path) / "metrics.jsonl", steps=4)
    monkeypatch.setitem(sys.modules, "jinja2", None)  # cannot be imported
    monkeypatch.delitem(sys.modules, "agon_verl.report.page", raising=False)
    monkeypatch.delattr(agon_verl.report, "page", raising=False)
    example.run(tmp_path, rerun=False)
    printed = capsys.readouterr().out
    assert "A drafts, B challenges" in printed and "not written: jinja2 is needed" in printed


def test_a_run_that_ended_early_keeps_its_checkpoint(tmp_path: Path) -> None:
    example = runner.Example("name", "A title", lambda folder: None, "built from this", [], steps=4)
    saved = example.folder(tmp_path) / "checkpoints" / "global_step_2"
    saved.mkdir(parents=True)
    (saved / MANIFEST).write_text("{}")
    with pytest.raises(
        SystemExit, match=r"(?s)left .*global_step_2\. Continue it with.*resume_mode=auto\nor start again"
    ):
        example.run(tmp_path, rerun=False)
    assert (saved / MANIFEST).exists()


def test_the_run_folder_depends_on_the_settings() -> None:
    one, same, other = quickstart.example(20, 0), quickstart.example(20, 0), quickstart.example(20, 1)
    assert one.overrides == same.overrides != other.overrides
    assert one.built_from == same.built_from == other.built_from  # another seed of the run uses the same model


def test_an_interrupted_build_leaves_nothing(tmp_path: Path) -> None:
    def fails(folder: Path) -> None:
        (folder / "half").touch()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner.build_once(tmp_path / "inputs", fails)
    assert list(tmp_path.iterdir()) == []
    runner.build_once(tmp_path / "inputs", lambda folder: (folder / "complete").touch())
    runner.build_once(tmp_path / "inputs", fails)  # exists: nothing is built
    assert (tmp_path / "inputs" / "complete").exists()


def test_errors_in_the_log_of_a_failed_run() -> None:
    log = (
        "\x1b[36m(TaskRunnerV1 pid=12)\x1b[0m loading\n"
        "Traceback (most recent call last):\n"
        "\x1b[36m(TaskRunnerV1 pid=12)\x1b[0m ValueError: a bad value\n"
        "ray.exceptions.RayTaskError(ValueError): a bad value\n"
        "ValueError: a bad value\n"
    )
    assert (
        runner.error_lines(log) == "  ValueError: a bad value\n  ray.exceptions.RayTaskError(ValueError): a bad value"
    )
    assert runner.error_lines("one\n\nKilled\n") == "  one\n  Killed"
    assert runner.error_lines("agon-verl: data.train_files=x is not a file\n").endswith("is not a file")


def test_phases_of_start_up() -> None:
    assert runner.phase("") == 0
    assert runner.phase("… Started a local Ray instance.\nTotal training steps: 20") == 2


def test_a_failure_is_reported_and_no_process_is_left(tmp_path: Path) -> None:
    """A command that starts another process and fails."""
    script = tmp_path / "fake.py"
    script.write_text(
        "import subprocess, sys\n"
        "child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        f"open({str(tmp_path / 'child')!r}, 'w').write(str(child.pid))\n"
        "sys.exit('ValueError: no such thing')\n"
    )
    with pytest.raises(runner.TrainingFailed, match="no such thing"):
        runner.train(tmp_path, [sys.executable, str(script)], steps=2, start_up="00:01")
    assert gone([int((tmp_path / "child").read_text())], 5)
