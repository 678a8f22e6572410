"""Runs the attacks and the honest programs through the judge, and says which attack succeeded.

Each of a few judges (worker.py) has a process of its own; meter.py measures from outside what the programs below it
use. An attack succeeds if it scores without solving its problem, makes the judge fail, exceeds a limit by more than a
tenth, or leaves a process or a file behind. An honest program fails if it does not score.

Time on a busy machine: a program is allowed as much longer as the machine had runnable tasks per core, which is what a
program of ordinary priority would have had to wait for. On a virtual machine the judge looks late at the CPU time while
the host runs something else on its core: so much more CPU time is allowed.
"""

import json
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from reward_fns.sandbox import MB, WALL_PER_CPU, SandboxError
from reward_fns.sandbox.attacks.between import BITS
from reward_fns.sandbox.attacks.meter import MemoryGroup, Meter, Trace, children, descendants, is_zombie
from reward_fns.sandbox.attacks.programs import PROBLEMS, Attack, Honest
from reward_fns.sandbox.attacks.worker import inherit_orphans
from reward_fns.sandbox.bwrap import INODES, OPEN_FILES, THREADS
from reward_fns.sandbox.launchers import end_launchers

WORKER = (sys.executable, "-m", "reward_fns.sandbox.attacks.worker")
TOLERANCE = 1.1
_TICK = 0.1  # seconds: the judge looks every 50 ms, and a kill takes a moment
_DISK = 16 * MB
_AROUND = 12 * MB  # memory of the processes that set a sandbox up, and of the kernel for it
_BRIEFLY = 0.15  # seconds above the memory limit until a watch that looks every 50 ms must have ended the program
_PATIENCE = 150.0  # seconds until a judge that does not answer counts as hung
_GONE_AFTER = 5.0  # seconds for what a program started to disappear
_HOGS = 8  # processes that compete for one core with a `busy` honest program
_COMPILING = (20.0, 1024)  # limits of the compiler: CPU seconds, megabytes


@dataclass(frozen=True, slots=True)
class Row:
    """One program: `holes` says in words what must not have happened. `used` are the largest values of its runs."""

    name: str
    family: str
    verdict: str
    holes: tuple[str, ...]
    expected: bool
    seconds: float
    used: dict[str, float]


@dataclass(frozen=True, slots=True)
class Outcome:
    """All rows, and how memory was measured: "control group" or "process tree"; "" if nothing was measured."""

    sandbox: str
    user: str
    memory: str
    attacks: list[Row]
    honest: list[Row]
    skipped: dict[str, str] = field(default_factory=dict)  # name: reason
    seconds: float = 0.0

    @property
    def holes(self) -> list[Row]:
        return [row for row in self.attacks + self.honest if row.holes]

    def as_json(self) -> str:
        return json.dumps({**asdict(self), "machine": " ".join(os.uname())}, indent=1)


class AttackSuite:
    """`sandbox` is the backend of the reward function; `command` starts a judge with it (worker.py).

    With `measured` the programs run below the judge, on this machine; a service's machines cannot be looked into.
    """

    def __init__(
        self,
        sandbox: str = "local",
        command: Sequence[str] = WORKER,
        *,
        measured: bool = True,
        judges: int | None = None,
    ) -> None:
        self._sandbox, self._command, self._measured = sandbox, [*command, sandbox], measured
        self._count = judges or min(8, 2 * len(os.sched_getaffinity(0)))
        self._secret = f"SECRET-{secrets.token_hex(16)}"
        self._mark = f"agon-attack-{secrets.token_hex(8)}"
        self._meter = Meter()

    def run(self, attacks: Sequence[Attack], honest: Sequence[Honest]) -> Outcome:
        began = time.monotonic()
        chosen, skipped = self._choose(attacks, honest)
        rows: dict[str, Row] = {}
        with ExitStack() as stack:
            end_launchers()  # of this process: its children are then judges and what they leave
            inherit_orphans()
            stack.callback(inherit_orphans, False)
            before = frozenset(children(os.getpid()))
            stack.callback(_orphans, before)  # collects what was killed
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="agon-attacks-")))
            os.chmod(folder, 0o755)
            self._file = folder / "tests.json"
            self._file.write_text(json.dumps({**PROBLEMS, "secret": self._secret}))
            os.chmod(self._file, 0o644)
            server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            server.setblocking(False)
            self._port = server.getsockname()[1]
            judges = [stack.enter_context(JudgeProcess(self._command, self._count, before)) for _ in range(self._count)]
            self._meter.start()
            stack.callback(self._meter.stop)
            together = [one for one in chosen if not _alone(one)]
            together.sort(key=_duration, reverse=True)
            queue = deque(together)
            with ThreadPoolExecutor(self._count) as threads:
                for done in [threads.submit(self._work, judge, queue, rows) for judge in judges]:
                    done.result()
            for one in filter(_alone, chosen):
                self._one(one, judges, rows)
            grouped = any(judge.group for judge in judges)
            left = [
                f"left running: {_command(pid)}"
                for pid in set(children(os.getpid())) - before - {j.pid for j in judges}
            ]
            left += [f"left on disk: {path}" for path in _marked(self._mark)]
            with suppress(BlockingIOError):
                server.accept()
                left.append("a port of the host was reached")
        ordered = [rows[one.name] for one in chosen]
        if left:
            ordered.insert(0, Row("any of them", "traces", "", tuple(left), False, 0.0, {}))
        memory = "" if not self._measured else "control group" if grouped else "process tree"
        split = sum(isinstance(one, Attack) for one in chosen) + bool(left)
        user = "root" if os.geteuid() == 0 else "an ordinary user"
        return Outcome(self._sandbox, user, memory, ordered[:split], ordered[split:], skipped, time.monotonic() - began)

    def _choose(
        self, attacks: Sequence[Attack], honest: Sequence[Honest]
    ) -> tuple[list[Attack | Honest], dict[str, str]]:
        """Attacks first; what cannot be tried in this sandbox is named with the reason."""
        chosen: list[Attack | Honest] = []
        skipped: dict[str, str] = {}
        compiler = self._sandbox == "local" and any(
            os.access(os.path.join(path, "g++"), os.X_OK) for path in os.get_exec_path()
        )
        everything: list[Attack | Honest] = [*attacks, *honest]
        for one in everything:
            if one.language.lower() in ("cpp", "c++") and not compiler:
                skipped[one.name] = "no C++ here"
            elif self._sandbox != "local" and isinstance(one, Attack) and (one.local or "@FILE@" in one.source):
                skipped[one.name] = (
                    "only the local sandbox forbids this: a machine of e2b has files and a kernel of its own"
                )
            elif self._sandbox != "local" and one.busy:
                skipped[one.name] = "an e2b machine has cores of its own"
            elif self._sandbox != "local" and isinstance(one, Attack) and one.kill_judge:
                skipped[one.name] = "an e2b machine outlives its judge, until its lifetime is over"
            else:
                chosen.append(one)
        return chosen, skipped

    def _work(self, judge: "JudgeProcess", queue: "deque[Attack | Honest]", rows: dict[str, Row]) -> None:
        while True:
            try:
                one = queue.popleft()
            except IndexError:
                return
            self._one(one, [judge], rows)

    def _one(self, one: Attack | Honest, judges: "list[JudgeProcess]", rows: dict[str, Row]) -> None:
        judge = judges[0]
        truth = {**self._problem(one.problem), "time_limit": one.cpu, "memory_limit": one.memory}
        meeting = time.monotonic() + 1.0
        completion = self._completion(one.source, one, judge.pid, meeting)
        allowed = one.memory * MB * TOLERANCE + _DISK + _AROUND
        trace = self._meter.begin(judge.pid, int(allowed), judge.group)
        began = time.monotonic()
        with _busy_core(judge.pid, one):
            if isinstance(one, Attack) and one.partner is not None:
                answer = self._side_by_side(one, judges, truth, completion, meeting)
            elif isinstance(one, Attack) and one.kill_judge:
                answer = self._kill(judge, trace, truth, completion)
            else:
                answer = judge.ask(completion, truth)
        seconds = time.monotonic() - began
        self._meter.end(trace)
        left = judge.left(zombies=self._sandbox == "local")  # an e2b machine's first process collects them
        judge.revive()
        rows[one.name] = self._row(one, answer, trace, left, seconds)

    def _problem(self, name: str) -> dict[str, Any]:
        if name == "secret":
            return {"inputs": ["1\n"], "outputs": [self._secret + "\n"]}
        if name == "function":
            number = secrets.randbelow(10**12) / 1e6
            tests = [f"f(1) == {self._secret!r}", f"f(2) == [{self._secret!r}, 3]", f"abs(f(3) - {number!r}) < 1e-6"]
            return {"fn_name": "f", "asserts": [f"assert {test}" for test in (*tests, "f(4) is True")]}
        if name == "word":
            self._word = secrets.randbelow((1 << BITS) - 2) + 1  # not what silence looks like
            return {"inputs": ["1\n"], "outputs": [f"{self._word}\n"]}
        return PROBLEMS[name]

    def _completion(self, source: str, one: Attack | Honest, pid: int, meeting: float) -> str:
        values = {"FILE": self._file, "PID": pid, "PORT": self._port, "MARK": self._mark, "START": meeting}
        for name, value in values.items():
            source = source.replace(f"@{name}@", str(value))
        indent = " " * (one.indent if isinstance(one, Honest) else 0)
        block = "".join(indent + line for line in f"```{one.language}\n{source}\n```\n".splitlines(keepends=True))
        return f"<think>r</think><answer>\n{'1. So:' if indent else ''}\n{block}</answer>"

    def _side_by_side(
        self, one: Attack, judges: "list[JudgeProcess]", truth: dict[str, Any], completion: str, meeting: float
    ) -> dict[str, Any]:
        """The attack in the first judge, its partner in the second, which alone has the word."""
        assert one.partner is not None
        word = {"inputs": [f"{self._word}\n"], "outputs": ["x\n"], "time_limit": one.cpu, "memory_limit": one.memory}
        partner = self._completion(one.partner, one, judges[1].pid, meeting)
        thread = threading.Thread(target=judges[1].ask, args=(partner, word))
        thread.start()
        answer = judges[0].ask(completion, truth)
        thread.join()
        return answer

    def _kill(self, judge: "JudgeProcess", trace: Trace, truth: dict[str, Any], completion: str) -> dict[str, Any]:
        judge.send(completion, truth)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            programs = trace.programs()
            if programs and time.monotonic() - programs[0].began > 0.7:
                break
            time.sleep(0.02)
        judge.kill()
        return {"verdict": "killed", "accuracy": 0.0}

    def _row(self, one: Attack | Honest, answer: dict[str, Any], trace: Trace, left: list[str], seconds: float) -> Row:
        verdict = str(answer.get("verdict", "error"))
        holes = [f"the judge failed: {answer['error']}"] if "error" in answer else []
        used: dict[str, float] = {}
        if isinstance(one, Honest):
            family, expected = "honest", verdict == "correct"
            if not expected and not holes:
                holes.append(f"an honest program got {verdict}")
        else:
            family, expected = one.family, verdict in one.verdict.split("|")
            if answer.get("accuracy") and not one.solves:
                holes.append("scored without solving the problem")
            if self._measured and not one.kill_judge:
                over, used = _exceeded(one, trace, answer)
                holes += over
        holes += [f"left running: {command}" for command in left]
        return Row(one.name, family, verdict, tuple(holes), expected, round(seconds, 2), used)


class JudgeProcess:
    """A judge that is asked one completion at a time, and replaced if it was killed or does not answer.

    `before`: children that this process had before, which are no concern of the suite.
    """

    def __init__(self, command: Sequence[str], slots: int, before: frozenset[int]) -> None:
        self._command, self._slots, self._before = command, slots, before
        self.group: MemoryGroup | None = None

    def __enter__(self) -> "JudgeProcess":
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()  # type: ignore[union-attr]
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(20)
        self.kill()
        if self.group is not None:
            self.group.remove()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _start(self) -> None:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
        )
        self.group = self.group or MemoryGroup.make(f"agon-attacks-{os.getpid()}-{self.pid}")
        if self.group is not None:
            self.group.add(self.pid)
        self._errors = _Tail(self._process)
        warm_up = self.ask("```python\nprint(3)\n```", PROBLEMS["one_sum"])  # imports, and the sandbox's own check
        if warm_up.get("verdict") != "correct":
            raise SandboxError(str(warm_up.get("error", warm_up)))

    def send(self, completion: str, truth: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            job = {"completion": completion, "truth": truth, "slots": self._slots}
            self._process.stdin.write(json.dumps(job) + "\n")
            self._process.stdin.flush()

    def ask(self, completion: str, truth: dict[str, Any]) -> dict[str, Any]:
        self.send(completion, truth)
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], _PATIENCE)
        line = self._process.stdout.readline() if ready else ""
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        self.kill()
        return {"error": f"the judge ended: {self._errors.text()}" if ready else f"no answer in {_PATIENCE:.0f} s"}

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def left(self, zombies: bool) -> list[str]:
        """The commands of what it has started and not ended, after a moment's patience."""
        dead = self._process.poll() is not None
        deadline = time.monotonic() + _GONE_AFTER
        while True:
            if dead:
                pids = _orphans(self._before)
            else:
                pids = [pid for pid in descendants(self.pid)[1:] if zombies or not is_zombie(pid)]
                pids = [pid for pid in pids if _LAUNCHER not in _command(pid)]
            if not pids or time.monotonic() > deadline:
                break
            time.sleep(0.01)
        commands = [_command(pid) for pid in pids]
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return commands

    def revive(self) -> None:
        if self._process.poll() is not None:
            self._start()


_LAUNCHER = "sandbox/launcher.py"  # a part of the judge, which waits for the next program


class _Tail(threading.Thread):
    """Reads a judge's stderr, so that it never blocks, and keeps the end."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        super().__init__(daemon=True)
        self._stream, self._lines = process.stderr, deque[str](maxlen=5)
        self.start()

    def run(self) -> None:
        assert self._stream is not None
        for line in self._stream:
            self._lines.append(line.strip())

    def text(self) -> str:
        return " ".join(self._lines)


def _orphans(before: frozenset[int]) -> list[int]:
    """New children of this process that are no judges: what a killed judge has left; zombies are collected."""
    pids = []
    for pid in set(children(os.getpid())) - before:
        command = _command(pid)
        if "reward_fns.sandbox.attacks" in command or _HOG in command:
            continue
        with suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG)[0] == 0 and command:
                pids.append(pid)
    return pids


def _command(pid: int) -> str:
    try:
        text = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""
    return text or f"process {pid}"


def _exceeded(one: Attack, trace: Trace, answer: dict[str, Any]) -> tuple[list[str], dict[str, float]]:
    """The limits that an attack's runs exceeded by more than a tenth, and the largest values measured."""
    runs = trace.programs()
    if one.language in ("cpp", "c++"):
        # A judge tries the compiler before its first program, which is one more run.
        compiled = len(runs) > 1 and answer.get("verdict") != "compile_error"
        runs, cpu, memory = runs[-1:], *((one.cpu, one.memory) if compiled else _COMPILING)
        forks = not compiled
    else:
        cpu, memory, forks = one.cpu, one.memory, False
    used: dict[str, float] = {"judge_cpu": round(trace.judge_cpu, 2), "judge_memory": trace.judge_memory // MB}
    holes = []
    if trace.judge_cpu > sum(run.cpu for run in runs) / 2 + 0.4:
        holes.append(f"the judge worked for {trace.judge_cpu:.1f} s, the program for {sum(r.cpu for r in runs):.1f} s")
    for run in runs:
        wall = WALL_PER_CPU * cpu + 1.0
        limits = {  # name: (used, limit, what is too small to be told from noise)
            "cpu": (run.cpu, cpu, _TICK + trace.stolen),  # a judge without its core looks late
            "wall": (run.wall, wall * max(1.0, run.load), 3 * _TICK),
            "memory": (run.memory / MB, memory, (_DISK + _AROUND) / MB),
            "tasks": (run.tasks, THREADS, 2 if run.processes == 1 else 16),  # several change while they are counted
            "open_files": (run.open_files, OPEN_FILES, 0),
            "disk": (run.disk / MB, _DISK / MB, 0),
            "inodes": (run.inodes, INODES, 0),
            "file_size": (run.file_size / MB, _DISK / MB, 0),
        }
        if one.problem == "long":
            output = 1 + 4 * sum(map(len, PROBLEMS["long"]["outputs"])) / MB
            limits["output"] = (run.written / MB, 2 * output if "both" in one.name else output, 0.5)
        for name, (value, limit, noise) in limits.items():
            used[name] = max(used.get(name, 0.0), round(value, 2))
            if forks and name in ("cpu", "memory", "disk", "file_size"):
                continue
            if value > TOLERANCE * limit + noise:
                if name == "memory" and run.over_memory < _BRIEFLY * max(1.0, run.load):
                    used["brief_memory"] = max(used.get("brief_memory", 0.0), round(value, 2))
                else:
                    holes.append(f"{name}: {value:.4g} used, {limit:.4g} allowed")
    return holes, used


def _marked(mark: str) -> list[str]:
    """Files of the host that bear the name which attacks give to theirs."""
    names = ("/ /tmp /var/tmp /dev /dev/shm /box /run /etc /usr/lib /usr/local/lib /opt /root /home").split()
    found = []
    for folder in {*names, os.getcwd(), os.path.expanduser("~"), os.path.dirname(os.__file__)}:
        with suppress(OSError):
            found += [os.path.join(folder, name) for name in os.listdir(folder) if name.startswith(mark)]
    return found


_HOG = "while True: pass  # occupies a core for the attack suite"


@contextmanager
def _busy_core(judge: int, one: Attack | Honest) -> Iterator[None]:
    """For a `busy` program: its judge on one core, where other processes compete."""
    if not one.busy:
        yield
        return
    cores = os.sched_getaffinity(0)
    core = {min(cores)}
    _pin(judge, core)
    count = _HOGS if isinstance(one, Honest) else 1
    hogs = [subprocess.Popen([sys.executable, "-S", "-c", _HOG], start_new_session=True) for _ in range(count)]
    try:
        for hog in hogs:
            os.sched_setaffinity(hog.pid, core)
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
        _pin(judge, cores)


def _pin(judge: int, cores: set[int]) -> None:
    """All threads of a judge and of its launchers, which pass their cores on to programs."""
    for pid in descendants(judge):
        with suppress(FileNotFoundError, ProcessLookupError):
            for thread in os.listdir(f"/proc/{pid}/task"):
                with suppress(ProcessLookupError):
                    os.sched_setaffinity(int(thread), cores)


def _alone(one: Attack | Honest) -> bool:
    return one.busy or (isinstance(one, Attack) and (one.alone or one.kill_judge))


def _duration(one: Attack | Honest) -> float:
    """Longest first, so that no judge is idle at the end."""
    return WALL_PER_CPU * one.cpu if isinstance(one, Attack) and "timeout" in one.verdict else 0.0


_MEASURED = {
    "control group": "a control group",
    "process tree": "the processes (what only pipes and sockets hold is not seen: run as root to see it)",
    "": "nothing, as the machines cannot be looked into",
}


def report(outcome: Outcome) -> str:
    """The result as a table of families, the largest use of every limit, and every hole in words."""
    families = list(dict.fromkeys(row.family for row in outcome.attacks))
    lines = [f"sandbox: {outcome.sandbox}, as {outcome.user}, on {os.uname().machine}, Linux {os.uname().release}"]
    lines += [f"memory measured by: {_MEASURED[outcome.memory]}", ""]
    lines += [f"{'attacks':<24}{'tried':>7}{'repelled':>10}{'holes':>7}"]
    total: Counter[str] = Counter()
    for family in families:
        rows = [row for row in outcome.attacks if row.family == family]
        bad = sum(bool(row.holes) for row in rows)
        total.update(tried=len(rows), holes=bad)
        lines.append(f"{family:<24}{len(rows):>7}{len(rows) - bad:>10}{bad:>7}")
    lines.append(f"{'all':<24}{total['tried']:>7}{total['tried'] - total['holes']:>10}{total['holes']:>7}")
    failed = sum(bool(row.holes) for row in outcome.honest)
    lines += ["", f"honest programs: {len(outcome.honest)}, of which {len(outcome.honest) - failed} score"]
    if outcome.memory:
        lines += ["", *_largest(outcome.attacks)]
    if unusual := [row for row in outcome.attacks if not row.expected and not row.holes]:
        lines += ["", "repelled, but not with the usual verdict:"]
        lines += [f"  {row.family}: {row.name}: {row.verdict}" for row in unusual]
    if outcome.skipped:
        lines += ["", "not tried:"]
        lines += [f"  {count:>3}  {reason}" for reason, count in Counter(outcome.skipped.values()).items()]
    if outcome.holes:
        lines += ["", "HOLES:"]
        lines += [f"  {row.family}: {row.name} ({row.verdict}): {'; '.join(row.holes)}" for row in outcome.holes]
    lines += [
        "",
        f"{outcome.seconds:.0f} s; " + ("no attack succeeded" if not outcome.holes else f"{len(outcome.holes)} holes"),
    ]
    return "\n".join(lines)


def _largest(rows: Sequence[Row]) -> list[str]:
    units = {"cpu": "s", "wall": "s", "memory": "MB", "disk": "MB", "file_size": "MB", "output": "MB", "judge_cpu": "s",
             "judge_memory": "MB", "brief_memory": "MB"}  # fmt: skip
    lines = ["largest use measured"]
    for name in dict.fromkeys(key for row in rows for key in row.used):
        row = max((row for row in rows if name in row.used), key=lambda row: row.used[name])
        lines.append(f"  {name:<14}{row.used[name]:>9.4g} {units.get(name, ''):<4}{row.name}")
    return lines
