"""Threads of vLLM's CPU build: all cores but one, shared by the replicas, unless somebody chose."""

import os

import pytest

from agon_verl.cpu.platform import vllm_environment


@pytest.mark.parametrize(
    ("given", "replicas", "threads"),
    [
        (None, 1, "15"),
        (None, 2, "7"),
        (None, 100, "1"),
        ("1", 1, "15"),  # what Ray sets for an actor
        ("4", 1, "4"),
        ("4", 2, "4"),
    ],
)
def test_threads(given: str | None, replicas: int, threads: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if given is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", given)
    assert vllm_environment(replicas)["OMP_NUM_THREADS"] == threads
