"""How a stream's rows are packed into mini-batches and micro-batches. Pure arithmetic on row counts."""

import math


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
