import asyncio
import json
import shutil
import threading
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from reward_fns.code_problem import GroundTruthError
from reward_fns.sandbox.local import LocalSandbox
from reward_fns.unit_tests import compute_score

pytestmark = pytest.mark.usefixtures("isolated")

KEYS = {"score": float, "acc": float, "format": float, "pred": str, "verdict": str}
TESTS = {"inputs": ["1 2\n", "30 12\n"], "outputs": ["3\n", "42\n"]}
RIGHT = "a, b = map(int, input().split())\nprint(a + b)\n"
# Any rational with the right value will do.
CHECKER = r"""
import sys
from fractions import Fraction
stdin, output, answer = (open(path).read() for path in sys.argv[1:])
assert len(stdin.split()) == 2
sys.exit(Fraction(output.strip()) != Fraction(answer.strip()))
"""


def score(completion: str, truth=TESTS, **kwargs) -> dict:
    return asyncio.run(compute_score("test", completion, truth, **kwargs))


def verdict(source: str, truth=TESTS, language: str = "python", **kwargs) -> str:
    return score(f"```{language}\n{source}\n```", truth, **kwargs)["verdict"]


@pytest.mark.parametrize(
    ("completion", "expected"),
    [
        (f"<think>r</think>So:<answer>```python\n{RIGHT}```</answer>", (2.5, 1.0, 1.0, RIGHT, "correct")),
        (f"<think>r</think>So:\n```python\n{RIGHT}```", (2.0, 1.0, 0.0, RIGHT, "correct")),
        ("<think>r</think><answer>```python\nprint(3)\n```</answer>", (0.5, 0.0, 1.0, "print(3)\n", "wrong")),
    ],
)
def test_scores_by_hand(completion, expected):
    result = score(completion)
    assert tuple(result[key] for key in KEYS) == expected


def test_the_format_weight():
    assert score(f"<think>r</think><answer>```\n{RIGHT}```</answer>", format_weight=0.1)["score"] == 2.1


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(st.text(max_size=60), st.text(max_size=60).map(lambda source: f"```py\n{source}\n```")))
def test_the_keys_and_types_are_always_the_same(completion):
    assert {key: type(value) for key, value in score(completion).items()} == KEYS


def test_a_template_that_opens_the_reasoning():
    cut_off = f"Perhaps\n```python\n{RIGHT}```\nbut wait"
    assert score(cut_off)["acc"] == 1.0
    assert score(cut_off, opened=True)["verdict"] == "no_program"
    assert score(cut_off, extra_info={"reasoning_opened": True})["verdict"] == "no_program"


def test_the_last_block_counts():
    assert score(f"```python\nprint(3)\n```\nBetter:\n```python\n{RIGHT}```")["verdict"] == "correct"
    assert score(f"```python\n{RIGHT}```\nOutput:\n```text\n3\n```")["verdict"] == "language"


@pytest.mark.parametrize("tag", ["", "python", "Python", "py", "python3", "python title=x", " python "])
def test_tags_of_python(tag):
    assert verdict(RIGHT, language=tag) == "correct"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("print(3)", "wrong"),
        ("1 / 0", "runtime_error"),
        ("print(", "compile_error"),
        (" print(3)", "compile_error"),
        ("while True: pass", "timeout"),
        ("x = bytearray(300 << 20)\nwhile True: pass", "memory"),
        ("x = bytearray(1 << 40)", "memory"),
        ("while True: print('x' * 100)", "output_limit"),
    ],
)
def test_verdicts(source, expected):
    assert verdict(source, {**TESTS, "time_limit": 0.5, "memory_limit": 128}) == expected


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")
def test_verdicts_in_cpp():
    right = '#include <cstdio>\nint main() { int a, b; scanf("%d%d", &a, &b); printf("%d", a + b); }'
    assert verdict(right, language="cpp") == "correct"
    assert verdict(right.replace("a + b)", "a - b)"), language="c++") == "wrong"
    assert verdict("int main() { return 1; }", language="cpp") == "runtime_error"
    assert verdict("int main() { return x; }", language="cpp") == "compile_error"


def test_judging_stops_at_the_first_failure(monkeypatch):
    seen = []
    run = LocalSandbox.run

    async def counted(self, job):
        seen.append(job.stdin)
        return await run(self, job)

    monkeypatch.setattr(LocalSandbox, "run", counted)
    tests = {"inputs": ["1", "2", "3"], "outputs": ["x", "x", "x"]}
    assert verdict("print('x' if input() == '1' else 'y')", tests) == "wrong"
    assert seen == [b"1", b"2"]


def test_every_test_must_pass():
    tests = {"inputs": ["1"] * 4 + ["2"], "outputs": ["x"] * 5}
    assert verdict("print('x' if input() == '1' else 'y')", tests) == "wrong"
    assert verdict("print('x')", tests) == "correct"


def test_a_program_may_not_use_each_limit_to_the_full():
    """A hundred tests just below the limit would delay the step, so there is a limit for all of them together."""
    spin = "import time\nwhile time.process_time() < 0.4: pass\nprint('x')"
    tests = {"inputs": ["1"] * 100, "outputs": ["x"] * 100, "time_limit": 2}
    began = time.monotonic()
    assert verdict(spin, tests, total_time=1.0) == "timeout"
    assert time.monotonic() - began < 30
    assert verdict(spin, {"inputs": ["1"], "outputs": ["x"]}, total_time=1.0) == "correct"


def test_a_checker_decides():
    tests = {**TESTS, "checker": CHECKER}
    assert verdict("a, b = map(int, input().split())\nprint(f'{2 * (a + b)}/2')", tests) == "correct"
    assert verdict("a, b = map(int, input().split())\nprint(f'{3 * (a + b)}/2')", tests) == "wrong"
    assert verdict("print('what')", tests) == "wrong"  # the checker raises
    assert verdict("import sys\nsys.stdout.write('1' * 10_000_000)", tests) == "wrong"
    assert verdict("1 / 0", tests) == "runtime_error"


def test_a_checker_that_rejects_the_expected_output_is_an_error():
    for checker in ("import sys\nsys.exit(1)", "syntax error", "import nothing_of_the_kind"):
        with pytest.raises(GroundTruthError, match="rejects the expected output"):
            verdict(RIGHT, {**TESTS, "checker": checker})


def test_a_checker_is_in_a_sandbox_of_its_own(tmp_path):
    """It sees the expected output, which the program must not see, and nothing of the host."""
    (tmp_path / "file").write_text("x")
    nosy = f"import os, sys\nsys.exit(os.path.exists({str(tmp_path / 'file')!r}) or len(os.listdir('/box')) != 4)"
    assert verdict(RIGHT, {**TESTS, "checker": nosy}) == "correct"
    assert verdict("import os\nprint(os.listdir('/box'))", {"inputs": [""], "outputs": ["['main']"]}) == "correct"


def test_trusted_code_is_limited_but_not_confined(tmp_path):
    """That it can read the answers also shows that the attacks in other tests are real."""
    file = tmp_path / "tests"
    file.write_text("3")
    steal = f"print(open({str(file)!r}).read())"
    tests = {"inputs": ["1 2"], "outputs": ["3"], "time_limit": 0.5, "memory_limit": 128}
    with pytest.warns(UserWarning, match="without a sandbox"):
        assert verdict(steal, tests, trusted=True, slots=2) == "correct"
    assert verdict(steal, tests) == "runtime_error"
    assert verdict("while True: pass", tests, trusted=True, slots=2) == "timeout"
    assert verdict("x = bytearray(300 << 20)\nwhile True: pass", tests, trusted=True, slots=2) == "memory"
    assert verdict("1 / 0", tests, trusted=True, slots=2) == "runtime_error"


def test_any_thread_and_any_event_loop():
    """verl calls it in an actor whose loop need not be the main thread's, or the last one's."""
    verdicts: list[str] = []
    threads = [threading.Thread(target=lambda: verdicts.append(verdict(RIGHT))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert verdicts == ["correct"] * 3


def test_the_event_loop_stays_free():
    async def main() -> int:
        ticks = 0
        judging = asyncio.ensure_future(
            compute_score(
                "test", "```py\nimport time\ntime.sleep(1)\nprint(3)\n```", {"inputs": [""], "outputs": ["3"]}
            )
        )
        while not judging.done():
            await asyncio.sleep(0.01)
            ticks += 1
        assert (await judging)["verdict"] == "correct"
        return ticks

    assert asyncio.run(main()) > 20


def test_a_caller_that_gives_up_stops_the_judging():
    async def main() -> None:
        tests = {"inputs": ["1"] * 1000, "outputs": ["x"] * 1000}
        completion = "```py\nimport time\ntime.sleep(0.05)\nprint('x')\n```"
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(compute_score("test", completion, tests), 1)
        began = time.monotonic()
        assert (await compute_score("test", f"```py\n{RIGHT}```", TESTS))["verdict"] == "correct"
        assert time.monotonic() - began < 20

    asyncio.run(main())


def test_as_verl_loads_and_calls_it():
    from verl.trainer.ppo.reward import get_custom_reward_fn

    function = {
        "path": "pkg://reward_fns.unit_tests",
        "name": "compute_score",
        "reward_kwargs": {"format_weight": 0.25, "reasoning_tags": ["<r>", "</r>"], "backend": "local"},
    }
    config = OmegaConf.create({"reward": {"custom_reward_function": function}})
    call = get_custom_reward_fn(config)
    completion = f"<r>r</r><answer>\n```python\n{RIGHT}```\n</answer>"
    result = asyncio.run(
        call(
            data_source="test", solution_str=completion, ground_truth=json.dumps(TESTS), extra_info={"num_turns": None}
        )
    )
    assert result["score"] == 2.25
