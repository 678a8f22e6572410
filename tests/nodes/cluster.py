"""Two Ray nodes and a client on one machine: each in a network namespace with its own address, joined by a bridge.

Every node also has its own `/dev/shm` and its own folder for Ray's files and sockets, so two nodes share nothing but
the file system. The client has neither Ray processes nor a share in the cluster: it submits jobs over HTTP.
"""

import json
import os
import secrets
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.real.runs import ROOT, TIME_LIMIT, Run, kill_marked, marked, python_path

HEAD, WORKER, CLIENT = "head", "worker", "client"
ADDRESSES = {HEAD: "10.77.0.1", WORKER: "10.77.0.2", CLIENT: "10.77.0.3"}
DASHBOARD = f"http://{ADDRESSES[HEAD]}:8265"
CPUS = 12  # logical, per node: verl asks for more actors of one CPU each than a small machine has cores
START = 180.0  # seconds for a node to join
# `agon_cpu` describes the cluster that Ray starts for a single command; here it runs already.
JOIN = [
    "ray_kwargs.ray_init.num_cpus=null",
    "~ray_kwargs.ray_init.num_gpus",
    "~ray_kwargs.ray_init.include_dashboard",
    "~ray_kwargs.ray_init._system_config",
]


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=30)


def missing() -> str | None:
    """Why there can be no namespaces here, if so."""
    name = f"agon{os.getpid()}t"
    try:
        ip("netns", "add", name)
        ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
    except (OSError, subprocess.SubprocessError) as error:
        return f"no network namespaces: {getattr(error, 'stderr', None) or error}"
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
    return None


@dataclass
class Cluster:
    prefix: str  # of the names of namespaces and interfaces
    folder: Path  # for Ray's files
    environment: Mapping[str, str]  # of all its processes
    python: str = sys.executable
    nodes: dict[str, subprocess.Popen] = field(default_factory=dict)

    def inside(self, place: str, command: Sequence[str], cwd: str | Path = "/") -> subprocess.Popen:
        """Start a command in a namespace, with `/dev/shm` of its own. Its output goes to `<place>.log`."""
        script = f"mount -t tmpfs shm /dev/shm && exec {shlex.join(command)}"
        with (self.folder / f"{place}.log").open("a") as log:
            return subprocess.Popen(
                ["ip", "netns", "exec", f"{self.prefix}-{place}", "sh", "-c", script],
                cwd=cwd,
                env={**self.environment, self._mark_name: place},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def start(self, place: str) -> None:
        """`ray start`, as an administrator does it on each machine, and wait until the node has joined."""
        role = ["--head", "--port=6379", f"--dashboard-host={ADDRESSES[HEAD]}"]
        if place != HEAD:
            role = [f"--address={ADDRESSES[HEAD]}:6379"]
        command = [
            *(self.python, "-m", "ray.scripts.scripts", "start", "--block", *role),
            f"--node-ip-address={ADDRESSES[place]}",
            f"--temp-dir={self.folder / place}",
            *(f"--num-cpus={CPUS}", "--num-gpus=1", "--object-store-memory=500000000", "--disable-usage-stats"),
        ]
        self.nodes[place] = self.inside(place, command)
        self._wait_for(sum(node.poll() is None for node in self.nodes.values()))

    def _wait_for(self, nodes: int) -> None:
        end = time.monotonic() + START
        command = ["list", "nodes", f"--address={DASHBOARD}", "--filter=state=ALIVE", "--format=json"]
        while time.monotonic() < end:
            listed = self.client(*command, timeout=60)
            if listed.stdout.count('"node_id"') == nodes:  # a sentence in place of JSON if there is none yet
                return
            time.sleep(2)
        raise TimeoutError(f"{nodes} nodes did not come up in {START:.0f} seconds, see {self.folder}")

    def client(self, *command: str, timeout: float) -> subprocess.CompletedProcess:
        """One of Ray's commands at the third place."""
        return subprocess.run(
            [*self._client_ray, *command],
            cwd=ROOT,
            env={**self.environment, self._mark_name: CLIENT},
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def submit(
        self,
        folder: Path,
        *overrides: str,
        env: Mapping[str, str] | None = None,
        meanwhile: Callable[[], None] | None = None,
        **runtime: object,
    ) -> Run:
        """`ray job submit` of a training run, from the client; `runtime` is added to its runtime environment.

        `meanwhile` runs in a thread.
        """
        folder.mkdir(parents=True, exist_ok=True)
        variables = {"VERL_FILE_LOGGER_PATH": str(folder / "metrics.jsonl"), **(env or {})}
        job = f"{folder.name}-{time.time_ns()}"
        submit = ["job", "submit", f"--address={DASHBOARD}", f"--submission-id={job}"]
        runtime_env = json.dumps({"env_vars": variables, **runtime})
        command = ["python", "-m", "verl.trainer.main_ppo", "+recipe=agon_cpu", *JOIN, *overrides]
        with (folder / "log").open("w") as log:
            process = subprocess.Popen(
                [*self._client_ray, *submit, "--runtime-env-json", runtime_env, "--", *command],
                cwd=ROOT,
                env={**self.environment, self._mark_name: CLIENT},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            if meanwhile is not None:
                threading.Thread(target=meanwhile, daemon=True).start()
            try:
                returncode = process.wait(timeout=TIME_LIMIT)
            finally:
                process.kill()
        return Run(folder, returncode, (folder / "log").read_text())

    @property
    def _client_ray(self) -> list[str]:
        return ["ip", "netns", "exec", f"{self.prefix}-{CLIENT}", self.python, "-m", "ray.scripts.scripts"]

    @property
    def _mark_name(self) -> str:
        return f"NODE_OF_{self.prefix}"

    def mark(self, place: str) -> str:
        """The environment variable that marks the processes of a node."""
        return f"{self._mark_name}={place}"

    def kill_raylet(self, place: str) -> None:
        """As a machine that loses its daemon: Ray's workers there see it and end."""
        for entry in marked(self.mark(place)):
            if (entry / "comm").read_text().strip() == "raylet":
                os.kill(int(entry.name), signal.SIGKILL)

    def stop(self, place: str) -> None:
        self.nodes.pop(place).terminate()
        time.sleep(2)
        kill_marked(self.mark(place))

    def link(self, place: str, state: str) -> None:
        """`down` is a cable pulled out of the switch: packets are dropped, and no connection is closed."""
        ip("link", "set", f"{self.prefix}{place[0]}", state)


@contextmanager
def cluster(environment: Mapping[str, str] | None = None, python: str = sys.executable) -> Iterator[Cluster]:
    """Namespaces and a bridge; nodes are started by `start`. Nothing of it is left afterwards."""
    prefix = f"agon{secrets.token_hex(3)}"  # interfaces have names of at most 15 characters
    # Ray's sockets live below this path, and a socket's path may have no more than 107 characters.
    with tempfile.TemporaryDirectory(prefix="agon", dir="/tmp", ignore_cleanup_errors=True) as folder:
        own = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        ray = {"RAY_TMPDIR": folder, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        own = {**own, **ray, "PYTHONPATH": python_path(), "GLOO_SOCKET_IFNAME": "eth0"}
        own = {name: value for name, value in {**own, **(environment or {})}.items() if value}
        own["PATH"] = f"{Path(python).parent}{os.pathsep}{own['PATH']}"
        made = Cluster(prefix, Path(folder), own, python)
        try:
            _connect(prefix)
            yield made
        finally:
            for place in ADDRESSES:
                kill_marked(made.mark(place))
            # Cables too: a namespace may outlive its name, and would keep them.
            cables = [["link", "del", f"{prefix}{place[0]}"] for place in ADDRESSES]
            names = [["netns", "del", f"{prefix}-{place}"] for place in ADDRESSES]
            for command in (["link", "del", f"{prefix}b"], *cables, *names):
                subprocess.run(["ip", *command], check=False, capture_output=True)


def _connect(prefix: str) -> None:
    bridge = f"{prefix}b"
    ip("link", "add", bridge, "type", "bridge")
    ip("link", "set", bridge, "up")
    for place, address in ADDRESSES.items():
        space, cable = f"{prefix}-{place}", f"{prefix}{place[0]}"
        ip("netns", "add", space)
        ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", space)
        ip("link", "set", cable, "master", bridge, "up")
        ip("-n", space, "addr", "add", f"{address}/24", "dev", "eth0")
        ip("-n", space, "link", "set", "eth0", "up")
        ip("-n", space, "link", "set", "lo", "up")
        ip("-n", space, "route", "add", "default", "dev", "eth0")  # Ray finds its address by a route to the outside
