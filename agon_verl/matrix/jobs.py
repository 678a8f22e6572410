"""Runs the commands of a matrix as jobs of a Ray cluster. The output folder must be on storage that all nodes share."""

import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ray.job_submission import JobStatus, JobSubmissionClient

from agon_verl.matrix.processes import Ended, Stopping

POLL_S = 5.0


class Jobs:
    def __init__(self, address: str) -> None:
        self._client = JobSubmissionClient(address)

    def __call__(self, command: Sequence[str], env: Mapping[str, str], log: Path, stopping: Stopping) -> Ended:
        entrypoint = shlex.join(["python", *command[1:]])  # the cluster's own interpreter
        job = self._client.submit_job(entrypoint=entrypoint, runtime_env={"env_vars": dict(env)})
        while not (status := self._client.get_job_status(job)).is_terminal():
            time.sleep(POLL_S)
        with log.open("a") as out:
            out.write(self._client.get_job_logs(job))
        return Ended(0 if status == JobStatus.SUCCEEDED else 1)
