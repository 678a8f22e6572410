"""Keeps this tier small: it must run where verl, vLLM, Ray and torch are not installed."""

import sys
from pathlib import Path

import pytest

ABSENT = ("datasets", "peft", "ray", "tensordict", "torch", "transformers", "verl", "vllm")


def pytest_sessionfinish(session: pytest.Session) -> None:
    folder = Path(__file__).parent
    imported = [name for name in ABSENT if name in sys.modules]
    if imported and all(folder in item.path.parents for item in session.items):  # other tiers may import them
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        print(f"\ntests/unit has imported {', '.join(imported)}, which requirements-unit.txt does not have")
