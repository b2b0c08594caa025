import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.mining.iterations import edit_distance

sequences = st.lists(st.integers(0, 4), max_size=25)


def naive_distance(a, b, low=-(10**9), high=10**9):
    """The classic table; cells whose column minus row is outside [low, high] are closed."""
    table = {}
    for i in range(len(a) + 1):
        for j in range(len(b) + 1):
            if low <= j - i <= high:
                table[i, j] = _naive_cell(table, a, b, i, j)
    return table[len(a), len(b)]


def _naive_cell(table, a, b, i, j):
    if i == 0 or j == 0:
        return i + j
    closed = 10**9
    return min(
        table.get((i - 1, j), closed) + 1,
        table.get((i, j - 1), closed) + 1,
        table.get((i - 1, j - 1), closed) + (a[i - 1] != b[j - 1]),
    )


@given(sequences, sequences)
def test_a_wide_band_gives_the_edit_distance(a, b):
    assert edit_distance(a, b, 60) == naive_distance(a, b)


@given(sequences, sequences, st.integers(0, 6))
def test_a_narrow_band_is_exact_within_itself_and_else_an_upper_bound(a, b, band):
    true, found = naive_distance(a, b), edit_distance(a, b, band)
    assert found >= true
    assert found <= max(len(a), len(b))
    if true <= band:
        assert found == true


@given(sequences, sequences, st.integers(0, 6))
def test_the_band_counts_from_both_ends_diagonals(a, b, band):
    slope = len(b) - len(a)
    banded = naive_distance(a, b, min(0, slope) - band, max(0, slope) + band)
    # Stripping common ends may find a cheaper way than the band around the whole; never a dearer one.
    assert edit_distance(a, b, band) <= banded


@given(sequences, sequences)
def test_it_is_symmetric(a, b):
    assert edit_distance(a, b, 60) == edit_distance(b, a, 60)


def test_long_segments_with_few_edits():
    template = list(range(5000))
    edited = [*template[:1000], 7, 7, 7, *template[1000:2000], *template[2010:4000], 9, *template[4001:]]
    assert edit_distance(template, edited, 32) == 14


def test_symbols_of_both_widths_compare():
    assert edit_distance([1, 2, 70_000], [1, 2], 2) == 1
    assert edit_distance([65_536, 0], [0, 65_536], 2) == 2


def test_a_negative_band_is_refused():
    with pytest.raises(ValueError, match="band"):
        edit_distance([1], [2], -1)
