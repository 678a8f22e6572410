"""Runs as root inside an e2b machine: starts one program as another user and prints its result as one line of JSON.

The virtual machine isolates the program from the judge. The machine is used for many programs, one after the other, so
each program is also isolated from the machine: a user without rights that differs from run to run (the kernel keeps
keys per user), its own process and network namespaces and temporary folders, which all end with it; and everything else
is read-only, also the times of device files, which any user may set. Programs may fork here, so limits are kept for all
processes of a run together: memory by a control group if one can be made, else by looking at them every 50 ms, as for
CPU time. This file is uploaded as it is and imports only the standard library.

    python3 guest.py JOB.json
"""

import base64
import json
import math
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import IO, Any

HEADROOM = 4 << 30  # address space beyond the memory limit, and the stack of every thread: as in bwrap.py and local.py
STACK = 64 << 20
KEPT_STDERR = 4096
TICK = 0.05  # seconds between checks of a running program
AROUND = 16 << 20  # memory of the shell around the program, and of the kernel for the namespaces
BATCH, PAUSE = 1 << 14, 0.005  # after reading fewer bytes than a batch, wait for so many seconds
OPTIONS = ["-I", "-X", "int_max_str_digits=0"]  # as in local.py
READY = b"ready\n"  # printed before the program starts; without it the set-up failed
USERS = range(61184, 65520)  # systemd's range for users of temporary services
# Temporary folders are private to the run, and the program is the first to be killed when memory is short. A mount that
# is hidden under another one cannot be changed; e2b.py tests that all others were. The shell stays the first process of
# the namespace: when it ends, everything ends.
SET_UP = """
echo 1000 > /proc/self/oom_score_adj
user=$1
group=$2
shift 2
if [ -n "$group" ]; then echo 0 > "$group/cgroup.procs" || exit 1; fi
for place in $(cut -d " " -f 2 /proc/self/mounts); do
  mount -o remount,bind,ro "$place" 2> /dev/null
done
for folder in /tmp /var/tmp /dev/shm; do
  mount -t tmpfs -o size=16m,nr_inodes=4096,mode=1777 none $folder || exit 1
done
cd /tmp && echo ready || exit 1
setpriv --reuid $user --regid $user --clear-groups --inh-caps=-all --no-new-privs "$@"
exit $?
"""


def main(path: str) -> None:
    with open(path, encoding="ascii") as file:
        job = json.load(file)
    folder = tempfile.mkdtemp(dir="/opt")
    try:
        os.chmod(folder, 0o755)
        names = []
        for name, content in job["files"].items():
            names.append(os.path.join(folder, name))
            with open(names[-1], "wb") as file:
                file.write(base64.b64decode(content))
        with tempfile.TemporaryFile() as stdin:
            stdin.write(base64.b64decode(job["stdin"]))
            stdin.seek(0)
            os.fchmod(stdin.fileno(), 0o444)  # a program may open /dev/stdin, and runs as another user
            print(json.dumps(run(names, stdin, job)))
    finally:
        shutil.rmtree(folder)


def run(names: list[str], stdin: IO[bytes], job: dict[str, Any]) -> dict[str, Any]:
    limits = [f"--as={job['memory'] + HEADROOM}", f"--cpu={math.ceil(job['cpu']) + 1}", f"--fsize={1 << 24}"]
    limits += ["--nproc=64", "--nofile=64", "--core=0", f"--stack={STACK}:unlimited"]
    group = make_group(job["memory"] + AROUND)
    began = time.monotonic()
    process = subprocess.Popen(
        ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--net", "--ipc", "--uts"]
        + ["sh", "-c", SET_UP, "sh", str(random.choice(USERS)), group or "", "prlimit", *limits, "--"]
        + [sys.executable, *OPTIONS, *names],
        stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={}, start_new_session=True,
    )  # fmt: skip

    for pipe in (process.stdout, process.stderr):
        assert pipe is not None
        os.fchmod(pipe.fileno(), 0o666)  # and /dev/stdout

    seen = 0.0  # CPU seconds at the last check: nobody collects what a program has used that is killed with unshare

    def exceeded() -> str:
        """The limit that the program exceeds by now, or nothing."""
        nonlocal seen
        cpu, memory = used(process.pid)
        seen = max(seen, cpu)
        if time.monotonic() > began + job["wall"] or cpu > job["cpu"]:
            return "timeout"
        return "memory" if group is None and memory > job["memory"] + AROUND else ""

    ending, (stdout, stderr) = watch(process, job["output"] + len(READY), exceeded)
    next_check = time.monotonic() + TICK
    while ending == "exited" and not os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        if time.monotonic() > next_check:  # it closed its outputs, but still runs
            ending, next_check = exceeded() or ending, time.monotonic() + TICK
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = status  # already collected: not again by subprocess
    if group is not None and end_group(group):
        ending = "memory"
    if not stdout.startswith(READY):
        sys.exit("the sandbox could not be set up: " + stderr.decode(errors="replace"))
    cpu = max(usage.ru_utime + usage.ru_stime, seen)
    if ending == "exited" and cpu > job["cpu"]:
        ending = "timeout"
    elif ending == "exited" and group is None and usage.ru_maxrss * 1024 > job["memory"]:
        ending = "memory"
    return {
        "ending": ending,
        "exit_code": 128 + (status & 127) if status & 127 else status >> 8,
        "stdout": base64.b64encode(stdout[len(READY) :]).decode(),
        "stderr": base64.b64encode(stderr).decode(),
        "cpu": cpu,
        "wall": time.monotonic() - began,
    }


def make_group(memory: int) -> "str | None":
    """The folder of a new control group with a memory limit; `None` if this machine allows none."""
    with open("/proc/self/cgroup", encoding="utf-8") as file:
        places = [line.rstrip("\n").split(":", 2)[1:] for line in file]
    for controllers, path in places:
        if "memory" in controllers.split(","):
            parent, settings = (
                f"/sys/fs/cgroup/memory{path}",
                {"limit_in_bytes": memory, "memsw.limit_in_bytes": memory},
            )
        elif not controllers:  # version 2
            parent, settings = "/sys/fs/cgroup", {"max": memory, "swap.max": 0}
        else:
            continue
        folder = f"{parent}/agon-verl-guest-{os.getpid()}"
        try:
            os.mkdir(folder)
        except OSError:
            continue
        try:
            for number, (name, value) in enumerate(settings.items()):
                if number == 0 or os.path.exists(f"{folder}/memory.{name}"):  # swap may not be counted
                    with open(f"{folder}/memory.{name}", "w", encoding="ascii") as file:
                        file.write(str(value))
            return folder
        except OSError:
            os.rmdir(folder)
    return None


def end_group(folder: str) -> bool:
    """Remove a group whose processes have been killed; true if the kernel killed one of them for its memory."""
    name = next(name for name in ("memory.oom_control", "memory.events") if os.path.exists(f"{folder}/{name}"))
    with open(f"{folder}/{name}", encoding="ascii") as file:
        kills = dict(line.split() for line in file).get("oom_kill", "0")
    for _ in range(500):
        try:
            os.rmdir(folder)
            break
        except OSError:  # the last of them is still ending
            time.sleep(0.01)
    return kills != "0"


def used(pid: int) -> "tuple[float, int]":
    """CPU seconds and bytes of a process and everything below it; of pages that several share, each has its part."""
    ticks, memory, pids = 0, 0, [pid]
    for one in pids:
        try:
            with open(f"/proc/{one}/stat", "rb") as file:
                ticks += sum(map(int, file.read().rpartition(b")")[2].split()[11:15]))  # with children that have ended
            for thread in os.listdir(f"/proc/{one}/task"):
                with open(f"/proc/{one}/task/{thread}/children", encoding="ascii") as file:
                    pids += map(int, file.read().split())
            with open(f"/proc/{one}/smaps_rollup", "rb") as file:
                memory += int(file.read().partition(b"\nPss:")[2].split(maxsplit=1)[0]) * 1024
        except (OSError, IndexError):
            continue  # it has ended
    return ticks / os.sysconf("SC_CLK_TCK"), memory


def watch(
    process: "subprocess.Popen[bytes]", cap: int, exceeded: "Callable[[], str]"
) -> "tuple[str, tuple[bytearray, bytearray]]":
    """Read both outputs, each up to `cap` bytes, until they are closed or the program has exceeded a limit.

    In batches: a pipe can be made to return one byte per read.
    """
    assert process.stdout is not None and process.stderr is not None
    out, err = process.stdout.fileno(), process.stderr.fileno()
    read, noise = {out: bytearray(), err: bytearray()}, 0
    poll = select.poll()
    for pipe in (out, err):
        poll.register(pipe, select.POLLIN)
    still_open, next_check = 2, time.monotonic() + TICK
    while still_open:
        if time.monotonic() >= next_check:
            if ending := exceeded():
                return ending, (read[out], read[err])
            next_check = time.monotonic() + TICK
        batch = 0
        for pipe, _ in poll.poll(max(0.0, next_check - time.monotonic()) * 1000):
            chunk = os.read(pipe, 1 << 18)
            batch += len(chunk)
            if not chunk:
                poll.unregister(pipe)
                still_open -= 1
            read[pipe] += chunk
            if pipe == err:
                noise += len(chunk)
                del read[err][:-KEPT_STDERR]
            if noise > cap or len(read[out]) > cap:
                return "output_limit", (read[out], read[err])
        if 0 < batch < BATCH:
            time.sleep(PAUSE)
    return "exited", (read[out], read[err])


if __name__ == "__main__":
    main(sys.argv[1])
