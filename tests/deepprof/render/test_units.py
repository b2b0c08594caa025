import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.plurals import counted
from deepprof.render.units import format_bytes, format_confidence, format_duration, format_ratio

SECONDS = {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9, "min": 60e9, "h": 3600e9}


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (None, "-"),
        (0, "0 ns"),
        (999, "999 ns"),
        (1_000, "1.00 µs"),
        (12_345_678, "12.3 ms"),
        (999_449, "999 µs"),
        (999_500, "1.00 ms"),
        (99_950_000, "100 ms"),
        (59_000_000_000, "59.0 s"),
        (7_200_000_000_000, "2.00 h"),
        (-1_500, "-1.50 µs"),
    ],
)
def test_durations(ns, text):
    assert format_duration(ns) == text


@given(st.integers(1, 10**15))
def test_a_duration_is_never_off_by_more_than_its_last_digit(ns):
    number, unit = format_duration(ns).split()
    assert float(number) * SECONDS[unit] == pytest.approx(ns, rel=0.006)
    assert float(number) >= 1


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(None, "-"), (0, "0 B"), (1023, "1023 B"), (1024, "1.00 KiB"), (1_288_490_189, "1.20 GiB"), (1 << 60, "1024 PiB")],
)
def test_sizes(nbytes, text):
    assert format_bytes(nbytes) == text


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (None, "-"),
        (0, "0 %"),
        (1.0, "100 %"),
        (0.1234, "12.3 %"),
        (0.0001, "<0.1 %"),
        (0.99999, ">99.9 %"),
        (4.2, "420.0 %"),
    ],
)
def test_ratios(ratio, text):
    assert format_ratio(ratio) == text


@pytest.mark.parametrize(
    ("confidence", "text"),
    [(1, "1.00"), (1.0, "1.00"), (0.999, "0.99"), (0.9949, "0.99"), (0.854, "0.85"), (0, "0.00")],
)
def test_only_certainty_reads_as_1(confidence, text):
    assert format_confidence(confidence) == text


def test_counts():
    assert [counted(1, "copy", "copies"), counted(0, "kernel"), counted(12_345, "kernel")] == [
        "1 copy",
        "0 kernels",
        "12,345 kernels",
    ]
