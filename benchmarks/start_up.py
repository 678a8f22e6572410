"""Seconds of a run's start-up by part, from the command to the first request.

    python -m benchmarks.start_up --out start_up.jsonl --label before -- \
        python -m verl.trainer.main_ppo +recipe=agon … trainer.total_training_steps=1
    python -m benchmarks.start_up --out start_up.jsonl --table

Runs the command, notes when each line of its log arrives, and lets it end by itself. A part begins with the first line
that contains its mark; a part that a run does not have is left out. vLLM's own messages, with the seconds that it took
to load, compile and capture, are shown as well (VLLM_LOGGING_LEVEL=INFO).

Wall time depends on what else the machine does. So the processor time of each process is shown too, and how many
processors other programs used meanwhile (Linux only).
"""

import argparse
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
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
    ("agent loop workers", "the self-check passed"),
    ("first validation or step", "agent loop workers ready"),
)
SECONDS = re.compile(
    r"(Loading weights took|Model loading took|torch\.compile took|Dynamo bytecode transform time|Compiling a graph|"
    r"Graph capturing finished|init engine).*?([\d.]+) ?(?:s\b|secs?\b|seconds)"
)
TICKS = os.sysconf("SC_CLK_TCK")  # units of the kernel's processor times, per second
DONE = re.compile(r"\bstep:(\d+)")  # verl's line of metrics


@dataclass(frozen=True)
class Line:
    at: float  # seconds since the command
    text: str


@dataclass(frozen=True)
class Sample:
    """Processor seconds of the command and its descendants so far, by process, and of the machine."""

    at: float
    own: dict[int, tuple[str, float]]  # process id: title and seconds
    machine: float


@dataclass(frozen=True)
class StartUp:
    label: str
    total: float  # until the workers are ready; in a run that does not log it, to the end of its first step
    parts: dict[str, float]
    vllm: dict[str, float]  # vLLM's own seconds, by its words
    processors: dict[str, float] = field(default_factory=dict)  # processor seconds until then, by process title
    others: float = 0.0  # processors in use by other programs meanwhile


def processor_time(samples: Sequence[Sample], end: float) -> tuple[dict[str, float], float]:
    """Of the samples until `end`: seconds by title, the largest first, and the processors that others used."""
    until = [sample for sample in samples if sample.at <= end]
    if len(until) < 2:
        return {}, 0.0
    last: dict[int, tuple[str, float]] = {}
    for sample in until:  # a process that has ended keeps its last value
        last.update(sample.own)
    by_title: Counter[str] = Counter()
    for title, seconds in last.values():
        by_title[title] += seconds
    used = until[-1].machine - until[0].machine - sum(by_title.values())
    return {title: round(s, 1) for title, s in by_title.most_common()}, round(used / until[-1].at, 1)


def split(label: str, lines: Iterable[Line], samples: Sequence[Sample] = ()) -> StartUp:
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
    total = round(sum(parts.values()), 1)
    return StartUp(label, total, parts, vllm, *processor_time(samples, total))


def processes() -> Mapping[int, tuple[int, str, float]]:
    """Parent, title and processor seconds of each process."""
    alive = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
            command = (entry / "cmdline").read_bytes().decode(errors="replace")
        except OSError:  # it has ended
            continue
        alive[int(entry.name)] = int(fields[1]), title_of(command), sum(map(int, fields[11:13])) / TICKS
    return alive


def title_of(command: str) -> str:
    """A short name: Ray and vLLM set titles, other Python processes are named by their script or module."""
    words = command.replace("\0", " ").split()
    if not words or "::" in words[0]:
        return words[0].partition(".")[0] if words else "kernel"  # an actor without its method
    rest = [word for word in words[1:] if not word.startswith("-")] if "python" in Path(words[0]).name else []
    return Path(rest[0] if rest else words[0]).name


def sample(root: int, begun: float) -> Sample:
    alive = processes()

    def descends(process: int) -> bool:
        while process > 1 and process != root:
            process = alive.get(process, (0, "", 0.0))[0]
        return process == root

    own = {process: (title, seconds) for process, (_, title, seconds) in alive.items() if descends(process)}
    with open("/proc/stat") as stat:
        user, nice, system, *_ = map(int, stat.readline().split()[1:])
    return Sample(time.perf_counter() - begun, own, (user + nice + system) / TICKS)


def watch(root: int, begun: float, samples: list[Sample], ended: threading.Event) -> None:
    while not ended.wait(0.5):
        samples.append(sample(root, begun))


def run(command: Sequence[str]) -> tuple[list[Line], list[Sample], int]:
    environment = {"VLLM_LOGGING_LEVEL": "INFO", **os.environ, "PYTHONUNBUFFERED": "1"}
    begun, lines, samples, ended = time.perf_counter(), [], [], threading.Event()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=environment
    )
    assert process.stdout is not None
    if Path("/proc/stat").exists():
        threading.Thread(target=watch, args=(process.pid, begun, samples, ended), daemon=True).start()
    for text in process.stdout:
        lines.append(Line(time.perf_counter() - begun, text))
    ended.set()
    return lines, samples, process.wait()


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
    titles = [*dict.fromkeys(title for run in runs for title, seconds in run.processors.items() if seconds >= 1)]
    if titles:
        rows.append(row("**processor time**", [(r.label, sum(r.processors.values())) for r in runs if r.processors]))
        rows += [row(f"of {t}", [(r.label, r.processors[t]) for r in runs if t in r.processors]) for t in titles]
        rows.append(row("processors that others used", [(r.label, r.others) for r in runs if r.processors]))
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
        lines, samples, status = run(options.command)
        options.out.with_suffix(".log").write_text("".join(f"{at.at:8.2f} {at.text}" for at in lines))
        if status:
            sys.exit(f"the command ended with status {status}; its log is {options.out.with_suffix('.log')}")
        with options.out.open("a") as results:
            results.write(json.dumps(asdict(split(options.label, lines, samples))) + "\n")
    print(table([StartUp(**json.loads(text)) for text in options.out.read_text().splitlines()]))


if __name__ == "__main__":
    main()
