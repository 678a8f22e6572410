"""How often the judge reads a program's output: by time and by size, not by the program's writes."""

import os
import subprocess
import sys
import time

import pytest

from reward_fns.sandbox import MB, Job, Program, ProgramLimits, guest, process
from reward_fns.sandbox.local import LocalSandbox

# Every write becomes a packet of its own, and a read returns one packet.
PACKETS = b"""
import fcntl, os
for output in (1, 2):
    fcntl.fcntl(output, fcntl.F_SETFL, fcntl.fcntl(output, fcntl.F_GETFL) | os.O_DIRECT)
while True:
    os.write(1, b"x")
    os.write(2, b"x")
"""
BYTES = b"import os\nfor _ in range(200_000): os.write(1, b'x')"


def most_reads(seconds: float, size: int, batch: int, pause: float) -> float:
    """Of two pipes; what is left in them at the end is 64 KB, in at most 16 packets each."""
    return 2 * (seconds / pause + 1) + size / batch + 40


@pytest.mark.usefixtures("isolated")
@pytest.mark.parametrize(("program", "ending"), [(PACKETS, "timeout"), (BYTES, "exited")])
def test_bytes_one_by_one_are_read_in_batches(program, ending, monkeypatch):
    sandbox = LocalSandbox()
    sandbox.prepare()
    reads, read = [], process._Pipes.read

    def counted(pipes, reader):
        reads.append(read(pipes, reader))
        return reads[-1]

    monkeypatch.setattr(process._Pipes, "read", counted)
    began = time.monotonic()
    result = sandbox._run(Job(Program("python", program), b"", ProgramLimits(0.5, 128 * MB, MB)))
    seconds = time.monotonic() - began
    assert result.ending == ending
    assert len(reads) <= most_reads(seconds, sum(reads), process._BATCH, process._PAUSE)
    if ending == "exited":
        assert result.stdout == b"x" * 200_000


@pytest.mark.parametrize(("program", "ending"), [(PACKETS, "timeout"), (BYTES, "exited")])
def test_in_a_machine_of_e2b_too(program, ending, monkeypatch):
    """The part of guest.py that reads, on a program of this test."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-S", "-c", program], stdout=pipe, stderr=pipe) as child:
        reads, read = [], os.read

        def counted(descriptor, size):
            reads.append(read(descriptor, size))
            return reads[-1]

        monkeypatch.setattr(os, "read", counted)
        began = time.monotonic()
        limit = began + (30 if ending == "exited" else 2)
        ended, (stdout, _) = guest.watch(child, MB, lambda: "timeout" if time.monotonic() > limit else "")
        seconds = time.monotonic() - began
        child.kill()
    assert ended == ending
    assert len(reads) <= most_reads(seconds, sum(map(len, reads)), guest.BATCH, guest.PAUSE)
    if ending == "exited":
        assert stdout == b"x" * 200_000
