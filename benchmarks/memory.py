"""The memory of every process of an Agon run over its steps, the rows in TransferQueue, the objects in Ray's store.

    python benchmarks/memory.py --model MODEL --data DATA.parquet --device cpu --prompts 8

A process's memory is what it has for itself (`RssAnon`), looked at when a step is logged; what the processes share
through Ray's object store and TransferQueue is asked for every tenth, when the next step has just begun. Writes
`memory.json`, `memory.md` and `memory.png` to --out; the table is of the steps after the first 20. No other Ray may run
on the machine, or nothing is learned of the store.
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
from step_time import arguments, commands, run

WARM_UP, ASKED_EVERY, SMALL = 20, 10, 20.0  # steps, steps, MB
ASK = """
import json, sys, ray, transfer_queue as tq
from ray._private.internal_api import memory_summary
ray.init(address="auto", logging_level="ERROR", log_to_driver=False)
tq.init()
for _ in sys.stdin:
    told = {"store": memory_summary(stats_only=True), "rows": sum(map(len, tq.kv_list().values()))}
    print("FOUND", json.dumps(told), flush=True)
"""


class Watch:
    def __init__(self, out: Path) -> None:
        self.step = 0
        self.seen: dict[int, dict[str, float]] = {}
        self.shared: dict[int, dict[str, int]] = {}
        self.names: dict[str, str] = {}
        self._errors = (out / "asked.log").open("w")
        self._asker: subprocess.Popen[str] | None = None

    def __call__(self, mark: str, metrics: Path) -> None:
        step = len(metrics.read_text().splitlines()) if metrics.exists() else 0
        if step == self.step:
            return
        self.step, self.seen[step] = step, self._memory(mark.encode())
        if self._asker is None:  # connected long before it is asked
            self._asker = subprocess.Popen(
                [sys.executable, "-c", ASK],
                env={**os.environ, **dict([mark.split("=", 1)])},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
            )
        elif step % ASKED_EVERY == 0:
            self.shared[step] = self._ask(self._asker)

    def close(self) -> None:
        if self._asker is not None:
            self._asker.kill()
            self._asker.wait()

    def _memory(self, mark: bytes) -> dict[str, float]:
        """Megabytes by process."""
        found = {}
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if mark not in (entry / "environ").read_bytes().split(b"\0"):
                    continue
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                kilobytes = re.search(r"RssAnon:\s+(\d+)", (entry / "status").read_text())
            except OSError:
                continue  # gone
            if kilobytes:
                found[entry.name] = int(kilobytes[1]) / 1000
                self.names[entry.name] = _name(command)
        return found

    def _ask(self, asker: subprocess.Popen[str]) -> dict[str, int]:
        assert asker.stdin is not None and asker.stdout is not None
        try:
            asker.stdin.write("\n")
            asker.stdin.flush()
        except BrokenPipeError:  # it ends with the run
            return {}
        told = next((line for line in asker.stdout if line.startswith("FOUND ")), "FOUND {}")
        answer = json.loads(told.removeprefix("FOUND "))
        used = re.search(r"Plasma memory usage (\d+) MiB, (\d+) objects", answer.get("store", ""))
        return {"rows": answer["rows"], "megabytes": int(used[1]), "objects": int(used[2])} if used else {}


def _name(command: str) -> str:
    """`ray::Actor.method` is `Actor`; of another program, its file's name."""
    first = command.split(" ")[0]
    if first.startswith("ray::"):
        return first.removeprefix("ray::").split(".")[0]
    module = re.search(r" -m (\S+)|/([\w-]+)\.py ", command) if Path(first).name.startswith("python") else None
    return (module[1] or module[2]) if module else Path(first).name


def table(watch: Watch) -> tuple[str, dict[str, list[tuple[int, float]]]]:
    series: dict[str, list[tuple[int, float]]] = {}
    for step, found in sorted(watch.seen.items()):
        for process, megabytes in found.items():
            series.setdefault(process, []).append((step, megabytes))
    lines = ["| process | steps | first, MB | last, MB | a step, kB |", "|---|---|---|---|---|"]
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
    for step, told in watch.shared.items():
        cells = f"{told['rows']} | {told['objects']} | {told['megabytes']}" if told else "no answer, see asked.log | |"
        lines.append(f"| {step} | {cells} |")
    return "\n".join(lines), kept


def draw(kept: dict[str, list[tuple[int, float]]], picture: Path) -> None:
    figure, axes = plt.subplots(figsize=(9, 5), layout="constrained")
    for label, points in kept.items():
        axes.plot(*zip(*points, strict=True), label=label.rpartition(" ")[0], linewidth=1)
    axes.set(xlabel="step", ylabel="memory of its own, MB", xlim=(0, None), ylim=(0, None))
    figure.legend(loc="outside right upper", frameon=False, fontsize=7)
    figure.savefig(picture, dpi=110)


def main() -> None:
    parser = arguments(__doc__, "outputs/memory")
    parser.set_defaults(steps=100)
    args = parser.parse_args()
    if args.steps < WARM_UP + 2:
        parser.error(f"--steps must be {WARM_UP + 2} or more: the first {WARM_UP} warm up")
    args.out.mkdir(parents=True, exist_ok=True)
    watch = Watch(args.out)
    try:
        run("agon", commands(args)["agon"], args.out, watch)
    finally:
        watch.close()
    (args.out / "memory.json").write_text(json.dumps({"own": watch.seen, "names": watch.names, "shared": watch.shared}))
    text, kept = table(watch)
    (args.out / "memory.md").write_text(text + "\n")
    draw(kept, args.out / "memory.png")
    print(text)


if __name__ == "__main__":
    main()
