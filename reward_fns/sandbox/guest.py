"""What runs inside an e2b sandbox, as its root: one program, once, as nobody, and a line of JSON about how it ended.

A whole virtual machine separates the program from us, but the machine is used again, so the program is also separated
from the machine: another user without rights, its own processes, network and temporary folders, all gone at its end.
This file is uploaded as it is and imports the standard library alone.

    python3 guest.py JOB.json
"""

import base64
import json
import math
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import IO, Any

HEADROOM = 1 << 30  # address space beyond the memory limit
KEPT_STDERR = 4096
STAGED = b"staged\n"  # what is printed before the program is started: without it the stage could not be set
# The folders that anyone can write are the program's own for the length of its run, and it is the first to go when
# memory is short. The shell stays as the first process: with it everything ends.
STAGE = """
echo 1000 > /proc/self/oom_score_adj
for folder in /tmp /var/tmp /dev/shm; do
  mount -t tmpfs -o size=16m,nr_inodes=4096,mode=1777 none $folder || exit 1
done
cd /tmp && echo staged || exit 1
setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all --no-new-privs "$@"
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
    limits = [
        f"--as={job['memory'] + HEADROOM}",
        f"--cpu={math.ceil(job['cpu']) + 1}",
        "--nproc=64",
        "--nofile=64",
        f"--fsize={1 << 24}",
        "--core=0",
    ]
    began = time.monotonic()
    process = subprocess.Popen(
        ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--net", "--ipc", "--uts"]
        + ["sh", "-c", STAGE, "sh", "prlimit", *limits, "--", sys.executable, "-I", *names],
        stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={}, start_new_session=True,
    )  # fmt: skip
    deadline = began + job["wall"]
    ending, (stdout, stderr) = watch(process, job["output"] + len(STAGED), deadline)
    while ending == "exited" and not os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        if time.monotonic() > deadline:  # its outputs are closed, but it runs on
            ending = "timeout"
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = status  # collected here, and not again by subprocess
    if not stdout.startswith(STAGED):
        sys.exit("the stage could not be set: " + stderr.decode(errors="replace"))
    cpu = usage.ru_utime + usage.ru_stime
    if ending == "exited" and cpu > job["cpu"]:
        ending = "timeout"
    elif ending == "exited" and usage.ru_maxrss * 1024 > job["memory"]:
        ending = "memory"
    return {
        "ending": ending,
        "exit_code": 128 + (status & 127) if status & 127 else status >> 8,
        "stdout": base64.b64encode(stdout[len(STAGED) :]).decode(),
        "stderr": base64.b64encode(stderr).decode(),
        "cpu": cpu,
        "wall": time.monotonic() - began,
    }


def watch(process: "subprocess.Popen[bytes]", cap: int, deadline: float) -> tuple[str, tuple[bytearray, bytearray]]:
    """Read both outputs, each up to the cap, until they are closed or time is up."""
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
        for pipe, _ in poll.poll(left * 1000):
            chunk = os.read(pipe, 1 << 18)
            if not chunk:
                poll.unregister(pipe)
                still_open -= 1
            read[pipe] += chunk
            if pipe == err:
                noise += len(chunk)
                del read[err][:-KEPT_STDERR]
            if noise > cap or len(read[out]) > cap:
                return "output_limit", (read[out], read[err])
    return "exited", (read[out], read[err])


if __name__ == "__main__":
    main(sys.argv[1])
