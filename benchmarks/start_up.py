"""Seconds of a run's start-up by part, from the command to the first step.

    python -m benchmarks.start_up --out start_up.jsonl --label before -- \
        python -m verl.trainer.main_ppo +recipe=agon … trainer.total_training_steps=1
    python -m benchmarks.start_up --out start_up.jsonl --table

Runs the command, notes when each line of its log arrives, and lets it end by itself. A part begins with the first line
that contains its mark; a part that a run does not have is left out. vLLM's own messages, with the seconds that it took
to load, compile and capture, are shown as well (VLLM_LOGGING_LEVEL=INFO).
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

MARKS = (  # the name of a part, and a text of the line with which it begins
    ("imports of the command", ""),
    ("Ray", "ray init kwargs"),
    ("imports of the trainer", "Started a local Ray instance"),
    ("data", "Using dataset class"),
    ("imports of the training process", "Total training steps"),
    ("model to train", "Before FSDP"),
    ("imports of the server", "reward loop manager initialized"),
    ("vLLM", "'serve',"),
    ("sync and self-check", "LLMServerManager"),
    ("first validation or step", "the self-check passed"),
)
SECONDS = re.compile(
    r"(Loading weights took|Model loading took|torch\.compile took|Dynamo bytecode transform time|Compiling a graph|"
    r"Graph capturing finished|init engine).*?([\d.]+) ?(?:s\b|secs?\b|seconds)"
)
DONE = re.compile(r"\bstep:(\d+)")  # verl's line of metrics


@dataclass(frozen=True)
class Line:
    at: float  # seconds since the command
    text: str


@dataclass(frozen=True)
class StartUp:
    label: str
    total: float  # to the end of the self-check, or of the first validation or step where there is none
    parts: dict[str, float]
    vllm: dict[str, float]  # vLLM's own seconds, by its words


def split(label: str, lines: Iterable[Line]) -> StartUp:
    """Parts are in the order of MARKS: a mark counts only after the ones before it."""
    begins, vllm, ended = {MARKS[0][0]: 0.0}, {}, 0.0
    for line in lines:
        later = MARKS[[name for name, _ in MARKS].index([*begins][-1]) + 1 :]
        if name := next((name for name, mark in later if mark in line.text), None):
            begins[name] = line.at
        if found := SECONDS.search(line.text):
            vllm.setdefault(found[1], float(found[2]))
        if DONE.search(line.text):
            ended = line.at
            break
    if not ended:
        raise ValueError("the run logged no step: it ended early, or trainer.logger has no console")
    last = MARKS[-1][0]
    moments = [*begins.values()] + ([] if last in begins else [ended])
    names = [name for name in begins if name != last]
    parts = {name: round(after - before, 1) for name, before, after in zip(names, moments, moments[1:], strict=False)}
    return StartUp(label, round(sum(parts.values()), 1), parts, vllm)


def run(command: Sequence[str]) -> tuple[list[Line], int]:
    environment = {"VLLM_LOGGING_LEVEL": "INFO", **os.environ, "PYTHONUNBUFFERED": "1"}
    begun, lines = time.perf_counter(), []
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=environment
    )
    assert process.stdout is not None
    for text in process.stdout:
        lines.append(Line(time.perf_counter() - begun, text))
    return lines, process.wait()


def table(runs: Sequence[StartUp]) -> str:
    """The median of each label's runs, with the range; part by part."""
    labels = [*dict.fromkeys(run.label for run in runs)]

    def cell(values: list[float]) -> str:
        if not values:
            return ""
        return f"{median(values):.1f}" + (f" ({min(values):.1f}–{max(values):.1f})" if len(values) > 1 else "")

    parts = [name for name, _ in MARKS if any(name in run.parts for run in runs)]
    own = [*dict.fromkeys(part for run in runs for part in run.vllm)]

    def row(name: str, values: Sequence[tuple[str, float]]) -> str:
        return f"| {name} | {' | '.join(cell([v for of, v in values if of == label]) for label in labels)} |"

    rows = [row(part, [(r.label, r.parts[part]) for r in runs if part in r.parts]) for part in parts]
    rows.append(row("**total**", [(r.label, r.total) for r in runs]))
    rows += [row(f"vLLM: {part}", [(r.label, r.vllm[part]) for r in runs if part in r.vllm]) for part in own]
    head = f"| seconds | {' | '.join(labels)} |\n|---|{'---|' * len(labels)}\n"
    return head + "\n".join(rows)


def main(line: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("start_up.jsonl"), help="results; appended to")
    parser.add_argument("--label", default="run", help="runs of one label are shown together")
    parser.add_argument("--table", action="store_true", help="print the results so far, and end")
    parser.add_argument("command", nargs="*", help="after --")
    options = parser.parse_args(line)
    if not options.table:
        if not options.command:
            parser.error("the command is missing: write it after --")
        lines, status = run(options.command)
        options.out.with_suffix(".log").write_text("".join(f"{at.at:8.2f} {at.text}" for at in lines))
        if status:
            sys.exit(f"the command ended with status {status}; its log is {options.out.with_suffix('.log')}")
        with options.out.open("a") as results:
            results.write(json.dumps(asdict(split(options.label, lines))) + "\n")
    print(table([StartUp(**json.loads(text)) for text in options.out.read_text().splitlines()]))


if __name__ == "__main__":
    main()
