from hypothesis import given
from hypothesis import strategies as st

from agon_verl.trainer.batches import dealt, even_parts


@given(st.integers(1, 5000), st.integers(1, 300))
def test_even_parts_hold_all_rows_with_little_to_fill(rows: int, most: int) -> None:
    parts, size = even_parts(rows, most)
    assert 1 <= size <= most and (parts - 1) * most < rows <= parts * size < rows + parts
    assert even_parts(parts * size, most) == (parts, size)  # the engine cuts as the trainer has filled


def test_even_parts_by_hand() -> None:
    assert even_parts(43, 64) == (1, 43)
    assert even_parts(67, 64) == (2, 34)
    assert even_parts(128, 64) == (2, 64)
    assert even_parts(7, 1) == (7, 1)


def test_rows_are_dealt_to_the_parts_of_each_rank() -> None:
    """The last rows fill the batch up: each part gets its share of them."""
    assert dealt(12, 2, 3) == [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]
    assert dealt(8, 1, 2) == [0, 2, 4, 6, 1, 3, 5, 7]
