"""examples/slurm/agon.sbatch with real Ray: two nodes on this machine, and stand-ins for SLURM's two commands.

The job composes the run's configuration and prints it (`--cfg job`), so it needs neither a model nor GPUs.
"""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "examples" / "slurm" / "agon.sbatch"
# Runs the command here, in its own process, and notes SLURM's options and the command.
SRUN = """#!/usr/bin/env bash
options=()
while [[ $1 == --* ]]; do options+=("$1"); shift; done
echo "${options[*]} $*" >>"$CALLS"
[[ "$*" != *"$BROKEN"* ]] || { echo "no such node" >&2; exit 1; }
exec "$@"
"""
SCONTROL = """#!/usr/bin/env bash
printf '%s\\n' first second
"""


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of a job of two nodes; Ray's sockets need a short path."""
    stands_in = tmp_path / "bin"
    stands_in.mkdir()
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL)):
        (stands_in / name).write_text(text)
        (stands_in / name).chmod(0o755)
    with ExitStack() as stack:
        ports = [stack.enter_context(socket.socket()) for _ in range(2)]
        for port in ports:
            port.bind(("", 0))
        numbers = [str(port.getsockname()[1]) for port in ports]
    job = Path(tempfile.mkdtemp(prefix="slurm")).name
    path = [str(stands_in), str(Path(sys.executable).parent), os.environ["PATH"]]
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "SLURM_"))}
    yield {
        **variables,
        "PATH": os.pathsep.join(path),
        "PYTHONPATH": str(ROOT),
        "HOME": str(tmp_path),
        "CALLS": str(tmp_path / "calls"),
        "BROKEN": "nothing",
        "RAY_PORT": numbers[0],
        "DASHBOARD_PORT": numbers[1],
        "SLURM_JOB_ID": job,
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_JOB_NODELIST": "node[1-2]",
        "SLURM_GPUS_ON_NODE": "3",
        "SLURM_CPUS_PER_TASK": "4",
    }
    os.rmdir(Path(tempfile.gettempdir()) / job)


def submit(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(SCRIPT), *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
    )


def test_a_run_is_submitted_once_all_nodes_are_there(slurm: dict[str, str], tmp_path: Path) -> None:
    ended = submit(slurm, "+recipe=agon_math", "+base=qwen3_4b", "trainer.save_freq=7", "--cfg", "job")
    assert ended.returncode == 0, ended.stdout
    assert "head first" in ended.stdout and "2 nodes with 3 GPUs" in ended.stdout
    for line in ("nnodes: 2", "n_gpus_per_node: 3", "save_freq: 7", "path: Qwen/Qwen3-4B"):
        assert line in ended.stdout
    assert f"default_local_dir: {tmp_path}/runs/agon" in ended.stdout
    calls = (tmp_path / "calls").read_text().splitlines()
    assert ["ray start" in call or "job submit" in call for call in calls] == [False, True, True, True]
    address, head, worker, job = calls
    assert "--nodelist=first python -c" in address
    assert "--nodelist=first ray start --block" in head and "--head" in head
    assert (
        "--nodes=1 --ntasks=1 --cpus-per-task=4 --overlap --exclude=first ray start" in worker
        and "--address=" in worker
    )
    assert "--nodelist=first ray job submit" in job
    assert not [*tmp_path.glob(".agon-*")]  # the token is deleted with the job


def test_the_status_of_the_run_is_that_of_the_job(slurm: dict[str, str]) -> None:
    ended = submit(slurm, "+recipe=agon_math", "agon.no_such_field=1", "--cfg", "job")
    assert ended.returncode != 0 and "no_such_field" in ended.stdout


def test_a_node_that_cannot_start_ends_the_job(slurm: dict[str, str], tmp_path: Path) -> None:
    ended = submit({**slurm, "BROKEN": "--address="}, "--cfg", "job")
    assert ended.returncode == 1
    assert "no such node" in ended.stdout and "ray start has ended on a node; its reason is above" in ended.stdout
    assert "job submit" not in (tmp_path / "calls").read_text()


def test_a_node_that_does_not_come_ends_the_job(slurm: dict[str, str]) -> None:
    ended = submit({**slurm, "NODE_TIMEOUT": "0"}, "--cfg", "job")
    assert ended.returncode == 1 and "of 2 nodes after 0 s: set NODE_TIMEOUT" in ended.stdout
