r"""The math verifier: its speed, limits and accuracy, compared with others that use math-verify.

    python benchmarks/math_verifier.py [--data PROBLEMS.jsonl] [--cores 1] [--only speed limits fuzz accuracy labels]

`--data` is a JSONL file with `solution` and `answer`, such as MATH-500; without it responses are generated. Times are
wall time and processor time: on a busy machine only the second is meaningful.

speed     800 long responses in one event loop: the answer as in the reference, in another form, or wrong; compared with
          verl's reward and with math-verify as TRL and open-r1 call it.
limits    the same with 1 % hostile responses: towers, numbers of 10^6 digits, deep nesting, megabytes of text; and
          again with 1 % that never end in algebra. How long they take, and how long the others wait.
fuzz      50,000 random and mutated completions: none may raise or hang.
accuracy  `math_pairs.jsonl`, by category, compared with the same three.
labels    `math_completions.jsonl`: completions of a small model, labelled by hand, compared with the same three.
"""

import argparse
import asyncio
import collections
import json
import os
import random
import resource
import statistics
import threading
import time
from pathlib import Path

from math_graders import GRADERS, grade

from agon_verl.game.transcript import ENDED
from reward_fns.math_answer import compute_score, judge
from reward_fns.mathematics.pool import PoolLimits, pool

PAIRS = Path(__file__).with_name("math_pairs.jsonl")
COMPLETIONS = Path(__file__).with_name("math_completions.jsonl")
RESPONSES, LENGTH, SHARE = 800, 12_000, 100
USUAL = ("numbers", "thousands", "roots and constants", "several values", "ordered", "intervals", "matrices", "words")
ALGEBRA = (r"\sum_{k=1}^{n} k^2", r"\frac{n(n+1)(2n+1)}{6}")  # text and value do not decide this pair


def problems(path: Path | None) -> list[tuple[str, str]]:
    """(solution, answer)"""
    if path:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return [(row["solution"], row["answer"]) for row in rows]
    made = random.Random(0)
    pairs = [json.loads(line) for line in PAIRS.read_text(encoding="utf-8").splitlines()]
    answers = [pair["gold"] for pair in pairs if pair["category"] in USUAL]
    return [
        (rf"Let $x = {made.randint(1, 99)}$, so that $\frac{{x}}{{2}} + 1$ is what we want. " * 8, a) for a in answers
    ]


def another_form(answer: str, made: random.Random) -> str:
    """Another correct spelling, as a model may write it."""
    forms = [answer.replace(r"\frac", r"\dfrac"), f"${answer}$", f"{answer}.", rf"\left.{answer}\right."[6:-7]]
    if answer.isdigit():
        forms += [f"{int(answer):,}", f"x = {answer}", rf"{answer}\text{{ units}}", f"{answer}.0"]
    return made.choice(forms)


def responses(rows: list[tuple[str, str]], count: int = RESPONSES) -> list[tuple[str, str]]:
    """(completion, reference): 60 % verbatim, 15 % in another form, 25 % with the answer to another problem."""
    made = random.Random(1)
    batch = []
    for index in range(count):
        solution, answer = rows[index % len(rows)]
        kind = made.random()
        final = answer if kind < 0.6 else another_form(answer, made) if kind < 0.75 else made.choice(rows)[1]
        thought = (solution + "\n") * (1 + LENGTH // (len(solution) + 1))
        end = rf"The answer is <answer>$\boxed{{{final}}}$</answer>"
        batch.append((f"<think>{thought[:LENGTH]}</think>{solution.replace('boxed', 'fbox')}\n{end}", answer))
    return batch


async def timed(batch: list[tuple[str, str]], **settings: object) -> tuple[list[str], list[float], float]:
    """Verdicts, the time of each, and the total time; all at once in this loop."""
    began = time.perf_counter()

    async def one(completion: str, gold: str) -> tuple[str, float]:
        scored = await compute_score("benchmark", completion, gold, **settings)  # type: ignore[arg-type]
        return str(scored["verdict"]), time.perf_counter() - began

    done = await asyncio.gather(*(one(*item) for item in batch))
    return [verdict for verdict, _ in done], [moment for _, moment in done], time.perf_counter() - began


def speed(rows: list[tuple[str, str]]) -> None:
    batch = responses(rows)
    began = time.perf_counter()
    asyncio.run(judge(*ALGEBRA))
    print(f"\nspeed: the workers start in {time.perf_counter() - began:.1f} s, once, when algebra is first needed")
    print(f"  {len(batch)} responses of {statistics.mean(len(c) for c, _ in batch):,.0f} characters on average")
    for name in ("first time", "references and answers cached"):
        cpu = time.process_time()
        verdicts, _, seconds = asyncio.run(timed(batch))
        counts = ", ".join(f"{count} {verdict}" for verdict, count in collections.Counter(verdicts).most_common())
        print(f"  {name:36} {seconds:6.3f} s wall {time.process_time() - cpu:6.3f} s processor   {counts}")
    for name in GRADERS:
        graded = grade(name, [(gold, completion) for completion, gold in batch])
        accepted = sum(verdict is True for verdict, _ in graded)
        print(f"  {name:36} {sum(seconds for _, seconds in graded):6.3f} s wall {'':18}   {accepted} accepted")


class Memory(threading.Thread):
    """The peak growth of this process, and the peak memory of its workers with shared memory counted once."""

    def __init__(self, workers: PoolLimits) -> None:
        super().__init__(daemon=True)
        self.pool, self.ended = pool(workers), threading.Event()
        self.before, self.most, self.most_workers, self.most_processes = self._rss(), 0, 0, 0

    def _rss(self) -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    def run(self) -> None:
        while not self.ended.wait(0.2):
            self.most = max(self.most, self._rss() - self.before)
            shares = [share for share in map(_pss, self._processes()) if share]
            self.most_workers = max(self.most_workers, sum(shares))
            self.most_processes = max(self.most_processes, len(shares))

    def _processes(self) -> list[int]:
        if self.pool.forker is None:
            return []
        pid = self.pool.forker.pid
        return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]

    def __str__(self) -> str:
        return (
            f"this process grew by {self.most / 2**20:.0f} MB, {self.most_processes} worker processes used "
            f"{self.most_workers / 2**20:.0f} MB"
        )


def _pss(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return 0


def hostile(kind: str) -> list[tuple[str, str]]:
    tower = "^{".join(["9"] * 40) + "}" * 39
    texts = {
        "mixed": [
            (tower, "2^{100}"), (r"\sum_{k=1}^{n} 9^{9^{9^{k}}}", r"\sum_{k=1}^{n} k!"),
            ("7" * 10**6, "7"), ("1/" + "3" * 10**6, r"\frac{1}{3}"),
            ("(" * 20_000 + "5" + ")" * 20_000, "5"), (r"\frac{1}{" * 120 + "2" + "}" * 120, "2"),
            ("so it is " * 120_000, "x^2"), ("{" * 10**6, "12"),
        ],
        "endless": [(rf"\sum_{{k=1}}^{{n}} {base}^{{9^{{9^{{k}}}}}}", r"\sum_{k=1}^{n} k!") for base in range(2, 10)],
    }  # fmt: skip
    return [(f"<think>Hm.</think><answer>{answer}</answer>", gold) for answer, gold in texts[kind]]


def limits(rows: list[tuple[str, str]]) -> None:
    usual = responses(rows)
    sums = [(f"<answer>{ALGEBRA[1]}+{i}</answer>", ALGEBRA[0]) for i in range(8)]
    asyncio.run(judge(*ALGEBRA))  # starts the workers
    for kind in ("mixed", "endless"):
        attacks = hostile(kind)
        clean = usual[: RESPONSES - len(sums) - len(attacks)] + sums
        pool(PoolLimits())._outcomes.clear()
        _, alone, seconds = asyncio.run(timed(clean))
        pool(PoolLimits())._outcomes.clear()  # nothing is cached
        memory = Memory(PoolLimits())
        memory.start()
        batch = list(clean)
        places = [index * (len(clean) // len(attacks)) + index for index in range(len(attacks))]
        for place, attack in zip(places, attacks, strict=True):
            batch.insert(place, attack)
        verdicts, moments, total = asyncio.run(timed(batch))
        memory.ended.set()
        others = sorted(moment for index, moment in enumerate(moments) if index not in places)
        delays = [moment - before for moment, before in zip(others, sorted(alone), strict=True)]
        print(f"\nlimits, {kind}: {len(attacks)} of {len(batch)} responses; {total:.2f} s ({seconds:.2f} s without)")
        print(f"  hostile: {', '.join(f'{verdicts[at]} {moments[at]:.2f} s' for at in places)}")
        print(f"  others:  delayed by {max(delays):.2f} s at most, {statistics.median(delays):.3f} s in the median")
        print(f"  memory:  {memory}")


def fuzz(rows: list[tuple[str, str]], count: int = 50_000) -> None:
    made = random.Random(2)
    pairs = [json.loads(line) for line in PAIRS.read_text(encoding="utf-8").splitlines()]
    golds = [answer for _, answer in rows] + [pair["gold"] for pair in pairs]
    bits = [chr(code) for code in range(32, 127)] + list("²½π−×٥é√∞\n") + [r"\frac", r"\sqrt{", r"\text{", r"\boxed{"]
    bits += ["<answer>", "</answer>", "<think>", "</think>", r"\sum_{k=1}^{n}", r"\int_0^1", "!", "^{9", r"\pm", " or "]

    def completion(gold: str) -> str:
        if made.random() < 0.3:
            return "".join(made.choices(bits, k=made.randint(0, 60)))
        text = made.choice([gold, made.choice(pairs)["answer"]])
        for _ in range(made.randint(1, 4)):
            at = made.randint(0, len(text))
            text = text[: max(0, at - made.randint(0, 2))] + made.choice(bits) + text[at:]
        return f"<think>r</think><answer>{text}</answer>"

    cases = [(completion(gold), gold) for gold in made.choices(golds, k=count)]
    began, verdicts, longest = time.perf_counter(), collections.Counter(), 0.0
    for start in range(0, count, 500):
        batch, moments, _ = asyncio.run(timed(cases[start : start + 500]))
        verdicts.update(batch)
        longest = max(longest, *moments)
    print(f"\nfuzz: {count:,} completions in {time.perf_counter() - began:.0f} s, none raised; {dict(verdicts)}")
    print(f"  the longest time of one, together with 499 others: {longest:.2f} s")


def accuracy() -> None:
    pairs = [json.loads(line) for line in PAIRS.read_text(encoding="utf-8").splitlines()]
    texts = [(pair["gold"], pair["answer"]) for pair in pairs]

    async def ours() -> list[tuple[bool, float]]:
        await judge(*ALGEBRA)
        verdicts = []
        for gold, answer in texts:
            began = time.perf_counter()
            verdicts.append((await judge(gold, answer) == "correct", time.perf_counter() - began))
        return verdicts

    results: dict[str, list] = {"this": asyncio.run(ours())}
    for name in GRADERS:
        results[name] = list(grade(name, [(gold, rf"The answer is $\boxed{{{answer}}}$.") for gold, answer in texts]))
    print(f"\naccuracy: correct decisions on {len(pairs)} labelled pairs")
    print(f"  {'category':24}{'pairs':>6}" + "".join(f"{name:>10}" for name in results))
    categories = dict.fromkeys(pair["category"] for pair in pairs)
    groups = {category: [pair["category"] == category for pair in pairs] for category in categories}
    groups |= {"all": [True] * len(pairs), "all but left undone": [not is_it for is_it in groups["left undone"]]}
    for category, members in groups.items():
        chosen = [index for index, is_member in enumerate(members) if is_member]
        right = {name: sum(graded[i][0] is pairs[i]["equal"] for i in chosen) for name, graded in results.items()}
        shares = "".join(f"{100 * count / len(chosen):9.1f}%" for count in right.values())
        print(f"  {category:24}{len(chosen):6}{shares}")
    for title, wanted, label in (
        ("wrong accepts", True, False),
        ("wrong rejects", False, True),
        ("not judged", None, None),
    ):
        counts = [
            sum(
                verdict is wanted and label in (None, pair["equal"])
                for (verdict, _), pair in zip(graded, pairs, strict=True)
            )
            for graded in results.values()
        ]
        print(f"  {title:30}" + "".join(f"{count:>10}" for count in counts))
    times = [[seconds for _, seconds in graded] for graded in results.values()]
    print(f"  {'seconds for all':30}" + "".join(f"{sum(each):>10.2f}" for each in times))
    print(f"  {'milliseconds, median':30}" + "".join(f"{1000 * statistics.median(each):>10.2f}" for each in times))


def labels() -> None:
    rows = [json.loads(line) for line in COMPLETIONS.read_text(encoding="utf-8").splitlines()]

    async def ours() -> list[bool]:
        scores = [
            await compute_score("benchmark", row["text"], row["ground_truth"], {ENDED: row["finished"]}) for row in rows
        ]
        return [score["acc"] == 1.0 for score in scores]

    results: dict[str, list] = {"this": asyncio.run(ours())}
    for name in GRADERS:
        graded = grade(name, [(row["ground_truth"], row["text"]) for row in rows])
        results[name] = [verdict is True for verdict, _ in graded]
    print(f"\nlabels: {len(rows)} completions, {sum(row['right'] for row in rows)} right")
    print(f"  {'':14}{'agree':>8}{'wrong accepts':>16}{'wrong rejects':>16}")
    for name, verdicts in results.items():
        accepts, rejects = (
            sum(verdict is wanted and row["right"] is not wanted for verdict, row in zip(verdicts, rows, strict=True))
            for wanted in (True, False)
        )
        print(f"  {name:14}{100 * (1 - (accepts + rejects) / len(rows)):7.1f}%{accepts:16}{rejects:16}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--only", nargs="+", default=["speed", "limits", "fuzz", "accuracy", "labels"])
    arguments = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: arguments.cores])
    rows = problems(arguments.data)
    print(f"{arguments.cores} core(s); load of the machine at the start {os.getloadavg()[0]:.1f}")
    for part, run in (("speed", speed), ("limits", limits), ("fuzz", fuzz)):
        if part in arguments.only:
            run(rows)
    for part, run_alone in (("accuracy", accuracy), ("labels", labels)):
        if part in arguments.only:
            run_alone()
