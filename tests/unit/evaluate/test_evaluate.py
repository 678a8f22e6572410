"""An evaluation without its engine: what is generated once, kept, judged, added up and compared."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agon_verl.evaluate import compare, problems
from agon_verl.evaluate.__main__ import main, parse, settings_of
from agon_verl.evaluate.judge import Judge
from agon_verl.evaluate.markdown import report
from agon_verl.evaluate.play import answers, missing, modes_of, plan, seed_of
from agon_verl.evaluate.problems import EvaluationProblem
from agon_verl.evaluate.results import Direction, Generated, Ledger, Results, ResultsError, SetResults, Tokens
from agon_verl.evaluate.store import Generation, Store
from agon_verl.evaluate.tally import set_results
from agon_verl.inference.options import key_values
from agon_verl.inference.players import InferenceError, Players

NAMES = ("A", "B", "base")
PAIR = Players("run", "base", adapters={"A": Path("A"), "B": Path("B")})


def problem(name: str, source: str = "toy") -> EvaluationProblem:
    return EvaluationProblem(name, source, [{"role": "user", "content": "?"}], "5", {})


def made(mode: str, name: str, sample: int = 0, acc: float | None = 0.0, **more: Any) -> Generation:
    values: dict[str, Any] = {
        "stage": 1,
        "player": mode[-1],
        "prompt_tokens": 10,
        "tokens": 100,
        "finish": "stop",
        "opened": False,
        "text": "",
        "format": 1.0,
        "pred": "",
        "verdict": "",
        "error": "" if acc is not None else "the judge is out",
    }
    return Generation(mode=mode, problem=name, sample=sample, acc=acc, **{**values, **more})


# What is generated


def test_a_pair_has_eight_modes_and_a_base_two() -> None:
    assert modes_of(PAIR) == ["A_to_B", "B_to_A", "A_to_A", "B_to_B", "A", "B", "base", "moa"]
    assert modes_of(Players("b", "b")) == ["base", "moa"]
    assert modes_of(Players("b", "b", adapters={"A": Path("A")}), greedy=True) == ["A_to_A", "A", "base"]


def test_a_first_stage_is_generated_once_for_all_modes_that_start_with_it() -> None:
    """Drafts of A, B and base, four challenges, and the mixture's second base sample and two refinements."""
    ((_, keys),) = plan([(problem("p"), modes_of(PAIR))], 1, NAMES)
    assert len(keys) == len(set(keys)) == 3 + 4 + 3
    assert {("A", "p", 0), ("A_to_B", "p", 0), ("A_to_A", "p", 0), ("base", "p", 1), ("moa", "p", 1)} <= set(keys)


def test_the_mixture_of_sample_one_refines_base_samples_two_and_three() -> None:
    assert answers("moa", "p", 1, NAMES) == [((("base"), "p", i), ("moa", "p", i)) for i in (2, 3)]


def test_more_samples_keep_the_seeds_of_the_first() -> None:
    few = {key for _, keys in plan([(problem("p"), ["A_to_B", "moa"])], 2, NAMES) for key in keys}
    many = {key for _, keys in plan([(problem("p"), ["A_to_B", "moa"])], 4, NAMES) for key in keys}
    assert few < many and len({seed_of(0, key) for key in many}) == len(many)
    assert seed_of(0, ("A", "p", 0)) != seed_of(1, ("A", "p", 0))


@pytest.mark.parametrize("mode", ["C", "A_to_C", "A_to_", "_to_A", "A_to_B_to_A", ""])
def test_an_unknown_mode_is_named(mode: str) -> None:
    with pytest.raises(InferenceError, match="is unknown: use a player, or two"):
        answers(mode, "p", 0, NAMES)


# What is kept


def test_generations_survive_and_a_torn_last_line_does_not(tmp_path: Path) -> None:
    with Store(tmp_path, {"seed": 0}) as store:
        store.add(made("A", "p", text="½ \u2028 \ud800 \r\n"))
        store.add(made("A", "q"))
    file = tmp_path / "generations.jsonl"
    file.write_bytes(file.read_bytes()[:-5])
    with Store(tmp_path, {"seed": 0}) as store:
        assert store.generations.get(("A", "p", 0)) == made("A", "p", text="½ \u2028 \ud800 \r\n")
        assert store.generations.get(("A", "q", 0)) is None and file.read_bytes().count(b"\n") == 1
        store.add(made("A", "q"))
    with Store(tmp_path, {"seed": 0}) as store:
        assert len(store.generations) == 2


def test_generations_of_an_earlier_version_are_read(tmp_path: Path) -> None:
    """It also wrote whether the attempt states its answer, which nothing read."""
    line = json.dumps({**asdict(made("A", "p")), "stated": True})
    (tmp_path / "generations.jsonl").write_text(f"{line}\n")
    with Store(tmp_path, {}) as store:
        assert store.generations == {("A", "p", 0): made("A", "p")}
    assert "stated" not in asdict(made("A", "p"))


def test_versions_are_those_of_the_packages_that_generated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder can be continued, and its results written, on a machine that has others."""

    def installed(**versions: str) -> None:
        monkeypatch.setattr("agon_verl.evaluate.store.versions", lambda: versions)

    installed(vllm="1", torch="1")
    with Store(tmp_path, {}) as store:
        assert store.versions == {}  # nothing generated yet
        store.add(made("A", "p"))
        assert store.versions == {"vllm": "1", "torch": "1"}
    installed(vllm="2", torch="2")
    with Store(tmp_path, {}) as store:
        store.add(made("A", "p", acc=1.0))  # a verdict, no new text
        assert store.versions == {"vllm": "1", "torch": "1"}
    installed(vllm="2", torch="1", peft="1")
    with Store(tmp_path, {}) as store:
        store.add(made("A", "q"))
        assert store.versions == {"vllm": "1, 2", "torch": "1", "peft": "1"}


def test_a_verdict_given_anew_counts(tmp_path: Path) -> None:
    units = [(problem("p"), [("A", "p", 0)])]
    with Store(tmp_path, {}) as store:
        store.add(made("A", "p", acc=None))
        assert missing(units, store) == {("A", "p", 0)}
        store.add(made("A", "p", acc=1.0))
    with Store(tmp_path, {}) as store:
        assert not missing(units, store) and [g.acc for g in store.generations.values()] == [1.0]


def test_a_changed_setting_is_refused_with_the_difference(tmp_path: Path) -> None:
    Store(tmp_path, {"seed": 0, "tags": ["<a>"]}).close()
    with pytest.raises(InferenceError, match=r"other settings: seed was 0, now 1\. Use those, or another --out"):
        Store(tmp_path, {"seed": 1, "tags": ["<a>"]})


def test_a_folder_is_one_commands_at_a_time(tmp_path: Path) -> None:
    with Store(tmp_path, {}), pytest.raises(InferenceError, match="in use by another evaluation"):
        Store(tmp_path, {})
    Store(tmp_path, {}).close()


@pytest.mark.parametrize("line", ['{"mode": 1}', "5", '"mode"', "[]", "{"])
def test_a_broken_line_in_the_middle_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "generations.jsonl").write_text(f"{line}\n")
    with pytest.raises(InferenceError, match="line 1 of .* cannot be read"):
        Store(tmp_path, {})


# Problems


def write(path: Path, rows: Sequence[dict[str, Any]]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(rows)), path)
    return str(path)


def row(text: str, truth: str = "5") -> dict[str, Any]:
    return {
        "prompt": [{"role": "user", "content": text}],
        "data_source": "toy",
        "reward_model": {"ground_truth": truth},
    }


def test_problems_have_the_same_names_in_any_file_and_order(tmp_path: Path) -> None:
    one = problems.read_problems([write(tmp_path / "1.parquet", [row("a"), row("b"), row("a")])])
    two = problems.read_problems([write(tmp_path / "2.parquet", [row("b")]), write(tmp_path / "3.parquet", [row("a")])])
    assert [p.id for p in one[:2]] == [p.id for p in two[::-1]] and one[2].id == f"{one[0].id}#2"
    other = problems.read_problems([write(tmp_path / "4.parquet", [row("a", "6")])])
    assert other[0].id != one[0].id and other[0].messages == [{"role": "user", "content": "a"}]


def test_a_prepared_set_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "gsm8k" / "heldout.parquet", [row("a")])
    monkeypatch.setattr(problems, "PREPARED", tmp_path)
    assert len(problems.read_problems(["gsm8k"])) == 1
    with pytest.raises(InferenceError, match="neither a parquet file nor a prepared set: run .* math500"):
        problems.read_problems(["math500"])


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"prompt": "a", "reward_model": {"ground_truth": "5"}}, "row 0 of .* needs a prompt"),
        ({"prompt": [{"role": "user", "content": "a"}]}, "row 0 of .* needs a prompt"),
        (row("a") | {"prompt": [{"role": "system", "content": "a"}]}, "last message is not text from the user"),
    ],
)
def test_bad_rows_are_named(tmp_path: Path, bad: dict[str, Any], message: str) -> None:
    with pytest.raises(InferenceError, match=message):
        problems.read_problems([write(tmp_path / "x.parquet", [bad])])


# The judge


def verdict(judge: Judge, text: str, opened: bool = False, finish: str = "stop") -> Any:
    return asyncio.run(judge.judged(problem("p"), made("A", "p", acc=None, text=text, opened=opened, finish=finish)))


def test_the_domain_names_the_judge_and_the_run_names_another(tmp_path: Path) -> None:
    math = Judge(Players("b", "b", tags=("<r>", "</r>")))
    assert math.settings["function"] == "pkg://reward_fns.math_answer:compute_score"
    assert verdict(math, "<r>x</r><answer>5</answer>").acc == 1.0
    assert verdict(math, "x <answer>5</answer>", opened=True, finish="length").acc == 0.0
    assert verdict(math, "x <answer>5</answer>", opened=True).acc == 1.0  # the model ended inside its reasoning
    code = Judge(Players("b", "b", domain="code"))
    assert code.settings["function"] == "pkg://reward_fns.unit_tests:compute_score"
    own = tmp_path / "own.py"
    own.write_text("def grade(data_source, solution_str, ground_truth, extra_info, bar): return {'acc': bar}")
    run = Players("b", "b", verifier={"path": str(own), "name": "grade", "reward_kwargs": {"bar": 0.5}})
    assert verdict(Judge(run, trust=True), "").acc == 0.5
    assert verdict(Judge(run, f"{own}:grade", {"bar": 1}), "").acc == 1.0
    with pytest.raises(InferenceError, match="verifier .*:compute_score cannot be loaded: name one with --reward"):
        Judge(Players("b", "b"), str(own))


def named_by_target(**verifier: Any) -> Players:
    return Players("their_export", "b", domain="code", verifier=verifier)


@pytest.mark.parametrize(
    "verifier",
    [
        {"path": "their_export/checks.py"},
        {"path": "pkg://their_package.checks"},
        {"path": "pkg://reward_fns.math_answer", "name": "asyncio"},
        {"path": "pkg://reward_fns.math_answer:asyncio"},
        {"name": "asyncio"},
    ],
)
def test_code_that_only_the_target_names_is_not_loaded(verifier: dict[str, Any]) -> None:
    with pytest.raises(InferenceError, match="their_export names the verifier .* add --trust-verifier or name it with"):
        Judge(named_by_target(**verifier))


def test_a_file_that_the_target_names_runs_only_with_the_users_word(tmp_path: Path) -> None:
    theirs, trace = tmp_path / "checks.py", tmp_path / "trace"
    theirs.write_text(f"open({str(trace)!r}, 'w')\ndef compute_score(**_): return {{'acc': 1.0}}")
    players = named_by_target(path=str(theirs))
    with pytest.raises(InferenceError, match="would run on this machine with your rights"):
        Judge(players)
    assert not trace.exists()
    assert verdict(Judge(players, trust=True), "").acc == 1.0
    assert verdict(Judge(players, str(theirs)), "").acc == 1.0


@pytest.mark.parametrize(
    "settings",
    [
        {"trusted": True},
        {"python": "/tmp/python"},
        {"backend": "e2b"},
        {"template": "theirs"},
        {"slots": 4096},
        {"workers": 4096},
        {"memory_limit": 65536},
        {"total_time": float("inf")},
        {"time_limit": "long"},
        {"format_weight": 0.5, "trusted": False},
    ],
)
def test_how_programs_run_is_not_for_the_target_to_decide(settings: dict[str, Any]) -> None:
    key, value = list(settings.items())[-1]
    players = named_by_target(path="pkg://reward_fns.unit_tests", name="compute_score", reward_kwargs=settings)
    with pytest.raises(InferenceError, match=f"their_export sets {key}={value} for its verifier"):
        Judge(players)
    assert Judge(players, kwargs={key: None}).settings["kwargs"][key] is None  # the user's own word
    assert Judge(players, trust=True).settings["kwargs"][key] == value


def test_what_changes_a_verdict_is_taken_from_the_target() -> None:
    settings = {"format_weight": 0.3, "reasoning_tags": ["<r>", "</r>"], "time_limit": 5, "memory_limit": 256}
    players = named_by_target(path="pkg://reward_fns.unit_tests", name="compute_score", reward_kwargs=settings)
    assert Judge(players).settings["kwargs"] == settings
    nothing = named_by_target(path=None, name="compute_score", reward_kwargs=None)  # a run without a custom function
    assert Judge(nothing).settings["function"] == "pkg://reward_fns.unit_tests:compute_score"


def test_a_failing_judge_is_no_wrong_answer(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(
        "import asyncio\n"
        "async def compute_score(solution_str, **_):\n"
        "    if solution_str == 'slow': await asyncio.sleep(60)\n"
        "    raise OSError('no sandbox')"
    )
    judge = Judge(Players("b", "b", reward_timeout=0.1), str(own))
    assert verdict(judge, "x").acc is None and verdict(judge, "x").error == "OSError: no sandbox"
    assert verdict(judge, "slow").error == "no verdict within 0.1 seconds"


# Results


@pytest.fixture
def store(tmp_path: Path) -> Any:
    """Two problems, A_to_B: one draft converted, one damaged; then a third whose judge failed."""
    with Store(tmp_path / "out", {}) as store:
        for name, draft, final in (("p", 0.0, 1.0), ("q", 1.0, 0.9), ("r", 1.0, None)):
            store.add(made("A", name, acc=draft))
            more = {"prompt_tokens": 30, "tokens": 50, "stage": 2}
            store.add(made("A_to_B", name, acc=final, finish="length" if name == "q" else "stop", **more))
            store.add(made("B", name, acc=1.0))
            store.add(made("B_to_A", name, acc=1.0, **more))
        yield store


def tokens(generated: float, prefilled: float) -> Tokens:
    return Tokens(generated=generated, prefilled=prefilled)


def test_a_cascade_by_hand(store: Store) -> None:
    toy = set_results(store, ["p", "q", "r"], ["A_to_B", "B_to_A", "A"], 1, NAMES)
    mode = toy.modes["A_to_B"]
    assert (mode.problems, mode.answers, mode.left_out) == (2, 2, 1)
    assert (mode.pass_at_1, mode.truncated, mode.length, mode.format) == (0.5, 0.5, 50, 1.0)
    assert mode.interval is not None and mode.interval.method == "Clopper-Pearson over 2 problems"
    exchange = mode.exchange
    assert exchange is not None
    assert (exchange.converted, exchange.wrong_drafts, exchange.conversion) == (1, 1, 1.0)
    assert (exchange.damaged, exchange.right_drafts, exchange.damage) == (1, 1, 1.0)  # partial credit is wrong
    # Of all three problems: the tokens that the judge failed on were generated too.
    assert mode.ledger == Ledger(draft=tokens(300, 30), final=tokens(150, 90), per_pass=tokens(150, 40))
    assert toy.modes["A"].ledger.per_pass == tokens(100, 10)
    assert toy.modes["A"].exchange is None and toy.post_hoc == "B_to_A"
    test = next(test for test in toy.tests if (test.first, test.second) == ("A_to_B", "B_to_A"))
    assert (test.problems, test.difference, test.p) == (2, -0.5, 1.0)


def test_most_drafts_lack_a_part(tmp_path: Path) -> None:
    reads: list[tuple[str | None, bool]] = [(None, True), ("[answer withheld]", True), *[("S", False)] * 3]
    with Store(tmp_path / "out", {}) as store:
        for number, (shown, reasoned) in enumerate(reads):
            store.add(made("A", f"p{number}"))
            store.add(made("A_to_B", f"p{number}", stage=2, shown=shown, reasoned=reasoned))
        toy = set_results(store, [f"p{number}" for number in range(5)], ["A_to_B", "A"], 1, NAMES)
    exchange = toy.modes["A_to_B"].exchange
    assert exchange is not None and (exchange.no_summary, exchange.no_reasoning) == (2, 3)
    text = report(results(toy))
    assert "**A_to_B: 3 of 5 drafts have no private reasoning, so everything was read; `agon data … --reas" in text
    assert "no summary" not in text  # two of five


def sampled(folder: Path, modes: Sequence[str], samples: int) -> SetResults:
    """Four samples of the base on one problem, two of them right, and the mixture's answers."""
    with Store(folder, {}) as store:
        for sample, (acc, pred) in enumerate([(1.0, "5"), (1.0, "5"), (0.0, "6"), (0.0, "7")]):
            store.add(made("base", "p", sample, acc=acc, pred=pred))
            store.add(made("moa", "p", sample, acc=1.0, tokens=20, prompt_tokens=200))
        return set_results(store, ["p"], modes, samples, NAMES)


def test_samples_by_hand(tmp_path: Path) -> None:
    base = sampled(tmp_path, ["base"], 4).modes["base"]
    assert base.pass_at_1 == 0.5 and base.first_sample is not None
    assert base.pass_at_k == {2: pytest.approx(5 / 6), 4: 1.0} and base.majority == 1.0
    assert base.first_sample.pass_at_1 == 1.0


def test_the_mixture_by_hand(tmp_path: Path) -> None:
    mixture = sampled(tmp_path, ["base", "moa"], 2).modes["moa"]
    assert (
        mixture.pass_at_1 == 1.0 and mixture.first_sample is None and mixture.pass_at_k == {} and mixture.answers == 4
    )
    assert mixture.ledger.per_pass == tokens(2 * (100 + 20), 2 * (10 + 200))
    assert mixture.exchange is not None and mixture.exchange.converted == 2


def results(toy: SetResults, chosen: str | None = None, samples: int = 1) -> Results:
    return Results(
        target="run",
        samples=samples,
        settings={"sampling": {"temperature": 0.6, "top_p": 0.95, "max_tokens": 64}, "seed": 0},
        versions={},
        direction=Direction(chosen=chosen, why="on 9 problems for development"),
        sets={"toy": toy},
        development=None,
        ledger=Generated(generations=1, generated=1000, prefilled=2000),
        left_out=1,
    )


def directions(store: Store, chosen: str | None) -> Results:
    return results(set_results(store, ["p", "q"], ["A_to_B", "B_to_A", "A"], 1, NAMES), chosen)


def test_the_keys_of_the_file(store: Store, tmp_path: Path) -> None:
    """Other programs read them: a key that is renamed here breaks evaluations that were written before."""
    directions(store, None).write(tmp_path / "one.json")
    data = json.loads((tmp_path / "one.json").read_text())
    assert list(data) == [
        *("target", "samples", "settings", "versions", "direction", "sets", "development", "ledger", "left_out")
    ]
    assert list(data["direction"]) == ["chosen", "why"]
    assert list(data["ledger"]) == ["generations", "generated", "prefilled"]
    toy = data["sets"]["toy"]
    assert list(toy) == ["problems", "modes", "tests", "post_hoc", "outcomes"]
    assert list(toy["tests"][0]) == ["first", "second", "problems", "difference", "interval", "p", "test"]
    assert toy["outcomes"]["A_to_B"] == {"p": [1], "q": [0]}
    keys = ["problems", "answers", "left_out", "pass@1", "interval", "length", "truncated", "format", "ledger"]
    assert list(toy["modes"]["A"]) == keys and list(toy["modes"]["A_to_B"]) == [*keys, "exchange"]
    assert list(toy["modes"]["A"]["interval"]) == ["low", "high", "method"]
    assert list(toy["modes"]["A"]["ledger"]) == ["final", "per_pass"]
    assert list(toy["modes"]["A_to_B"]["ledger"]) == ["draft", "final", "per_pass"]
    assert list(toy["modes"]["A_to_B"]["exchange"]) == [
        *("right_drafts", "wrong_drafts", "converted", "damaged", "conversion", "damage"),
        *("length_given_right_draft", "length_given_wrong_draft", "no_summary", "no_reasoning"),
    ]
    results(sampled(tmp_path / "store", ["base"], 4), samples=4).write(tmp_path / "four.json")
    base = json.loads((tmp_path / "four.json").read_text())["sets"]["toy"]["modes"]["base"]
    assert list(base) == [*keys, "first_sample", "pass@k", "majority"]
    assert list(base["first_sample"]) == ["pass@1", "interval"] and list(base["pass@k"]) == ["2", "4"]


def test_results_are_read_as_they_were_written(store: Store, tmp_path: Path) -> None:
    both = [directions(store, "A_to_B"), results(sampled(tmp_path / "store", ["base", "moa"], 2), samples=2)]
    for written in [*both, both[0].model_copy(update={"development": both[0].sets["toy"]})]:
        written.write(tmp_path / "results.json")
        assert Results.read(tmp_path) == Results.read(tmp_path / "results.json") == written


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"sets": {}}', '{"sets": {}, "direction": {"to": "A"}}'])
def test_other_files_are_not_results(tmp_path: Path, content: str) -> None:
    (tmp_path / "results.json").write_text(content)
    with pytest.raises(ResultsError, match="results.json is not a results.json of an evaluation: ."):
        Results.read(tmp_path)


def test_the_report_shows_both_choices_of_the_direction(store: Store) -> None:
    text = report(directions(store, "A_to_B"))
    assert "Direction chosen beforehand: A_to_B, 50.0 % [1.3, 98.7] (on 9 problems for development)." in text
    assert "Better one here, seen afterwards: B_to_A, 100.0 %" in text
    assert "**Left out because the judge failed: 1.**" in text and "1 of 1" in text
    assert "| A_to_B − B_to_A | -50.0 |" in text
    assert "none was chosen beforehand" in report(directions(store, None))


def test_two_results_side_by_side(store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, chosen in (("one", "A_to_B"), ("two", "B_to_A")):
        (tmp_path / name).mkdir()
        directions(store, chosen).write(tmp_path / name / "results.json")
    one, two = str(tmp_path / "one"), str(tmp_path / "two" / "results.json")
    assert main(["compare", one, two, "--json", str(tmp_path / "numbers")]) == 0
    assert "| toy: cascade | 50.0 | 100.0 | -50.0 |" in capsys.readouterr().out
    assert json.loads((tmp_path / "numbers").read_text())["toy"]["A - A"]["difference"] == 0
    assert "A_to_B − A |" in compare.compare(one, two, ["A_to_B", "A"])[0]
    _, numbers = compare.average([one, two])
    assert numbers["toy"]["cascade"]["pass@1"] == [0.5, 1.0] and numbers["toy"]["cascade"]["mean"] == 0.75
    assert numbers["toy"]["cascade, post hoc"]["low"] == 1.0
    assert main(["average", str(tmp_path / "nowhere")]) == 1
    assert "is not a results.json of an evaluation" in capsys.readouterr().err


def test_two_arms_of_a_matrix_side_by_side(store: Store, tmp_path: Path) -> None:
    """Two problems. A_to_B and A are right on one of them, B_to_A and B on both."""
    measured = set_results(store, ["p", "q"], ["A_to_B", "B_to_A", "A", "B"], 1, NAMES)

    def write(cell: str, chosen: str) -> None:
        (tmp_path / cell / "eval").mkdir(parents=True)
        results(measured, chosen).write(tmp_path / cell / "eval" / "results.json")

    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    for cell in ("one/seed_0", "one/seed_1", "two/seed_0"):
        write(cell, "A_to_B")
    text, _ = compare.compare(one, two)
    assert "| toy: cascade | 50.0 | 50.0 | +0.0 |" in text and "seeds too" not in text  # they share seed 0 only
    for cell in ("two/seed_10", "two/seed_1", "two/seed_2"):
        write(cell, "B_to_A")
    text, numbers = compare.compare(one, two, ["cascade", "cascade"])
    assert "| toy: cascade | 50.0 | 75.0 | -25.0 |" in text
    assert "| each of seed_0, seed_1 |" in text and "| +0.0, −50.0 |" in text
    assert numbers["toy"]["cascade - cascade"]["by_seed"] == {"seed_0": 0.0, "seed_1": -0.5}
    assert "| toy: alone − A | 75.0 | 50.0 | +25.0 |" in compare.compare(one, two, ["alone", "A"])[0]
    with pytest.raises(ResultsError, match="moa is not among the modes of both: A_to_B, "):
        compare.compare(one, two, ["moa", "A"])
    with pytest.raises(ResultsError, match="has seed_0, seed_1 and .* has one evaluation: they share none"):
        compare.compare(one, str(tmp_path / "one" / "seed_0" / "eval"))


def test_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert key_values(["a=1", "b=true", "c=float32"]) == {"a": 1, "b": True, "c": "float32"}
    for bad in (["--greedy", "--samples", "2"], ["--samples", "0"], ["--dev-share", "1"]):
        with pytest.raises(SystemExit):
            parse(["run", "--data", "x", "--out", "y", *bad])
    capsys.readouterr()
    assert main([str(tmp_path / "nowhere"), "--data", "x", "--out", str(tmp_path / "out")]) == 1
    assert capsys.readouterr().err.startswith(f"agon-verl: {tmp_path / 'nowhere'} is not a folder")


def test_the_withholding_determines_the_generations_and_older_folders_continue(tmp_path: Path) -> None:
    """A folder made before the setting existed has no entry, which stands for announced."""
    players = Players("base", "base")
    judge = Judge(players)
    announced = settings_of(players, judge, seed=0)
    value = settings_of(replace(players, withhold="value"), judge, seed=0)
    assert "withhold" not in announced and value == {**announced, "withhold": "value"}
    Store(tmp_path, announced).close()
    with pytest.raises(InferenceError, match="withhold was None, now 'value'"):
        Store(tmp_path, value)
