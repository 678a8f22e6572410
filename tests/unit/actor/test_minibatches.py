import pytest
from hypothesis import given
from hypothesis import strategies as st

from agon_verl.actor.minibatches import cut_into, even_parts, interleave_minibatches, padded_parts, required_multiple


@given(st.integers(1, 5000), st.integers(1, 300))
def test_even_parts_hold_all_rows_with_little_padding(rows: int, most: int) -> None:
    parts, size = even_parts(rows, most)
    assert 1 <= size <= most and (parts - 1) * most < rows <= parts * size < rows + parts
    assert even_parts(parts * size, most) == (parts, size)  # the engine cuts as the trainer has padded


def test_even_parts_by_hand() -> None:
    assert even_parts(43, 64) == (1, 43)
    assert even_parts(67, 64) == (2, 34)
    assert even_parts(128, 64) == (2, 64)
    assert even_parts(7, 1) == (7, 1)


def test_rows_are_dealt_to_the_mini_batches_of_each_rank() -> None:
    """The last rows are padding: each mini-batch gets its share of them."""
    assert interleave_minibatches(12, 2, 3) == [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]
    assert interleave_minibatches(8, 1, 2) == [0, 2, 4, 6, 1, 3, 5, 7]


def multiple(rows: int, ranks: int, mini_batches: int, dynamic: bool = False, single_pass: bool = False) -> int:
    return required_multiple(rows, ranks, mini_batches, dynamic=dynamic, micro_batches=(4, 6), single_pass=single_pass)


def test_dynamic_batches_need_full_mini_batches_only() -> None:
    assert multiple(43, 2, 3, dynamic=True) == 6


def test_fixed_micro_batches_must_be_full_in_every_pass() -> None:
    assert multiple(43, 2, 3) == 2 * 3 * 12  # lcm(4, 6) = 12


def test_a_single_pass_is_padded_by_less_than_a_row_per_micro_batch() -> None:
    # 43 rows on 2 ranks: 22 each, in 6 micro-batches of 4: 48 rows in all, where full ones would take 72.
    assert multiple(43, 2, 1, single_pass=True) == 48
    assert multiple(7, 1, 1, single_pass=True) == 8


@given(st.integers(1, 500), st.integers(1, 8), st.integers(1, 4), st.booleans(), st.booleans())
def test_each_rank_gets_the_same_number_of_rows(
    rows: int, ranks: int, mini_batches: int, dynamic: bool, single_pass: bool
) -> None:
    assert multiple(rows, ranks, mini_batches, dynamic, single_pass) % ranks == 0


LENGTHS = st.lists(st.integers(1, 500), min_size=1, max_size=60)


@given(LENGTHS, st.integers(500, 3000))
def test_padded_parts_hold_all_rows_within_the_limit(lengths: list[int], most: int) -> None:
    parts = padded_parts(lengths, most)
    assert sorted(row for part in parts for row in part) == list(range(len(lengths)))
    assert all(len(part) * max(lengths[row] for row in part) <= most for part in parts)


@given(LENGTHS, st.integers(0, 30))
def test_parts_can_be_cut_further(lengths: list[int], more: int) -> None:
    parts = padded_parts(lengths, 600)
    count = min(len(lengths), len(parts) + more)
    cut = cut_into(parts, count)
    assert len(cut) == count and all(cut)
    assert [row for part in cut for row in part] == [row for part in parts for row in part]


def test_padded_parts_by_hand() -> None:
    assert padded_parts([5, 30, 17, 9, 64, 12], 80) == [[4], [1, 2], [5, 3, 0]]
    assert padded_parts([90, 3, 3], 80) == [[0], [1, 2]]  # longer than the limit: alone
    assert cut_into([[4], [1, 2], [5, 3, 0]], 4) == [[4], [1, 2], [5], [3, 0]]


def test_rows_cannot_be_cut_into_more_parts_than_there_are() -> None:
    with pytest.raises(ValueError, match="2 rows cannot be cut into 3"):
        cut_into([[0, 1]], 3)
