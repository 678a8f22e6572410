import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward_fns.output_match import same_output


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (b"3\n", b"3\n"), (b"3", b"3\n"), (b"3\r\n", b"3\n"), (b"3 \t\n\n\n", b"3"), (b"\n3", b"3"),
        (b"1\r\n2\r\n", b"1\n2\n"), (b"1 2 3 \n", b"1 2 3"), (b"1\n2\n3", b"1 2 3"), (b"", b""), (b"\n", b""),
        (b"YES", b"YES\n"), ("grüße".encode(), "grüße\n".encode()), (b"\xff\xfe", b"\xff\xfe\n"),
        (b"0.5", b"0.50"), (b".5", b"0.5"), (b"5e-1", b"0.5"), (b"+0.5", b"0.5"), (b"1", b"1.0"), (b"-0.0", b"0.0"),
        (b"1.", b"1.0"), (b"0.3333333", b"0.333333333"), (b"1000000.5", b"1000000.0"), (b"1E5", b"1e5"),
        (b"100000", b"1e5"), (b"1e-9", b"0.0"), (b"nan", b"nan"), (b"1e999", b"1e999"), (b"1.2.3", b"1.2.3"),
        (b"3.14 x 2.70", b"3.14 x 2.7"), (b"9" * 1000, b"9" * 1000),
        (b"1.0000005e-9", b"1e-9"), (b"0.000000001", b"1e-9"), (b"0", b"5.551115123125783e-17"), (b"0.0", b"-1.1e-13"),
        (b"1.4e-6", b"0.000001"), (b"0.0000014", b"0.000001"), (b"0.00000012", b"0.0000001"), (b"0.000021", b"2.13e-5"),
        (b"0.0000004", b"0.0"), (b"1.0005e-9", b"1e-9"), (b"0.0", b"0.00"), (b"-1e-7", b"0.000000"),
    ],
)  # fmt: skip
def test_the_same_output(output, expected):
    assert same_output(output, expected)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (b"", b"3"), (b"3 4", b"3"), (b"3", b"3 4"), (b"3\n4\n", b"3\n"), (b"3\n", b"3\n4\n"), (b"33", b"3 3"),
        (b"yes", b"YES"), (b"3.0", b"3"), (b"3.0000000001", b"3"), (b"3e0", b"3"), (b"+3", b"3"), (b"03", b"3"),
        (b"1000001", b"1000000"), (b"0.500002", b"0.5"), (b"1000002.0", b"1000000.0"), (b"0.5x", b"0.5"),
        (b"nan", b"0.5"), (b"inf", b"1e999"), (b"-inf", b"0.5"), (b"Infinity", b"0.5"), (b"1_0.0", b"10.0"),
        (b"0x1p-1", b"0.5"), (b"1/2", b"0.5"), (b"0,5", b"0.5"), ("٠.٥".encode(), b"0.5"), ("３".encode(), b"3"),
        (b"3\x00", b"3"), (b"\xef\xbb\xbf3", b"3"), ("3\u00a0".encode(), b"3"), (b"1.2.4", b"1.2.3"),
        (b"0", b"1e-9"), (b"0.0", b"0.000000001"), (b"2e-9", b"1e-9"), (b"-1e-9", b"1e-9"), (b"1.1e-9", b"1e-9"),
        (b"0", b"1e-6"), (b"0.000000", b"0.0000001"), (b"0", b"1e-11"), (b"2e-7", b"0.0000001"), (b"1e-9", b"1e-7"),
        (b"1e309", b"1.0"), (b"9" * 999 + b"8", b"9" * 1000), (b"0." + b"1" * 1000, b"0.1"),
    ],
)  # fmt: skip
def test_another_output(output, expected):
    assert not same_output(output, expected)


def test_tolerance_is_for_the_expected_number_only():
    """An expected integer is exact, however the program writes it; an expected decimal is not."""
    assert same_output(b"3", b"3.0") and not same_output(b"3.0", b"3")


@given(st.floats(1e-11, 1e-5), st.sampled_from(["", "-"]))
def test_nothing_printed_as_zero_matches_a_number_that_is_not_zero(size, sign):
    for written in (f"{sign}{size!r}", f"{sign}{size:.12e}", f"{sign}{size:.20f}"):
        assert same_output(written.encode(), written.encode())
        assert not any(same_output(zero, written.encode()) for zero in (b"0", b"0.0", b"-0.000000", b"0e0"))


@given(st.lists(st.integers(-(10**18), 10**18), min_size=1))
def test_integers_match_only_themselves(numbers):
    written = " ".join(map(str, numbers)).encode()
    assert same_output("\r\n".join(map(str, numbers)).encode(), written)
    assert not same_output(written[:-1] + (b"1" if written[-1:] != b"1" else b"2"), written)
    assert not same_output(written + b" 0", written)


@given(st.binary(max_size=100), st.binary(max_size=100))
def test_any_bytes_can_be_compared(output, expected):
    assert same_output(output, expected) in (True, False)
    assert same_output(output, output)


@pytest.mark.parametrize(
    "output", [b"9" * 4_000_000, b"1 " * 2_000_000, b"1e9999999 " * 300_000, b"0." + b"1" * 4_000_000]
)
def test_no_output_stalls_the_comparison(output):
    began = time.perf_counter()
    assert not same_output(output, output.replace(b"1", b"2").replace(b"9", b"8.5"))
    assert time.perf_counter() - began < 5
