"""A reward for timing only: correct or wrong by the text's checksum, so that most groups have variance.

With `ties=False` the format score is a number between 0 and 1 by the same checksum: only a group of identical
completions then has no variance.
"""

import zlib
from typing import Any


async def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: dict | None = None,
    ties: bool = True,
    **_: Any,
) -> dict[str, float]:
    checksum = zlib.crc32(solution_str.encode())
    right, form = float(checksum % 2), 0.0 if ties else checksum / 2**32
    return {"score": 2 * right + 0.5 * form, "acc": right, "format": form}
