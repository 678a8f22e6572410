"""How a stream's rows are packed into mini-batches and micro-batches. Pure arithmetic on row counts."""

import math
from collections.abc import Sequence


def even_parts(rows: int, most: int) -> tuple[int, int]:
    """The fewest parts of one size, at most `most`, that hold all rows: their number and that size."""
    parts = math.ceil(rows / most)
    return parts, math.ceil(rows / parts)


def interleave_minibatches(rows: int, ranks: int, parts: int) -> list[int]:
    """Row order that deals each rank's share round-robin into `parts` mini-batches.

    verl appends the padding rows at the end of a batch. Dealt out, they leave no mini-batch without a row to learn
    from, on which Adam would take a step all the same.
    """
    share = rows // ranks
    return [
        row
        for rank in range(ranks)
        for part in range(parts)
        for row in range(rank * share, (rank + 1) * share)[part::parts]
    ]


def required_multiple(
    rows: int, ranks: int, mini_batches: int, *, dynamic: bool, micro_batches: tuple[int, int], single_pass: bool
) -> int:
    """The number that a stream's row count is padded to a multiple of.

    `micro_batches`: the fixed sizes of the update and of the log-prob passes; unused if `dynamic`. Micro-batches of a
    fixed size must be full in every pass, unless the update is the only pass over the rows (`single_pass`): then the
    engine makes them a little smaller, so that live rows need hardly any padding.
    """
    if dynamic:
        return ranks * mini_batches
    if single_pass:
        return ranks * math.prod(even_parts(math.ceil(rows / ranks), micro_batches[0]))
    return ranks * mini_batches * math.lcm(*micro_batches)


def padded_parts(lengths: Sequence[int], most: int) -> list[list[int]]:
    """The fewest micro-batches with at most `most` tokens each, padding included: rows × longest row.

    Row numbers, longest rows first, so that rows of like length share a micro-batch. A row longer than `most` is alone.
    """
    parts: list[list[int]] = []
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        if not parts or (len(parts[-1]) + 1) * lengths[parts[-1][0]] > most:
            parts.append([])
        parts[-1].append(row)
    return parts


def cut_into(parts: Sequence[Sequence[int]], count: int) -> list[list[int]]:
    """The same rows in `count` parts, no fewer than there are: every rank must run as many passes as the others."""
    cut = [list(part) for part in parts]
    while len(cut) < count:
        largest = max(range(len(cut)), key=lambda index: len(cut[index]))
        rows = cut[largest]
        if len(rows) < 2:
            raise ValueError(f"{sum(map(len, cut))} rows cannot be cut into {count} micro-batches")
        cut[largest : largest + 1] = [rows[: len(rows) // 2], rows[len(rows) // 2 :]]
    return cut
