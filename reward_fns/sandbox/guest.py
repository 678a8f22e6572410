"""Runs as root inside an e2b machine: starts one program as another user and prints its result as one line of JSON.

The virtual machine isolates the program from the judge. The machine is used for many programs, one after the other, so
each program is also isolated from the machine: a user without rights that differs from run to run (the kernel keeps
keys per user), its own process and network namespaces and temporary folders, which all end with it; and everything else
is read-only, also the times of device files, which any user may set. This file is uploaded as it is and imports only
the standard library.

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
from typing import IO, Any

HEADROOM = 4 << 30  # address space beyond the memory limit, and the stack of every thread: as in bwrap.py and local.py
STACK = 64 << 20
KEPT_STDERR = 4096
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
shift
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
            print(json.dumps(run(names, stdin, job)))
    finally:
        shutil.rmtree(folder)


def run(names: list[str], stdin: IO[bytes], job: dict[str, Any]) -> dict[str, Any]:
    limits = [f"--as={job['memory'] + HEADROOM}", f"--cpu={math.ceil(job['cpu']) + 1}", f"--fsize={1 << 24}"]
    limits += ["--nproc=64", "--nofile=64", "--core=0", f"--stack={STACK}:unlimited"]
    began = time.monotonic()
    process = subprocess.Popen(
        ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--net", "--ipc", "--uts"]
        + ["sh", "-c", SET_UP, "sh", str(random.choice(USERS)), "prlimit", *limits, "--"]
        + [sys.executable, *OPTIONS, *names],
        stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={}, start_new_session=True,
    )  # fmt: skip
    deadline = began + job["wall"]
    ending, (stdout, stderr) = watch(process, job["output"] + len(READY), deadline)
    while ending == "exited" and not os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        if time.monotonic() > deadline:  # it closed its outputs, but still runs
            ending = "timeout"
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = status  # already collected: not again by subprocess
    if not stdout.startswith(READY):
        sys.exit("the sandbox could not be set up: " + stderr.decode(errors="replace"))
    cpu = usage.ru_utime + usage.ru_stime
    if ending == "exited" and cpu > job["cpu"]:
        ending = "timeout"
    elif ending == "exited" and usage.ru_maxrss * 1024 > job["memory"]:
        ending = "memory"
    return {
        "ending": ending,
        "exit_code": 128 + (status & 127) if status & 127 else status >> 8,
        "stdout": base64.b64encode(stdout[len(READY) :]).decode(),
        "stderr": base64.b64encode(stderr).decode(),
        "cpu": cpu,
        "wall": time.monotonic() - began,
    }


def watch(process: "subprocess.Popen[bytes]", cap: int, deadline: float) -> tuple[str, tuple[bytearray, bytearray]]:
    """Read both outputs, each up to `cap` bytes, until they are closed or the deadline has passed.

    In batches: a pipe can be made to return one byte per read.
    """
    assert process.stdout is not None and process.stderr is not None
    out, err = process.stdout.fileno(), process.stderr.fileno()
    read, noise = {out: bytearray(), err: bytearray()}, 0
    poll = select.poll()
    for pipe in (out, err):
        poll.register(pipe, select.POLLIN)
    still_open = 2
    while still_open:
        left = deadline - time.monotonic()
        if left <= 0:
            return "timeout", (read[out], read[err])
        batch = 0
        for pipe, _ in poll.poll(left * 1000):
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
