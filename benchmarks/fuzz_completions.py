r"""Completions that no model should write, through every function that reads one.

    python benchmarks/fuzz_completions.py [--only fuzz growth] [--count 100000] [--longest 1000000] [--processes 1]

fuzz    random and mutated completions: the labelled ones of `math_completions.jsonl` with pieces cut, repeated,
        exchanged and inserted, and pieces alone. Each is split, withheld (both settings, both domains), searched for
        its answer, compared with another, and judged. None may raise.
growth  texts of one repeated, nested or alternating piece, up to `--longest` characters: processor time and peak memory
        of each function against the length. The exponent compares the last two lengths: 1 is linear, 0 constant, 2
        quadratic. Writes `fuzz.md` and `fuzz.png` to `--out`.
"""

import argparse
import asyncio
import collections
import functools
import json
import math
import multiprocessing
import os
import random
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from agon_verl.game import transcript
from agon_verl.game.attempt import shorten
from agon_verl.game.control_tokens import ControlTokens
from agon_verl.game.domains import DOMAINS
from agon_verl.game.prompts import challenge_messages
from agon_verl.game.transcript import ENDED, OPENED
from agon_verl.game.withhold import WITHHELD, withhold_answer
from agon_verl.health.copying import copied_share
from reward_fns.math_answer import compute_score
from reward_fns.mathematics.restated import restates

ROWS = [
    json.loads(line)
    for line in Path(__file__).with_name("math_completions.jsonl").read_text(encoding="utf-8").splitlines()
]
LOOPS = [  # pieces in which a model may get stuck
    "{", "$", "=", ":", " ", "\n", "`", "\\", "7", "(", "→", "中", "\u0301", "1=", "{=", "=}", "(=", "1,", "x=1, ",
    "**", "7 + 3 = 10 ", "= 10\n", r"\frac{", r"\boxed{5}", r"\text{", "<answer>", "<answer>5</answer>", "</think>",
    "<|im_end|>", "the answer is ", "answer to ", "Therefore 10 ", "we get 10, ", "it is 5. ", "#### 7\n", "```\n",
    "```python\nprint(5)\n```\n", f"{WITHHELD} ",
]  # fmt: skip
PIECES = [
    *LOOPS, *"})[],.;!?-_^|&~#*<>/\"'%+x", "\t", "\r\n", "\u00a0", "\u2028", "\ud800", "\0", "٥", "é", "。", "½",
    "²", "−", "≤", "$$", r"\[", r"\]", r"\(", r"\)", r"\{", r"\}", r"\\", "__", "...", "####", "1,000", "1.5",
    "0.333...", "1 000 ", "10 = x ", r"\frac{1}{2}", r"\sqrt{", r"\left(", r"\right)", r"\boxed{", r"\fbox{",
    r"\text{a}", r"\overline{3}", r"\begin{pmatrix}", r"\to ", r"\pm", r"\quad", r"\therefore", "x^{", "x_", "f(",
    "|x|<", "(A) ", "1:2", "</answer>", "<answer", "</answer ", "<think>", "<|im_start|>user\n", "</attempt>",
    "The answer is 10. ", "Answer:\n", "is the answer ", "so ", "because ", "a total of ", "step 1 ", "word ", "a ",
    "```", "```python\n", "  - ```\n", f"{WITHHELD}\n\n",
]  # fmt: skip
NESTED = [
    ("{", "}"), ("(", ")"), (r"\boxed{", "}"), ("<answer>", "</answer>"), ("<think>", "</think>"), (r"\frac{1}{", "}"),
    (r"\left(", r"\right)"), ("answer to ", " "), ("```\n", "<answer>"), ("x = ", "\n\n"),
]  # fmt: skip
PROBLEM = "What is 7 + 3, if a_1 = 1 and m + n = 10?"
TOKENS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>", "</think>", "<tool_call>", "[INST]", "</s>")
CONTROL = ControlTokens(
    SimpleNamespace(
        chat_template="<tool_call>",
        added_tokens_decoder={i: SimpleNamespace(content=text, special=True) for i, text in enumerate(TOKENS)},
    ),
    transcript.REASONING_TAGS,
)


PER_SEED = 1_000  # completions
Point = tuple[int, float, int]  # characters, seconds of processor time, peak bytes


def split(text: str) -> list[Any]:
    ways = [(opened, ended) for opened in (False, True) for ended in (None, False, True)]
    return [transcript.read(text, opened=opened, ended=ended) for opened, ended in ways]


def announced(text: str) -> str:
    return withhold_answer(text)


def value(text: str) -> str:
    return withhold_answer(text, "math", "10", restates, PROBLEM)


def program(text: str) -> tuple[str, bool]:
    """What is read of a program: the last block, the text without it, and whether it is still there."""
    code = DOMAINS["code"]
    shown = code.withhold(text)
    return shown, code.leaks(shown, transcript.final_program(text) or text)


def leaks(text: str) -> list[bool]:
    return [
        measure(text, answer)
        for answer in ("10", text[: len(text) // 2])
        for measure in (DOMAINS["math"].leaks, DOMAINS["math"].states)
    ]


def copying(text: str) -> float:
    return copied_share(text, text[::-1] + text)


def prompt(text: str) -> list[dict[str, Any]]:
    """Control tokens, the cut to fit, and the tags of the prompt."""
    short, _ = shorten(CONTROL.break_up(text), len(text) // 8, lambda part: len(part) // 4)
    return challenge_messages([{"role": "user", "content": PROBLEM}], short)


def verdict(text: str) -> str:
    return str(asyncio.run(compute_score("fuzz", f"<answer>{text}", "10", {ENDED: True}))["verdict"])


READERS: dict[str, Callable[[str], object]] = {
    "transcript": split, "withhold announced": announced, "withhold value": value, "program": program, "leaks": leaks,
    "copying": copying, "prompt": prompt, "verdict": verdict,
}  # fmt: skip


def shapes() -> dict[str, Callable[[int], str]]:
    """A text of about so many characters, by name."""
    repeated = {repr(piece): lambda n, piece=piece: piece * (n // len(piece)) for piece in LOOPS}
    nested = {
        f"{opening!r} … {closing!r}": lambda n, a=opening, b=closing: a * (n // 2 // len(a)) + b * (n // 2 // len(b))
        for opening, closing in NESTED
    }
    alternating = {repr(a + b): lambda n, ab=a + b: ab * (n // len(ab)) for a, b in NESTED}
    return repeated | nested | alternating


def completion(made: random.Random) -> str:
    """One random or mutated completion."""
    if made.random() < 0.3:
        text = "".join(made.choices(PIECES, k=made.randint(0, 80)))
    else:
        text = made.choice(ROWS)["text"]
        for _ in range(made.randint(1, 6)):
            a, b = sorted(made.choices(range(len(text) + 1), k=2))
            b = min(b, a + 400)
            text = made.choice((
                lambda a, b, text: text[:a] + text[b:],
                lambda a, b, text: text[:a] + text[a:b] * made.randint(2, 5) + text[b:],
                lambda a, b, text: text[:a] + made.choice(PIECES) * made.choice((1, 1, 2, 50)) + text[a:],
                lambda a, b, text: text[:a] + "".join(made.sample(PIECES, 3)) + text[b:],
                lambda a, b, text: text[b:] + text[a:b] + text[:a],
                lambda a, b, text: text[:a] + made.choice(ROWS)["text"][:200] + text[b:],
            ))(a, b, text)  # fmt: skip
    return f"<think>{text}</think>{text[len(text) // 2 :]}" if made.random() < 0.2 else text


def read_all(text: str, info: dict[str, bool], other: str) -> None:
    """Everything that a pair does with a completion but for its verdict."""
    draft = transcript.read(text, opened=info[OPENED], ended=info[ENDED])
    for domain, rules in DOMAINS.items():
        answer = rules.final_answer(draft) or ""
        for same in (None, restates):
            shown = CONTROL.break_up(withhold_answer(draft.summary or "", domain, answer, same, PROBLEM))
            rules.leaks(shown, answer), rules.states(shown, answer)
            copied_share(shown, other)
            prompt(shown)


async def judged(batch: Iterable[tuple[str, str, dict[str, bool]]]) -> list[str]:
    scores = await asyncio.gather(*(compute_score("fuzz", *case) for case in batch))
    return [str(score["verdict"]) for score in scores]


def fuzz(count: int, seed: int) -> collections.Counter[str]:
    """The verdicts on `count` completions. The seed and the text of one that raises are in the error."""
    verdicts: collections.Counter[str] = collections.Counter()
    cases, other = [], ""
    for number in range(count):
        made = random.Random(f"{seed}/{number}")
        text, gold = completion(made), made.choice(ROWS)["ground_truth"]
        info = {OPENED: made.random() < 0.2, ENDED: made.random() < 0.8}
        try:
            read_all(text, info, other)
        except Exception as error:
            raise AssertionError(f"completion {number} of seed {seed} raises: {text!r}") from error
        other = text
        cases.append((text, gold, info))
        if len(cases) == 200 or number == count - 1:
            verdicts.update(asyncio.run(judged(cases)))
            cases.clear()
    return verdicts


def measured(case: tuple[str, str, int]) -> Point:
    """One reader, shape and length, in a process of its own."""
    reader, shape, length = case
    text = shapes()[shape](length)
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before, began = _kilobytes("VmRSS"), time.process_time()
    READERS[reader](text)
    return len(text), time.process_time() - began, 1024 * (_kilobytes("VmHWM") - before)


def _kilobytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def growth(lengths: list[int], processes: int) -> dict[str, dict[str, list[Point]]]:
    """By reader and shape."""
    results: dict[str, dict[str, list[Point]]] = {reader: {shape: [] for shape in shapes()} for reader in READERS}
    cases = [(reader, shape, length) for reader in READERS for shape in shapes() for length in lengths]
    with multiprocessing.get_context("fork").Pool(processes, maxtasksperchild=1) as pool:
        for (reader, shape, _), point in zip(cases, pool.imap(measured, cases), strict=True):
            results[reader][shape].append(point)
    return results


def exponent(points: list[Point], column: int) -> float:
    """From the last two lengths; what is below 10 ms or 1 MB there is measured too roughly, and raised to that."""
    first, last = points[-2], points[-1]
    least = (0.01, 1e6)[column - 1]
    return math.log(max(last[column], least) / max(first[column], least)) / math.log(last[0] / first[0])


def table(results: dict[str, dict[str, list[Point]]]) -> str:
    lines = ["| | s per MB, median | worst | exponent, worst | bytes per character, median | worst | exponent, worst |"]
    lines.append("|---|---|---|---|---|---|---|")
    for name, by_shape in results.items():
        cells = []
        for column in (1, 2):
            costs = sorted((points[-1][column] / points[-1][0], shape) for shape, points in by_shape.items())
            steepest = max((exponent(points, column), shape) for shape, points in by_shape.items())
            scale = 1e6 if column == 1 else 1
            cells += [f"{scale * costs[len(costs) // 2][0]:.2g}", f"{scale * costs[-1][0]:.2g} ({_code(costs[-1][1])})"]
            cells += [f"{steepest[0]:.2f} ({_code(steepest[1])})"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _code(shape: str) -> str:
    return f"```` {shape} ````" if "`" in shape else f"`{shape}`"


def draw(results: dict[str, dict[str, list[Point]]], picture: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(2, len(results), figsize=(2.1 * len(results), 5), sharex=True, sharey="row")
    for (name, by_shape), column in zip(results.items(), panels.T, strict=True):
        for points in by_shape.values():
            lengths, times, peaks = zip(*points, strict=True)
            column[0].plot(lengths, [max(each, 1e-5) for each in times], color="#4477aa", alpha=0.3, linewidth=0.8)
            column[1].plot(lengths, [max(each, 1e5) for each in peaks], color="#cc6677", alpha=0.3, linewidth=0.8)
        for panel, at_first in zip(column, (2e-3, 1e6), strict=True):
            slope = [at_first * length / lengths[0] for length in lengths]
            panel.plot(lengths, slope, ":", color="#000000", linewidth=1)
            panel.set(xscale="log", yscale="log")
        column[0].set_title(name, fontsize=9)
        column[1].set_xlabel("characters", fontsize=9)
    panels[0][0].set_ylabel("processor seconds")
    panels[1][0].set_ylabel("peak bytes")
    figure.tight_layout()
    figure.savefig(picture, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--longest", type=int, default=1_000_000)
    parser.add_argument("--only", nargs="+", default=["fuzz", "growth"])
    parser.add_argument("--out", type=Path, default=Path("outputs/fuzz"))
    arguments = parser.parse_args()
    print(f"load of the machine at the start {os.getloadavg()[0]:.1f}")
    if "fuzz" in arguments.only:
        verdicts: collections.Counter[str] = collections.Counter()
        seeds = range(math.ceil(arguments.count / PER_SEED))
        with multiprocessing.get_context("fork").Pool(arguments.processes) as pool:
            for counted in pool.imap_unordered(functools.partial(fuzz, PER_SEED), seeds):
                verdicts.update(counted)
                if verdicts.total() % 10_000 == 0:
                    print(f"fuzz: {verdicts.total():,} completions, none raised; {dict(verdicts)}", flush=True)
    if "growth" in arguments.only:
        arguments.out.mkdir(parents=True, exist_ok=True)
        results = growth([arguments.longest // 64, arguments.longest // 8, arguments.longest], arguments.processes)
        (arguments.out / "fuzz.md").write_text(table(results) + "\n", encoding="utf-8")
        draw(results, arguments.out / "fuzz.png")
        print(table(results))


if __name__ == "__main__":
    main()
