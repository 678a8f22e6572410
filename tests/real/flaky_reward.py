"""A coin as the reward, and on demand a judge that fails: the file named by FLAKY_REWARD says `raise` or `hang`."""

import asyncio
import os
import random
from pathlib import Path

ONCE: list[bool] = []


async def compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs) -> dict:
    mode = Path(os.environ["FLAKY_REWARD"]).read_text()
    if mode == "hang":
        await asyncio.sleep(3600)
    if mode == "raise once" and not ONCE:
        ONCE.append(True)
        raise ConnectionError("the judge is out")
    acc = float(random.random() < 0.5)
    return {"score": 2 * acc, "acc": acc, "format": 0.0, "pred": str(acc), "verdict": "coin"}
