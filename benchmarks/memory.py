"""The memory of every process of an Agon run over its steps, the rows in TransferQueue, the objects in Ray's store.

    python benchmarks/memory.py --model MODEL --data DATA.parquet --device cpu --prompts 8

The memory of a process is its private memory (`RssAnon`), read when a step is logged. The contents of Ray's object
store and of TransferQueue are queried at every tenth step, when the next step has just begun. Writes `memory.json`,
`memory.md` and `memory.png` to --out; the table covers the steps after the first 20. No other Ray may run on the
machine, or the store cannot be queried.
"""

import json
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from step_time import arguments, default_arm, parsed, run

from agon_verl.matrix.processes import processes

WARM_UP, QUERY_EVERY, SMALL = 20, 10, 20.0  # steps, steps, MB
QUERY = """
import json, sys, ray, transfer_queue as tq
from ray._private.internal_api import memory_summary
ray.init(address="auto", logging_level="ERROR", log_to_driver=False)
tq.init()
for _ in sys.stdin:
    answer = {"store": memory_summary(stats_only=True), "rows": sum(map(len, tq.kv_list().values()))}
    print("ANSWER", json.dumps(answer), flush=True)
"""


class MemoryLog:
    def __init__(self, out: Path) -> None:
        self.step = 0
        self.seen: dict[int, dict[str, float]] = {}
        self.shared: dict[int, dict[str, int]] = {}
        self.names: dict[str, str] = {}
        self._errors = (out / "queries.log").open("w")
        self._query: subprocess.Popen[str] | None = None

    def __call__(self, mark: str, metrics: Path) -> None:
        step = len(metrics.read_text().splitlines()) if metrics.exists() else 0
        if step == self.step:
            return
        self.step, self.seen[step] = step, self._memory(mark)
        if self._query is None:  # connected long before its first query
            self._query = subprocess.Popen(
                [sys.executable, "-c", QUERY],
                env={**os.environ, **dict([mark.split("=", 1)])},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
            )
        elif step % QUERY_EVERY == 0:
            self.shared[step] = self._read_shared(self._query)

    def close(self) -> None:
        if self._query is not None:
            self._query.kill()
            self._query.wait()

    def _memory(self, mark: str) -> dict[str, float]:
        """Megabytes by process."""
        memory = {}
        for process in processes(mark):
            entry = Path("/proc", str(process))
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                kilobytes = re.search(r"RssAnon:\s+(\d+)", (entry / "status").read_text())
            except OSError:
                continue  # the process has ended
            if kilobytes:
                memory[entry.name] = int(kilobytes[1]) / 1000
                self.names[entry.name] = _name(command)
        return memory

    def _read_shared(self, query: subprocess.Popen[str]) -> dict[str, int]:
        assert query.stdin is not None and query.stdout is not None
        try:
            query.stdin.write("\n")
            query.stdin.flush()
        except BrokenPipeError:  # it ends with the run
            return {}
        line = next((line for line in query.stdout if line.startswith("ANSWER ")), "ANSWER {}")
        answer = json.loads(line.removeprefix("ANSWER "))
        used = re.search(r"Plasma memory usage (\d+) MiB, (\d+) objects", answer.get("store", ""))
        return {"rows": answer["rows"], "megabytes": int(used[1]), "objects": int(used[2])} if used else {}


def _name(command: str) -> str:
    """`Actor` for `ray::Actor.method`; the file name for any other program."""
    first = command.split(" ")[0]
    if first.startswith("ray::"):
        return first.removeprefix("ray::").split(".")[0]
    module = re.search(r" -m (\S+)|/([\w-]+)\.py ", command) if Path(first).name.startswith("python") else None
    return (module[1] or module[2]) if module else Path(first).name


def table(watch: MemoryLog) -> tuple[str, dict[str, list[tuple[int, float]]]]:
    series: dict[str, list[tuple[int, float]]] = {}
    for step, memory in sorted(watch.seen.items()):
        for process, megabytes in memory.items():
            series.setdefault(process, []).append((step, megabytes))
    lines = ["| process | steps | first, MB | last, MB | kB per step |", "|---|---|---|---|---|"]
    kept = {}
    for process, points in sorted(series.items(), key=lambda item: -item[1][-1][1]):
        later = [(step, megabytes) for step, megabytes in points if step > WARM_UP]
        if len(later) < 2 or later[-1][1] < SMALL:
            continue
        slope = 1000 * statistics.linear_regression(*zip(*later, strict=True)).slope
        kept[f"{watch.names[process]} {process}"] = points
        steps = f"{later[0][0]}–{later[-1][0]}"
        lines.append(f"| {watch.names[process]} | {steps} | {later[0][1]:.0f} | {later[-1][1]:.0f} | {slope:+.0f} |")
    lines += ["", "| shortly after step | rows in TransferQueue | objects in Ray's store | MiB |", "|---|---|---|---|"]
    for step, shared in watch.shared.items():
        cells = f"{shared['rows']} | {shared['objects']} | {shared['megabytes']}" if shared else "no answer | |"
        lines.append(f"| {step} | {cells} |")
    return "\n".join(lines), kept


def draw(kept: dict[str, list[tuple[int, float]]], picture: Path) -> None:
    figure, axes = plt.subplots(figsize=(9, 5), layout="constrained")
    for label, points in kept.items():
        axes.plot(*zip(*points, strict=True), label=label.rpartition(" ")[0], linewidth=1)
    axes.set(xlabel="step", ylabel="private memory, MB", xlim=(0, None), ylim=(0, None))
    figure.legend(loc="outside right upper", frameon=False, fontsize=7)
    figure.savefig(picture, dpi=110)


def main() -> None:
    parser = arguments(__doc__, "outputs/memory")
    parser.set_defaults(steps=100)
    args = parsed(parser)
    if args.steps < WARM_UP + 2:
        parser.error(f"--steps must be {WARM_UP + 2} or more: the first {WARM_UP} warm up")
    watch = MemoryLog(args.out)
    try:
        run("agon", default_arm(args), args.out, watch)
    finally:
        watch.close()
    (args.out / "memory.json").write_text(json.dumps({"own": watch.seen, "names": watch.names, "shared": watch.shared}))
    text, kept = table(watch)
    (args.out / "memory.md").write_text(text + "\n")
    draw(kept, args.out / "memory.png")
    print(text)


if __name__ == "__main__":
    main()
