"""A completion of any size and content: nothing that reads it raises, and memory and work grow with its length.

The texts and the readers are those of `benchmarks/fuzz_completions.py`, which runs more and longer ones and measures
processor time. Here no time is measured: work is the number of lines that Python executes, which is the same on every
machine.
"""

import importlib.util
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from agon_verl.game.domains.code import withhold
from agon_verl.game.domains.leaks import contains, states
from agon_verl.game.domains.restatements import REACH, withhold_value
from agon_verl.game.withhold import WITHHELD

_PATH = Path(__file__).parents[2] / "benchmarks" / "fuzz_completions.py"
_SPEC = importlib.util.spec_from_file_location("fuzz_completions", _PATH)
assert _SPEC and _SPEC.loader
fuzz = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(fuzz)
SHAPES = fuzz.shapes()
NESTED = list(SHAPES)[len(fuzz.LOOPS) :]
DENSE = ["'='", "'1='", "'{='", "'=}'", "'(='", "':'", "'→'", "'x=1, '", "'it is 5. '", "'```\\n'", "'answer to '"]


def test_no_completion_raises() -> None:
    verdicts = fuzz.fuzz(2_000, seed=1)
    assert sum(verdicts.values()) == 2_000 and verdicts["wrong"] and verdicts["no_answer"]


def memory(read: Callable[[str], object], text: str) -> int:
    tracemalloc.start()
    try:
        read(text)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def lines(read: Callable[[str], object], text: str) -> int:
    """How many lines of Python a call executes."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        read(text)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("reader", fuzz.READERS)
def test_memory_grows_with_the_length(reader: str) -> None:
    """Four times the text, at most five times the memory; caches and small objects aside."""
    read = fuzz.READERS[reader]
    for shape in DENSE + NESTED:
        short, long = (memory(read, SHAPES[shape](length)) for length in (2_000, 8_000))
        assert long < 5 * short + 100_000, shape
        assert long < 300 * 8_000, shape


@pytest.mark.parametrize("reader", [name for name in fuzz.READERS if name != "verdict"])
def test_work_grows_with_the_length(reader: str) -> None:
    read = fuzz.READERS[reader]
    for shape in DENSE:
        short, long = (lines(read, SHAPES[shape](length)) for length in (4_000, 16_000))
        assert long < 4.4 * short + 1_000, shape
        assert long < 100 * 16_000, shape


def test_a_line_that_its_places_would_read_again_and_again_is_withheld_from_there_on() -> None:
    text = "x = 3. " + "{=" * 5_000 + " = 10"
    shown = withhold_value(text, "10", fuzz.restates)
    assert shown.startswith("x = 3. {={=") and shown.endswith(WITHHELD) and len(shown) < len(text) / 2
    assert withhold_value(f"{text}\nx = 10 = y", "10", fuzz.restates).endswith(f"\nx = {WITHHELD} = y")


def test_of_an_answer_longer_than_any_place_copies_are_withheld() -> None:
    answer = "+".join(map(str, range(100)))
    assert len(answer) > REACH
    assert withhold_value(f"so {answer} is 4950", answer, fuzz.restates) == f"so {WITHHELD} is 4950"


def test_a_long_answer_is_in_the_text_or_it_is_not() -> None:
    answer = "( ) " * 100
    for measure in (contains, states):
        assert measure(f"so {answer}", answer) and not measure(f"so {answer[:-4]}", answer)


def test_the_final_program_is_withheld_among_thousands_of_answers() -> None:
    program = "```python\nprint(5)\n```\n"
    others = "".join(f"<answer>\n```python\nprint({number})\n```\n</answer>\n" for number in range(1_000, 2_000))
    shown = withhold(f"First:\n{program}{others}Last:\n{program}")
    assert "print(5)" not in shown and "First" in shown and "Last" in shown
