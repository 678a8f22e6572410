"""Keeps this tier small: it must run where verl, vLLM, Ray and torch are not installed."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ABSENT = ("datasets", "peft", "ray", "tensordict", "torch", "transformers", "verl", "vllm")


@pytest.fixture(scope="session", autouse=True)
def nothing_large_is_imported(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    folder = Path(__file__).parent
    imported = [name for name in ABSENT if name in sys.modules]
    if imported and all(folder in item.path.parents for item in request.session.items):  # other tiers may import them
        pytest.fail(f"tests/unit has imported {', '.join(imported)}, which requirements-unit.txt does not have")
