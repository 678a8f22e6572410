"""Reports of made-up runs: the numbers, the marks, missing inputs, and that untrusted text never becomes markup."""

import json
import random
import re
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from agon_verl.evaluate.results import Results
from agon_verl.evaluate.statistics import exact_interval
from agon_verl.evaluate.summary import CASCADE, EITHER, POST_HOC
from agon_verl.pair.run_folder import Metrics
from agon_verl.report import pairs, picture
from agon_verl.report.__main__ import main
from agon_verl.report.evaluations import Entry, evaluated, facts, main_entries
from agon_verl.report.page import visible
from agon_verl.report.pairs import Span, mark_hidden, read_pairs
from agon_verl.report.runs import Method, ReportError, Run, read_methods
from tests.unit.report.example_runs import SOURCE, pair, results, write, write_matrix, write_pairs, write_run

SMALL = {"steps": 12, "n": 20}


class Page(HTMLParser):
    """Tags, attributes, text and table rows of a page, as a browser sees them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str]] = []
        self.data: list[str] = []
        self.rows: list[list[str]] = []
        self.feed(text)
        self.close()
        self.text = "".join(self.data)

    def handle_starttag(self, tag, attrs):  # type: ignore[no-untyped-def]
        self.tags[tag] += 1
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag == "tr":
            self.rows.append([])
        if tag in ("th", "td"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        self.data.append(data)
        if self.lasttag in ("th", "td"):
            self.rows[-1][-1] += data.strip()


def report(*folders: Path, out: Path, options: tuple[str, ...] = ()) -> str:
    assert main([*map(str, folders), "--out", str(out), *options]) == 0
    return (out / "report.html").read_text()


@pytest.fixture
def unseen_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of texts and tables: the pictures, which take most of a report's time, are empty."""
    monkeypatch.setattr(Figure, "savefig", lambda self, out, **_: out.write("<svg></svg>"))


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "matrix"
    return write_matrix(folder, ("grpo", "adv", "margin"), seeds=2, **SMALL)


@pytest.fixture(scope="module")
def matrix_html(matrix: Path) -> str:
    return report(matrix, out=matrix.parent / "report")


def entries(**evaluations: list[dict[str, Any]]) -> dict[tuple[str, str], Entry]:
    """The entries of made-up methods by method and way; each method has one results.json per seed."""
    methods = []
    for name, each in evaluations.items():
        results = enumerate(map(Results.model_validate, each))
        runs = [Run(f"{name}/seed_{i}", i, Metrics({}), (), r, "evaluated") for i, r in results]
        methods.append(Method(name, tuple(runs), name))
    return {(entry.method, entry.way): entry for entry in evaluated(methods)[SOURCE]}


def cascades(a_to_b: list[int], b_to_a: list[int]) -> dict[str, Any]:
    """results.json of both directions with these outcomes; A_to_B was chosen beforehand."""
    data = results({"A_to_B": 0.5, "B_to_A": 0.5}, random.Random(0), n=len(a_to_b))
    for mode, row in (("A_to_B", a_to_b), ("B_to_A", b_to_a)):
        data["sets"][SOURCE]["outcomes"][mode] = {f"p{i}": [right] for i, right in enumerate(row)}
    data["sets"][SOURCE]["post_hoc"] = "A_to_B" if sum(a_to_b) >= sum(b_to_a) else "B_to_A"
    return data


# The numbers


def test_mean_spread_and_interval_over_seeds() -> None:
    by_way = entries(adv=[cascades([1, 1, 0, 0], [1, 1, 1, 1]), cascades([1, 1, 1, 1], [0] * 4)])
    cascade, post_hoc = by_way["adv", CASCADE].summary, by_way["adv", POST_HOC]
    assert (cascade.spread.mean, cascade.shares) == (0.75, [0.5, 1.0])
    assert cascade.spread.deviation == pytest.approx(0.5 / 2**0.5)
    assert cascade.outcomes == {"p0": [1, 1], "p1": [1, 1], "p2": [0, 1], "p3": [0, 1]}
    assert cascade.interval.low < 0.75 < cascade.interval.high and "4 problems" in cascade.interval.method
    assert post_hoc.summary.spread.mean == 1.0  # B to A in the first run, A to B in the second
    assert post_hoc.label.replace("\u00a0", " ") == "cascade, post hoc: A → B ×1, B → A ×1"


def test_one_run_has_the_exact_interval_and_no_deviation() -> None:
    summary = entries(adv=[cascades([1] * 8 + [0] * 2, [1] * 10)])["adv", CASCADE].summary
    assert (summary.interval.low, summary.interval.high) == pytest.approx((0.4439, 0.9748), abs=1e-4)
    assert summary.spread.deviation is None


def test_the_main_table_shows_the_ways_that_represent_a_method() -> None:
    everything = results({"A": 1.0, "B": 0.0, "A_to_B": 1.0, "B_to_A": 1.0}, random.Random(0), 10)
    by_way = entries(
        grpo=[results({"A_to_A": 0.5, "A": 0.5}, random.Random(0), 10)], adv=[everything], hidden=[everything]
    )
    shown = [(entry.method, entry.way) for entry in main_entries(list(by_way.values()))]
    assert shown == [("grpo", "A"), ("grpo", "A_to_A"), ("adv", CASCADE), ("adv", POST_HOC), ("hidden", EITHER)]
    either = by_way["hidden", EITHER].summary
    assert (either.shares, either.outcomes["p0"]) == ([0.5], [1, 0])


def test_the_main_table(matrix_html: str) -> None:
    page = Page(matrix_html)
    text = page.text
    assert {"untrained", "grpo", "adv", "margin"} <= {row[0] for row in page.rows}
    assert "✗ failed" in text and "margin/seed_1 failed: CUDA out of memory <b>now</b>" in text
    assert "✗ 1 of 2" in text  # margin's row counts the runs that were evaluated
    assert "✗ parity" in text and "ledger/rollouts is 120, not 128, at step 7" in text
    assert "against grpo, A alone" in text and "this overestimates its accuracy" in text


@pytest.mark.usefixtures("unseen_pictures")
def test_a_run_with_another_budget_is_not_compared(tmp_path: Path) -> None:
    """Nor are the runs of the other methods with its seed: whatever its results are, the differences stay the same."""
    folder = write_matrix(tmp_path / "m", ("grpo", "adv"), seeds=2, steps=2, n=40)  # grpo/seed_0 has another budget
    rows = []
    for share in (0.0, 1.0):
        for run, modes, right in (("grpo", ("A", "A_to_A"), share), ("adv", ("A_to_B", "B_to_A"), 1 - share)):
            values = results(dict.fromkeys(modes, right), random.Random(0), 40)
            write(folder / run / "seed_0" / "eval" / "results.json", json.dumps(values))
        record = json.loads((folder / "matrix.json").read_text())
        record["cells"]["adv/seed_1"] = {"state": "evaluated", "parity": "ok"}
        write(folder / "matrix.json", json.dumps(record))
        page = Page(report(folder, out=tmp_path / f"out_{share}"))
        rows.append([row for row in page.rows if len(row) == 6 and row[0] == "adv" and row[-1] == "40"])
    assert rows[0] == rows[1] and rows[0]


def test_evaluations_that_differ_say_which_runs_they_are_of(tmp_path: Path) -> None:
    folder = write_matrix(tmp_path / "m", ("grpo", "adv"), seeds=2, steps=1, n=4)
    lines = facts(read_methods([folder])[0])
    assert [line for line in lines if "1 sample per problem" in line and line.endswith("per stage.")]
    path = folder / "adv" / "seed_0" / "eval" / "results.json"
    write(path, json.dumps({**json.loads(path.read_text()), "samples": 2}))
    lines = facts(read_methods([folder])[0])
    assert [line for line in lines if "2 samples per problem" in line and line.endswith("per stage: adv/seed_0.")]
    assert [line for line in lines if "1 sample per problem" in line and "grpo/seed_1" in line]


@pytest.mark.usefixtures("unseen_pictures")
def test_arms_with_names_of_their_own(tmp_path: Path) -> None:
    """An arm is shown as its method is, compared with the references, and its command is on the page."""
    folder = write_matrix(tmp_path / "m", ("grpo", "coop", "adv"), seeds=2, steps=2, n=40)
    record = json.loads((folder / "matrix.json").read_text())
    (folder / "grpo").rename(folder / "one")
    cells = {key.replace("grpo", "one"): cell for key, cell in record["cells"].items()}
    cells["one/seed_1"] |= {
        "command": "python -m verl.trainer.main_ppo x=1",
        "commit": "c0ffee",
        "log": "one/train.log",
    }
    cells["adv/seed_1"] = {"state": "unfinished", "step": 1}
    arms = {"one": {"method": "grpo"}, "coop": {"method": "coop"}, "adv": {"method": "adv"}}
    write(folder / "matrix.json", json.dumps(record | {"methods": list(arms), "arms": arms, "cells": cells}))
    page = Page(report(folder, out=tmp_path / "out"))
    against = [f"against {each}" for each in ("one, A alone", "one, A → A", "coop, cascade")]
    assert all(each in page.text for each in against)
    assert ["one/seed_1", "python -m verl.trainer.main_ppo x=1", "c0ffee", "one/train.log"] in page.rows
    assert ["adv", "✓ evaluated", "unfinished"] in page.rows
    assert "every seed; exact 95 % interval of its first samples" in page.text and "errors A, B" in page.text
    by_seed = next(row for row in page.rows if row[:2] == ["one", "A alone"] and ";" in row[2])
    first = json.loads((folder / "one" / "seed_0" / "eval" / "results.json").read_text())["sets"]
    right = [rows[0] for rows in next(iter(first.values()))["outcomes"]["A"].values()]
    exact = exact_interval(sum(right), len(right))
    share = 100 * sum(right) / len(right)
    assert by_seed[2] == f"{share:.1f}; {100 * exact.low:.1f} – {100 * exact.high:.1f}"


def test_one_seed_has_no_spread(matrix: Path, tmp_path: Path) -> None:
    html = report(matrix / "adv/seed_0/eval", out=tmp_path / "out")
    assert "One seed per method" in html and "mean over seeds" not in html and "sd of seeds" not in html
    assert "the direction was chosen by the run&#39;s own validation" in html


# Pairs


def test_the_ladder_leaves_the_format_term_out(tmp_path: Path) -> None:
    records = [pair(1, False, True), pair(1, True, True), pair(1, True, False), pair(2, False, False)]
    records[2]["pair"]["challenge"]["format"], records[2]["pair"]["challenge_reward"] = 0.0, 0.0
    for record in records:
        record["format_weight"] = 0.3
        for side in ("draft", "challenge"):
            record["pair"][f"{side}_reward"] -= 0.2 * record["pair"][side]["format"]
    del records[1]["format_weight"]  # as in older records: taken from the draft's reward
    write_pairs(tmp_path, 1, records)
    view = read_pairs("adv", {"adv": sorted((tmp_path / "pairs").iterdir())}, per_kind=1)
    assert view.format_weights == {0.3}
    assert view.rewards == {1: {3.0: 1, 2.0: 1, 0.0: 1}, 2: {0.0: 1}}
    assert [card.kind for card in view.cards] == ["conversion", "damage", "right", "wrong"]


def test_the_reasoning_tags_come_from_the_record(tmp_path: Path) -> None:
    draft = "r</think>r<channel|>So 4. <answer>4</answer>"
    record = pair(1, True, True, draft=draft, attempt={"shown": "So 4. [answer withheld]"})
    write_pairs(tmp_path, 1, [record | {"reasoning_tags": ["<|channel>", "<channel|>"]}])
    (card,) = read_pairs("adv", {"adv": [tmp_path / "pairs/1.jsonl"]}, per_kind=1).cards
    assert card.draft.text[0] == Span("r</think>r<channel|>", "private")


def test_lines_that_are_no_pair_records_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "pairs" / "1.jsonl"
    bad = ['{"uid": "incomplete', "[1, 2]", "null", "{}", json.dumps({**pair(1, True, True), "pair": {"draft": 3}})]
    write(path, "\n".join([*bad, json.dumps(pair(1, False, True))]))
    view = read_pairs("adv", {"adv": [path]}, per_kind=2)
    assert (view.read, view.unreadable, len(view.cards)) == (1, 5, 1)


def test_the_choice_is_the_same_each_time(tmp_path: Path) -> None:
    write_pairs(tmp_path, 1, [pair(1, False, True, uid=str(i), problem=f"problem {i}") for i in range(50)])
    drawn = [read_pairs("adv", {"adv": [tmp_path / "pairs/1.jsonl"]}, per_kind=3).cards for _ in range(2)]
    assert drawn[0] == drawn[1] and len({card.problem for card in drawn[0]}) == 3


def test_pairs_that_read_nothing_are_no_cards(tmp_path: Path) -> None:
    run = write_run(tmp_path / "hidden", "hidden", **SMALL)
    (run / "metrics.jsonl").unlink()
    html = report(run, out=tmp_path / "out")
    assert "No challenger reads a draft in hidden" in html and '<details class="card"' not in html


@pytest.mark.parametrize(
    ("draft", "shown", "expected"),
    [
        (
            "<think>7+5</think>Ones 12. <answer>42</answer>",
            "Ones 12. [answer withheld]",
            [("<think>7+5</think>", "private"), ("Ones 12.", ""), (" ", ""), ("<answer>42</answer>", "withheld")],
        ),
        ("r</think>So 4. And on.", "So 4.", [("r</think>", "private"), ("So 4.", ""), (" ", ""), ("And on.", "cut")]),
        ("hm So 4.", "So 4.", [("hm ", "private"), ("So 4.", "")]),  # no closing tag
        (
            "r</think><answer>4</answer>",
            "[answer withheld]",
            [("r</think>", "private"), ("<answer>4</answer>", "withheld")],
        ),
        ("a b</think>x = 1, so x.", "x = 2", [("a b</think>", "private"), ("x = 1, so x.", "")]),  # not in the draft
        ("thinking on and on", "", [("thinking on and on", "private")]),
        (
            "t</think>Sort.\n```python\nf()\n```\nDone",
            "Sort.\n```\n[answer withheld]\n```\nDone",
            [("t</think>", "private"), ("Sort.\n```", ""), ("python\nf()\n", "withheld"), ("```\nDone", "")],
        ),
    ],
)
def test_what_of_a_draft_was_not_shown(draft: str, shown: str, expected: list[tuple[str, str]]) -> None:
    assert [(span.text, span.mark) for span in mark_hidden(draft, shown)] == expected
    assert "".join(span.text for span in mark_hidden(draft, shown)) == draft


def test_withheld_places_are_marked() -> None:
    spans = pairs.mark_withheld("x [answer withheld] y")
    assert spans == [Span("x "), Span("answer withheld", "withheld"), Span(" y")]


# Nothing from a model becomes markup

HOSTILE = [
    "</script><script>alert(1)</script>",
    '<img src=x onerror="alert(1)">',
    '"><svg onload=alert(1)>',
    "</div></details></section></main><h1>unbalanced <b> <table><tr>",
    "{{ 7 * 7 }} {% raw %} ${7*7}",
    "\x00\x07\x1b[31m\u202eright to left\u2066 \ud800 half",
    "````\n</details>\n``` | * _ [link](javascript:alert(1)) <!-- comment",
    "<style>*{display:none}</style><base href=//evil.example><meta http-equiv=refresh content=0>",
]


def test_hostile_texts(matrix_html: str, tmp_path: Path) -> None:
    run = write_run(tmp_path / "a<b>$x|{{y}}'\"", **SMALL)
    (run / "metrics.jsonl").unlink()
    for path in (run / "pairs").iterdir():
        path.unlink()
    kinds = [(False, True), (True, False), (True, True), (False, False)]
    records = [
        pair(1, *kinds[i % 4], problem=text, draft=f"{text}</think>{text}", challenge=text, ground_truth=text)
        for i, text in enumerate(HOSTILE)
    ]
    for record, text in zip(records, HOSTILE, strict=True):
        record["attempt"]["shown"] = f"{text}[answer withheld]"
    records[0]["drafter"] = records[1]["challenger"] = '"><script>alert(2)</script>'
    write_pairs(run, 1, records)
    html = report(run, out=tmp_path / "out", options=("--pairs", "9", "--title", HOSTILE[0]))
    page, ordinary = Page(html), Page(matrix_html)
    assert set(page.tags) <= set(ordinary.tags) and page.tags["script"] == 1 and page.tags["style"] == 1
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    links = {value for name, value in page.attributes if name in ("href", "src", "xlink:href", "action")}
    assert all(value.startswith("#") or value == "data:," for value in links)
    for text in HOSTILE:
        assert visible(text) in page.text
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e\u2066\ud800-\udfff]", html)


def test_a_policy_allows_the_one_script_and_no_request(matrix_html: str) -> None:
    assert "default-src 'none'" in matrix_html and "script-src 'sha256-" in matrix_html
    assert not re.findall(r"(?:src|href)=\"(?!#|data:,\")[^\"]*\"|url\((?!#)", matrix_html)


def test_huge_texts_are_shortened(tmp_path: Path) -> None:
    texts = ["x" * 3_000_000, "[answer withheld] y " * 100_000, "a\n" * 100_000]
    records = [pair(1, True, True, problem=text, draft=text, challenge=text, ground_truth=text) for text in texts]
    for record, text in zip(records, texts, strict=True):
        record["attempt"]["shown"] = text
    write_pairs(tmp_path / "run", 1, records)
    html = report(tmp_path / "run", out=tmp_path / "out", options=("--pairs", "3"))
    assert len(html) < 400_000
    assert "2,996,001 characters omitted" in html


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\tb\n", "a\tb\n"),
        ("\r\n", "\n"),
        ("\x00\x1b", "⟨00⟩⟨1B⟩"),
        ("\u202e", "⟨202E⟩"),
        ("\ud800", "\ufffd"),
        ("é", "é"),
    ],
)
def test_what_cannot_be_seen_is_shown_as_a_sign(text: str, shown: str) -> None:
    assert visible(text) == shown


# What is not there is left out


def test_only_metrics(tmp_path: Path) -> None:
    lines = [{"step": 1, "data": {"pair/conversion": float("nan"), "pair/damage": 0.5, "x": None, "y": "text"}}]
    lines += [{"step": 2, "data": {"pair/conversion": 0.25, "health/error_correlation": float("inf")}}]
    write(tmp_path / "run/metrics.jsonl", "".join(json.dumps(line) + "\n" for line in lines) + '{"step": 3, "da')
    html = report(tmp_path / "run", out=tmp_path / "out")
    assert "None of these runs was evaluated" in html and "These runs have no pair records" in html
    assert html.count("<svg") == 1 and 'aria-label="Conversion and damage' in html
    assert "Error correlation" not in html  # its only value is not finite


@pytest.mark.parametrize("kept", ["metrics.jsonl", "pairs", "eval"])
def test_any_one_part_is_enough(tmp_path: Path, kept: str) -> None:
    run = write_run(tmp_path / "run", **SMALL)
    for path in [path for path in run.iterdir() if path.name != kept]:
        path.rename(tmp_path / path.name)
    report(run, out=tmp_path / "out")


def test_folders_of_every_depth(matrix: Path) -> None:
    def read(*folders: Path) -> list[tuple[str, int]]:
        return [(method.name, len(method.runs)) for method in read_methods(folders)[0]]

    assert read(matrix) == [("base", 1), ("grpo", 2), ("adv", 2), ("margin", 2)]
    assert read(matrix / "adv") == read(matrix / "adv/seed_0", matrix / "adv/seed_1") == [("adv", 2)]
    assert read(matrix / "adv/seed_0/eval") == [("eval", 1)]
    assert read(matrix, matrix)[4:] == [(f"matrix/{name}", runs) for name, runs in read(matrix)]


def test_a_matrix_without_its_file_and_with_broken_ones(tmp_path: Path) -> None:
    folder = write_matrix(tmp_path / "m", ("grpo", "adv"), seeds=1, **SMALL)
    for path in folder.rglob("metrics.jsonl"):
        path.unlink()
    write(folder / "matrix.json", "{")
    write(folder / "grpo/seed_0/eval/results.json", '{"sets"')
    write(folder / "adv/seed_0/eval/results.json", '{"something": "else"}')
    html = report(folder, out=tmp_path / "out")
    assert "m/matrix.json cannot be read" in html
    for method in ("grpo", "adv"):
        assert f"{method}/seed_0/eval/results.json is not a results.json of an evaluation" in html


def test_an_evaluation_that_judged_nothing(tmp_path: Path) -> None:
    data = results({"A_to_B": 0.5, "B_to_A": 0.5}, random.Random(0), 5)
    data["sets"][SOURCE] |= {"outcomes": {"A_to_B": {}, "B_to_A": {}}, "post_hoc": None}
    write(tmp_path / "adv/seed_0/eval/results.json", json.dumps(data))
    html = report(tmp_path, out=tmp_path / "out")
    assert "None of these runs was evaluated" in html and "✓ evaluated" in html


def test_a_method_without_results_is_in_the_table(tmp_path: Path) -> None:
    folder = write_matrix(tmp_path / "m", ("grpo", "adv"), seeds=1, **SMALL)  # the last cell is one that failed
    for path in folder.rglob("metrics.jsonl"):  # fewer panels to draw
        path.unlink()
    page = Page(report(folder, out=tmp_path / "out", options=("--pairs", "0")))
    assert ["adv", "–", "–", "–", "✗ 0 of 1"] in [row[:5] for row in page.rows] and "Pairs to read" not in page.text
    state = (folder / "matrix.json").read_text()
    assert state.count('"failed"') == 1
    (folder / "matrix.json").write_text(state.replace('"failed"', '"waiting"'))
    page = Page(report(folder, out=tmp_path / "waiting", options=("--pairs", "0")))
    assert ["adv", "–", "–", "–", "0 of 1"] in [row[:5] for row in page.rows]
    assert "1 of 2 runs of 2 methods" in page.text


def test_steps_are_in_order_of_their_numbers(matrix: Path) -> None:
    run = read_methods([matrix / "adv/seed_0"])[0][0].runs[0]
    assert [path.stem for path in run.pairs] == [str(step) for step in range(1, 13)]


def test_nothing_to_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 1
    assert "nothing to report in" in capsys.readouterr().err
    assert main([str(tmp_path / "none")]) == 1
    assert "is not a folder" in capsys.readouterr().err
    with pytest.raises(ReportError):
        read_methods([tmp_path])


def test_without_matplotlib_it_says_so(matrix: Path) -> None:
    code = (
        "import sys; sys.modules['matplotlib'] = None; from agon_verl.report.__main__ import main; main(sys.argv[1:])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(matrix)], capture_output=True, text=True, timeout=60)
    assert done.stderr == "agon-verl: matplotlib is needed: pip install 'agon-verl[report]'\n"


# The pictures, and the same bytes each time


def test_the_same_runs_give_the_same_bytes(tmp_path: Path) -> None:
    run = write_run(tmp_path / "adv", **SMALL)
    (run / "metrics.jsonl").unlink()  # fewer panels to draw
    assert report(run, out=tmp_path / "out") == report(run, out=tmp_path / "again")
    assert [path.name for path in (tmp_path / "again").iterdir()] == ["report.html"]


def test_limits_and_themes_are_drawn(matrix_html: str) -> None:
    assert matrix_html.count("<svg") > 10 and "alarm above 0.9" in matrix_html
    assert "currentColor" in matrix_html and "#010203" not in matrix_html
    assert "prefers-color-scheme: dark" in matrix_html


def test_names_are_drawn_as_they_are() -> None:
    assert picture.printable("a$b\x00" + "x" * 99) == "a$b " + "x" * 55 + "…"
    drawn = picture.picture("p", "$x^2", lambda ax: ax.set_xlabel("<b>$"), 2.0)
    assert ">$x^2</text>" in drawn.svg and "&lt;b&gt;$" in drawn.svg
    styles = picture.method_styles(["adv", "mine", "yours"])
    assert styles["mine"] != styles["yours"]
