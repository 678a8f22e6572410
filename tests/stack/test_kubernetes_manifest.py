"""examples/kubernetes/agon-rayjob.yaml starts a run that the config's checks accept, on the nodes that it asks for."""

import shlex
from pathlib import Path
from typing import Any

import yaml

from agon_verl.trainer.preflight import check_settings
from tests.recipes import composed

MANIFEST = Path(__file__).resolve().parents[2] / "examples" / "kubernetes" / "agon-rayjob.yaml"
JOB: dict[str, Any] = yaml.safe_load(MANIFEST.read_text(encoding="utf-8"))["spec"]
COMMAND = "python -m verl.trainer.main_ppo".split()


def test_the_entrypoint_is_a_run_on_the_nodes_of_the_cluster() -> None:
    words = shlex.split(JOB["entrypoint"])
    assert words[:3] == COMMAND
    config = composed(*words[3:])
    check_settings(config)
    cluster = JOB["rayClusterSpec"]
    (workers,) = cluster["workerGroupSpecs"]
    nodes = [cluster["headGroupSpec"]["template"], workers["template"]]
    assert config.trainer.nnodes == 1 + workers["replicas"]
    assert workers["minReplicas"] == workers["replicas"] == workers["maxReplicas"]  # verl waits for all of them
    for node in nodes:
        (container,) = node["spec"]["containers"]
        for kind in ("limits", "requests"):
            assert container["resources"][kind]["nvidia.com/gpu"] == str(config.trainer.n_gpus_per_node)
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        for path in (config.trainer.default_local_dir, config.data.train_files, config.data.val_files):
            assert path.startswith(f"{mounts['shared']}/")
