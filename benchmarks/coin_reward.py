"""A reward for timing alone: right or wrong by the text's checksum, so that almost every group has variance."""

import zlib
from typing import Any


async def compute_score(
    data_source: str, solution_str: str, ground_truth: Any, extra_info: dict | None = None, **_: Any
) -> dict[str, float]:
    right = float(zlib.crc32(solution_str.encode()) % 2)
    return {"score": 2 * right, "acc": right, "format": 0.0}
