"""Judges every program of call_attacks.py and call_styles.py and prints the verdicts as JSON.

    python -m tests.sandbox.call_battle [local | e2b]

A program of its own, so that it can also run as another user.
"""

import asyncio
import json
import secrets
import sys
from typing import Any

from reward_fns.unit_tests import compute_score
from tests.sandbox.call_attacks import CALL_ATTACKS
from tests.sandbox.call_styles import CALL_STYLES


def secret_problem() -> dict[str, Any]:
    """Its expected values cannot be guessed; as asserts and, for what the program sees, the same as JSON."""
    token = f"SECRET-{secrets.token_hex(16)}"
    number = secrets.randbelow(10**12) / 1e6
    tests = [f"f(1) == {token!r}", f"f(2) == [{token!r}, 3]", f"abs(f(3) - {number!r}) < 1e-6", "f(4) is True"]
    return {"fn_name": "f", "asserts": [f"assert {test}" for test in tests], "time_limit": 0.5, "memory_limit": 96}


async def verdict(source: str, truth: dict[str, Any], backend: str) -> str:
    completion = f"<think>r</think><answer>\n```python\n{source}\n```\n</answer>"
    return str((await compute_score("test", completion, truth, backend=backend, slots=4))["verdict"])


async def fight(backend: str) -> dict[str, dict[str, str]]:
    """The verdicts of the attacks and of the correct programs, which run side by side.

    e2b counts time without a core, so programs that nearly need their limit are not sent there.
    """
    problem, calm = secret_problem(), {"time_limit": 10, "memory_limit": 256}
    jobs = [(attack.source, problem) for attack in CALL_ATTACKS]
    styles = [style for style in CALL_STYLES if backend == "local" or "time_limit" not in style.truth]
    jobs += [(style.source, calm | style.truth) for style in styles]
    verdicts = await asyncio.gather(*(verdict(source, truth, backend) for source, truth in jobs))
    names = [*(attack.name for attack in CALL_ATTACKS), *(style.name for style in styles)]
    pairs = list(zip(names, verdicts, strict=True))
    return {"attacks": dict(pairs[: len(CALL_ATTACKS)]), "styles": dict(pairs[len(CALL_ATTACKS) :])}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(fight(*sys.argv[1:] or ["local"]))))
