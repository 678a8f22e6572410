"""`python -m agon_verl.data` on files that the tests make, in the layouts of the hub's datasets."""

import contextlib
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import pandas as pd
import pytest
from omegaconf import OmegaConf
from transformers import AutoTokenizer

from agon_verl.data import sources
from agon_verl.data.__main__ import main, parse, prompt_of
from agon_verl.data.sources import is_binary
from agon_verl.data.write import fingerprint
from agon_verl.game import transcript
from agon_verl.game.domains.code import CODE, FUNCTION_TASK
from agon_verl.game.domains.domain import Domain
from agon_verl.game.domains.math import MATH
from agon_verl.game.transcript import REASONING_TAGS
from agon_verl.trainer.preflight import check_files
from tests.recipes import composed
from tests.tiny import make_model
from tests.unit.data.test_functions import basic, human, live
from tests.unit.data.test_programs import contest

TOPICS = ("group", "ring", "field", "module", "graph", "matrix", "curve", "series")


def question(number: int) -> str:
    return f"Let K{number} be the {TOPICS[number % 8]} number {number}. Find f{number}({number * number})."


def deepmath(rows: int = 40) -> list[dict[str, Any]]:
    return [
        {
            "question": question(number),
            "final_answer": str(number),
            "difficulty": 8.0,
            "topic": "Algebra",
            "r1_solution_1": "…",
        }
        for number in range(rows)
    ]


def lines(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def run(*options: str, capsys: pytest.CaptureFixture[str] | None = None) -> str:
    assert main(options) == 0
    return "" if capsys is None else capsys.readouterr().out


def refused(*options: str) -> str:
    with contextlib.redirect_stderr(io.StringIO()) as errors:
        assert main(options) == 1
    message = errors.getvalue().rstrip("\n")
    assert message.startswith("agon-verl: ") and "\n" not in message
    return message


def read(path: Path) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq

    return pq.read_table(path).to_pylist()


@pytest.fixture
def table(tmp_path: Path) -> str:
    return lines(tmp_path / "deepmath.jsonl", deepmath())


def split(table: str, out: Path, *options: str) -> list[str]:
    return [
        "deepmath",
        "--from",
        table,
        "--train",
        "20",
        "--heldout",
        "5",
        "--against",
        "none",
        "--out",
        str(out),
        *options,
    ]


def test_rows_as_verl_reads_them(table: str, tmp_path: Path) -> None:
    run(*split(table, tmp_path / "out"))
    train, heldout = (read(tmp_path / "out" / f"{name}.parquet") for name in ("train", "heldout"))
    assert (len(train), len(heldout)) == (20, 5)
    row = train[3]
    assert row.keys() == {"data_source", "prompt", "ability", "reward_model", "extra_info"}
    assert row["data_source"] == "deepmath" and row["ability"] == "math"
    number = row["extra_info"].pop("row")
    assert row["extra_info"] == {"index": 3, "split": "train", "difficulty": 8.0, "topic": "Algebra"}
    assert row["reward_model"] == {"style": "rule", "ground_truth": str(number)}
    (message,) = row["prompt"]
    assert message["role"] == "user" and message["content"].startswith(question(number))
    assert "<answer>" in message["content"]
    assert not {r["prompt"][0]["content"] for r in train} & {r["prompt"][0]["content"] for r in heldout}


def test_the_split_depends_on_the_seed_and_the_problems_alone(table: str, tmp_path: Path) -> None:
    """Two hashes written down: whoever changes them changes everybody's held-out set."""
    run(*split(table, tmp_path / "one"))
    told = json.loads((tmp_path / "one" / "report.json").read_text())["files"]
    assert told["heldout.parquet"]["sha256_of_rows"][:16] == "830ee0df8c45c09b"
    assert told["train.parquet"]["sha256_of_rows"][:16] == "3f9534bb65fb5f4b"
    assert fingerprint(read(tmp_path / "one" / "train.parquet")) == told["train.parquet"]["sha256_of_rows"]

    def texts(folder: str, name: str) -> list[str]:
        return [row["prompt"][0]["content"] for row in read(tmp_path / folder / f"{name}.parquet")]

    backwards = lines(tmp_path / "backwards.jsonl", deepmath()[::-1] + deepmath()[:7])
    run(*split(backwards, tmp_path / "two", "--train", "all"))
    assert texts("two", "heldout") == texts("one", "heldout")
    assert texts("two", "train")[:20] == texts("one", "train") and len(texts("two", "train")) == 35
    run(*split(table, tmp_path / "three", "--seed", "1"))
    assert texts("three", "heldout") != texts("one", "heldout")


def test_reasons_are_counted(tmp_path: Path) -> None:
    rows = deepmath(12)
    rows[0]["difficulty"], rows[1]["difficulty"] = 7.5, None
    rows[2]["final_answer"], rows[3]["final_answer"] = "Yes", r"\text{False}"
    rows[4]["final_answer"], rows[5]["question"] = " $ ", " "
    rows[6]["final_answer"], rows[7]["final_answer"] = "x" * 301, r"\boxed{\frac{1}{2}}"
    rows += [rows[8] | {"final_answer": "other"}, rows[9], rows[10] | {"question": rows[10]["question"].upper() + " "}]
    rows[11]["question"] = "In a test set: " + question(99)
    tests = lines(tmp_path / "test.jsonl", [{"problem": question(99)}])
    table = lines(tmp_path / "deepmath.jsonl", rows)
    out = tmp_path / "out"
    run("deepmath", "--from", table, "--train", "all", "--heldout", "1", "--against", tests, "--out", str(out))
    told = json.loads((out / "report.json").read_text())
    assert told["removed"] == {
        "of another difficulty than 8": 2,
        "with a binary answer": 2,
        "without a reference answer": 1,
        "without a text": 1,
        "with a reference of more than 300 characters": 1,
        f"alike to one of {tests}": 1,
        "equal to another with another reference": 2,
        "equal to another": 2,
    }
    assert told["rows_read"] == 15 == sum(told["removed"].values()) + 3
    assert {
        row["reward_model"]["ground_truth"] for name in ("train", "heldout") for row in read(out / f"{name}.parquet")
    } == {
        "9",
        "10",
        r"\frac{1}{2}",
    }
    assert "2 removed: with a binary answer" in (out / "report.md").read_text()


@pytest.mark.parametrize(
    "answer", ["Yes", "no.", r"\text{True}", "$\\text{No}$", "False", "Yes, it is compact", r"\boxed{Yes}"]
)
def test_binary(answer: str) -> None:
    assert is_binary(answer)


@pytest.mark.parametrize("answer", ["0", "1", "none", "no solution", "n", "not a number", r"\text{even}", "F"])
def test_not_binary(answer: str) -> None:
    assert not is_binary(answer)


def test_too_few(table: str, tmp_path: Path) -> None:
    message = refused(*split(table, tmp_path / "out", "--train", "40"))
    assert "40 of 40 problems remain, but 45 are requested (--heldout 5, --train 40): lower that" in message
    message = refused(*split(table, tmp_path / "out", "--difficulty", "5-7"))
    assert "0 of 40 problems remain" in message and "40 of another difficulty than 5-7" in message
    assert not (tmp_path / "out").exists()


def test_other_files_are_not_replaced(table: str, tmp_path: Path) -> None:
    run(*split(table, tmp_path / "out"))
    run(*split(table, tmp_path / "out"))  # the same rows
    assert "with other rows" in refused(*split(table, tmp_path / "out", "--seed", "1"))
    run(*split(table, tmp_path / "out", "--seed", "1", "--overwrite"))
    (tmp_path / "out" / "train.parquet").write_bytes(b"torn")
    assert "train.parquet exists with other rows" in refused(*split(table, tmp_path / "out"))
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "train.parquet",
        "heldout.parquet",
        "report.json",
        "report.md",
    }


def test_evaluation_sets_that_cannot_be_had_stop_it(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    message = refused("deepmath", "--from", table, "--out", str(tmp_path / "out"))
    assert "must be compared with openai/gsm8k:main" in message and "--against none" in message


@pytest.mark.parametrize("kind", ["parquet", "json", "csv", "folder", "saved", "saved_splits"])
def test_files_and_folders_give_the_same(kind: str, table: str, tmp_path: Path) -> None:
    run(*split(table, tmp_path / "expected"))
    frame, path = pd.DataFrame(deepmath()), tmp_path / f"table.{kind}"
    if kind == "parquet":
        frame.to_parquet(path)
    elif kind == "json":
        path.write_text(json.dumps(deepmath()))
    elif kind == "csv":
        frame.to_csv(path, index=False)
    elif kind == "folder":  # as the hub lays it out
        (path / "data").mkdir(parents=True)
        frame[:15].to_parquet(path / "data" / "train-00000-of-00002.parquet")
        frame[15:].to_parquet(path / "data" / "train-00001-of-00002.parquet")
    else:
        saved = datasets.Dataset.from_list(deepmath())
        (datasets.DatasetDict(train=saved) if kind == "saved_splits" else saved).save_to_disk(str(path))
    run(*split(str(path), tmp_path / "out"))
    for name in ("train.parquet", "heldout.parquet"):
        assert read(tmp_path / "out" / name) == read(tmp_path / "expected" / name)


GSM8K_CARD = """---
configs:
- config_name: main
  data_files: [{split: train, path: main/train-*}, {split: test, path: main/test-*}]
- config_name: socratic
  data_files: [{split: train, path: socratic/train-*}]
---
"""


def gsm8k(path: Path) -> Path:
    """The hub's layout: two configurations, each with its own files."""
    for config in ("main", "socratic"):
        (path / config).mkdir(parents=True)
    (path / "README.md").write_text(GSM8K_CARD)
    rows = [{"question": question(n), "answer": f"It is <<{n}={n}>>.\n#### 1,{n:03}"} for n in range(12)]
    rows[3]["answer"] = "It is 3."
    pd.DataFrame(rows[:8]).to_parquet(path / "main" / "train-00000-of-00001.parquet")
    pd.DataFrame([*rows[8:], rows[0]]).to_parquet(path / "main" / "test-00000-of-00001.parquet")
    pd.DataFrame(rows[:2]).to_parquet(path / "socratic" / "train-00000-of-00001.parquet")
    return path


def test_gsm8k_keeps_its_test_split_and_its_configuration(tmp_path: Path) -> None:
    folder = gsm8k(tmp_path / "gsm8k")
    run("gsm8k", "--from", f"{folder}:main", "--against", "none", "--out", str(tmp_path / "out"))
    train, heldout = (read(tmp_path / "out" / f"{name}.parquet") for name in ("train", "heldout"))
    assert {row["reward_model"]["ground_truth"] for row in train} == {f"1,{n:03}" for n in (1, 2, 4, 5, 6, 7)}
    assert {row["reward_model"]["ground_truth"] for row in heldout} == {f"1,{n:03}" for n in (0, 8, 9, 10, 11)}
    told = json.loads((tmp_path / "out" / "report.json").read_text())
    assert told["removed"] == {"without an answer behind ####": 1, "equal to one of the held-out set": 1}


def test_gsm8k_as_an_evaluation_set(tmp_path: Path, table: str) -> None:
    folder = gsm8k(tmp_path / "gsm8k")
    run(*split(table, tmp_path / "out", "--against", f"{folder}:main"))
    told = json.loads((tmp_path / "out" / "report.json").read_text())
    assert told["removed"] == {f"equal to one of {folder}:main": 5}  # its test split


def test_gsm8k_in_one_file(tmp_path: Path) -> None:
    file = lines(tmp_path / "train.jsonl", [{"question": question(1), "answer": "#### 1"}])
    assert "--heldout-from" in refused("gsm8k", "--from", file, "--against", "none")
    test = lines(tmp_path / "test.jsonl", [{"question": question(2), "answer": "#### 2"}])
    run("gsm8k", "--train", "0", "--heldout-from", test, "--out", str(tmp_path / "out"))
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"heldout.parquet", "report.json", "report.md"}


def test_math500_is_for_evaluation(tmp_path: Path) -> None:
    rows = [
        {"problem": question(n), "answer": str(n), "subject": "Algebra", "level": 2, "unique_id": "x"} for n in range(9)
    ]
    run("math500", "--from", lines(tmp_path / "test.jsonl", rows), "--out", str(tmp_path / "out"))
    assert not (tmp_path / "out" / "train.parquet").exists()
    assert read(tmp_path / "out" / "heldout.parquet")[0]["extra_info"]["level"] == 2


def test_codecontests_in_the_hubs_layout(tmp_path: Path) -> None:
    (tmp_path / "hub" / "data").mkdir(parents=True)
    rows = [
        contest(name=str(n), description=f"{question(n)} Print it.", solutions={"language": [3], "solution": ["…"]})
        for n in range(6)
    ]
    rows[1]["difficulty"] = 2
    datasets.Dataset.from_list(rows).to_parquet(str(tmp_path / "hub" / "data" / "train-00000-of-00001-0123.parquet"))
    run("codecontests", "--from", str(tmp_path / "hub"), "--heldout", "2", "--out", str(tmp_path / "out"))
    row = read(tmp_path / "out" / "train.parquet")[0]
    assert len(json.loads(row["reward_model"]["ground_truth"])["inputs"]) == 20 and row["ability"] == "code"
    assert "```python" in row["prompt"][0]["content"] and row["extra_info"]["level"] == "EASY"


@pytest.mark.parametrize(("name", "row"), [("humaneval", human), ("livecodebench", live)])
def test_benchmarks_that_call_a_function(name: str, row: Any, tmp_path: Path) -> None:
    rows = [row(), row()]
    rows[1] |= {"test": "def check(candidate):\n    x = candidate(1)", "metadata": "{}"}
    run(name, "--from", lines(tmp_path / "test.jsonl", rows), "--out", str(tmp_path / "out"))
    [kept] = read(tmp_path / "out" / "heldout.parquet")
    assert "fn_name" in json.loads(kept["reward_model"]["ground_truth"]) and kept["ability"] == "code"
    assert FUNCTION_TASK in kept["prompt"][0]["content"]
    assert sum(json.loads((tmp_path / "out" / "report.json").read_text())["removed"].values()) == 1


def test_mbpp_in_parquet(tmp_path: Path) -> None:
    for split, count in (("train", 4), ("test", 2)):
        rows = [basic(text=" ".join(f"{split}{'x' * n}{'y' * i}" for i in range(40))) for n in range(count)]
        datasets.Dataset.from_list(rows).to_parquet(str(tmp_path / f"{split}-00000-of-00001.parquet"))
    run("mbpp", "--from", str(tmp_path), "--out", str(tmp_path / "out"))
    assert len(read(tmp_path / "out" / "train.parquet")) == 4 and len(read(tmp_path / "out" / "heldout.parquet")) == 2


def test_custom_columns_conditions_and_prompt(tmp_path: Path) -> None:
    rows = [{"q": {"text": question(n)}, "a": n, "level": str(n), "kind": "x" if n % 2 else "y"} for n in range(20)]
    table = lines(tmp_path / "mine.jsonl", rows)
    options = ["custom", "--from", table, "--problem", "q.text", "--answer", "a", "--against", "none", "--heldout", "2"]
    where = ["--where", "level>=9", "--where", "kind == 'x'"]
    run(*options, *where, "--prompt", "Q: {problem} A:", "--name", "mine/sums", "--out", str(tmp_path / "out"))
    got = [row for name in ("train", "heldout") for row in read(tmp_path / "out" / f"{name}.parquet")]
    assert sorted(int(row["reward_model"]["ground_truth"]) for row in got) == [9, 11, 13, 15, 17, 19]
    assert got[0]["prompt"][0]["content"] == f"Q: {question(int(got[0]['reward_model']['ground_truth']))} A:"
    assert got[0]["data_source"] == "mine/sums"


@pytest.mark.parametrize("domain", [MATH, CODE])
@pytest.mark.parametrize("tags", [REASONING_TAGS, ("<|channel>thought", "<channel|>")])
def test_reasoning_tags_are_asked_for_in_the_form_that_is_read(domain: Domain, tags: tuple[str, str]) -> None:
    options = parse(["gsm8k", "--reasoning-tags", *([] if tags == REASONING_TAGS else tags)])
    source = replace(sources.gsm8k(), domain=domain)
    prompt = prompt_of(options, source)
    instruction, _, form = prompt.partition("Use exactly this form:")
    assert prompt.startswith("{problem}\n\n") and "{" not in instruction.removeprefix("{problem}") + form
    assert all(tag in instruction for tag in tags)
    read = transcript.read(form, tags=tags)
    assert read.well_formed and read.reasoning == "the reasoning" and read.summary.startswith("the summary")
    assert read.answer == ("the final answer" if domain is MATH else "```python\n# the program\n```")
    untagged = prompt_of(parse(["gsm8k"]), source)
    assert untagged == domain.prompt and not any(tag in untagged for tag in tags)


def test_the_option_reaches_the_rows(tmp_path: Path, table: str) -> None:
    run(*split(table, tmp_path / "out"), "--reasoning-tags", "<r>", "</r>")
    for row in read(tmp_path / "out" / "train.parquet") + read(tmp_path / "out" / "heldout.parquet"):
        assert "between <r> and </r>" in row["prompt"][0]["content"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--where", "level"], "--where 'level' is not a condition"),
        (["--prompt", "Solve it."], "write {problem} where it goes"),
        (["--prompt", "{problem}", "--reasoning-tags"], "write the tags into --prompt"),
        (["--reasoning-tags", "<think>"], "--reasoning-tags <think> is not an opening and a closing tag"),
        (["--train", "many"], "--train many is not a number"),
        (["--answer", "b"], "has no column b (it has q, a)"),
        (["--from", "nowhere.jsonl"], "nowhere.jsonl does not exist"),
        (["--train", "0", "--heldout", "0"], "leave nothing to prepare"),
        (["--heldout", "all"], "a set of its own with --heldout-from"),
    ],
)
def test_refusals(tmp_path: Path, options: list[str], words: str) -> None:
    table = lines(tmp_path / "mine.jsonl", [{"q": question(1), "a": 1}])
    basic = ["custom", "--from", table, "--problem", "q", "--answer", "a", "--against", "none"]
    assert words in refused(*basic, *options, "--out", str(tmp_path / "out"))


def test_a_row_of_another_layout(tmp_path: Path) -> None:
    rows = deepmath()
    del rows[7]["final_answer"]
    message = refused(*split(lines(tmp_path / "deepmath.jsonl", rows), tmp_path / "out"))
    assert "has a row 7 of another layout (KeyError('final_answer'))" in message


def test_rows_that_are_no_objects(tmp_path: Path) -> None:
    for text, words in (("[1]\n", "a list"), ("{\n", "not valid JSONL")):
        (tmp_path / "odd.jsonl").write_text(text)
        basic = [
            "custom",
            "--from",
            str(tmp_path / "odd.jsonl"),
            "--problem",
            "q",
            "--answer",
            "a",
            "--against",
            "none",
        ]
        assert words in refused(*basic)


def test_preflight_and_verl_take_the_files(table: str, tmp_path: Path) -> None:
    from verl.utils.dataset.rl_dataset import RLHFDataset

    run(*split(table, tmp_path / "out"))
    model, files = (
        make_model(tmp_path / "model"),
        [str(tmp_path / "out" / f"{n}.parquet") for n in ("train", "heldout")],
    )
    config = composed(
        "+recipe=agon_cpu",
        f"actor_rollout_ref.model.path={model}",
        f"data.train_files={files[0]}",
        f"data.val_files={files[1]}",
        "data.train_batch_size=4",
        "data.max_prompt_length=1024",
    )
    check_files(config)
    OmegaConf.set_struct(config, False)
    options = OmegaConf.merge(config.data, {"cache_dir": str(tmp_path / "cache"), "filter_overlong_prompts_workers": 1})
    loaded = RLHFDataset(files[0], AutoTokenizer.from_pretrained(model), options)
    assert len(loaded) == 20
    assert loaded[0]["raw_prompt"][0]["content"].startswith("Let K") and loaded[0]["index"] == 0
    assert loaded[0]["reward_model"]["ground_truth"].isdecimal()
