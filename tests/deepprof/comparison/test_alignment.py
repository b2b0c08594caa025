"""Two sequences of kernels side by side: planted edits and rotations come back, checked against plain algorithms."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.comparison import alignment
from deepprof.comparison.alignment import KernelSymbols, align, aligned_ratio, count_kernels
from deepprof.comparison.rotation import find_rotation

FEW = st.lists(st.integers(0, 3), max_size=40)


def symbols(exact, coarse=None):
    exact = np.array(exact, np.int64)
    return KernelSymbols(exact, exact if coarse is None else np.array(coarse, np.int64))


def longest_common(a, b):
    """The length of the longest common subsequence, by the textbook's table."""
    row = [0] * (len(b) + 1)
    for x in a:
        above, row = row, [0]
        for j, y in enumerate(b):
            row.append(above[j] + 1 if x == y else max(above[j + 1], row[j]))
    return row[-1]


def apply(runs, a, b):
    """Make B of A by the runs, reading from B only what they state is new."""
    made = []
    for run in runs:
        made += list(a[run.a_first : run.a_end]) if run.kind == "kept" else list(b[run.b_first : run.b_end])
    return made


@given(FEW, FEW)
def test_the_runs_make_b_of_a_and_keep_as_much_as_can_be_kept(a, b):
    runs = align(symbols(a), symbols(b))
    assert apply(runs, a, b) == b
    assert [i for run in runs for i in range(run.a_first, run.a_end)] == list(range(len(a)))
    assert [j for run in runs for j in range(run.b_first, run.b_end)] == list(range(len(b)))
    assert count_kernels(runs)["kept"] == longest_common(a, b)


@given(FEW, FEW)
def test_each_kind_says_what_it_is(a, b):
    for run in align(symbols(a), symbols(b)):
        old, new = a[run.a_first : run.a_end], b[run.b_first : run.b_end]
        assert (run.kind == "kept") == (old == new)
        assert (run.kind == "added") == (not old)
        assert (run.kind == "removed") == (not new)


@given(FEW)
def test_a_sequence_is_itself(a):
    assert {run.kind for run in align(symbols(a), symbols(a))} <= {"kept"}
    assert find_rotation(symbols(a), symbols(a)) == 0


@given(st.lists(st.integers(0, 2), min_size=1, max_size=60), st.integers(0, 59))
def test_a_rotated_circle_comes_back(a, by):
    b = symbols(np.roll(a, by % len(a)))
    assert b.rotate(find_rotation(symbols(a), b)).exact.tolist() == a


edits = st.lists(
    st.tuples(st.sampled_from(["delete", "insert", "replace"]), st.integers(0, 999), st.integers(1, 3)), max_size=3
)


def plant(a, changes):
    """Edit a copy of `a`; what is new has numbers from 1000 on."""
    b, new = list(a), 1000
    for kind, place, length in changes:
        at = place % len(b)
        fresh = list(range(new, new + length)) if kind != "delete" else []
        b[at : at + (length if kind != "insert" else 0)] = fresh
        new += length
    return b


@given(st.integers(24, 80), edits, st.integers(0, 999))
def test_planted_edits_and_a_rotation_are_recovered(n, changes, by):
    a = list(range(n))
    b = plant(a, changes)
    turned = symbols(np.roll(b, by % len(b)))
    back = turned.rotate(find_rotation(symbols(a), turned))
    runs = align(symbols(a), back)
    counts = count_kernels(runs)
    assert counts["kept"] == len(set(a) & set(b))
    touched = {int(back.exact[j]) for run in runs if run.kind != "kept" for j in range(run.b_first, run.b_end)}
    assert touched == set(b) - set(a)


@given(st.lists(st.booleans(), min_size=1, max_size=50))
def test_variants_of_a_kernel_are_replaced_where_they_stand(varied):
    """Kernel k has the exact ids 10 k and 10 k + 1, and the coarse id k."""
    a = [10 * k for k in range(len(varied))]
    b = [10 * k + other for k, other in enumerate(varied)]
    runs = align(symbols(a, [x // 10 for x in a]), symbols(b, [x // 10 for x in b]))
    replaced = {i for run in runs if run.kind == "replaced" for i in range(run.a_first, run.a_end)}
    assert replaced == {k for k, other in enumerate(varied) if other}
    assert all(run.alike for run in runs)
    assert aligned_ratio(runs, 2 * len(a)) == 1


def test_a_rotation_shows_through_another_precision():
    a = [10 * k for k in range(30)]
    b = np.roll([x + 1 for x in a], 11)
    turned = symbols(b, b // 10)
    assert find_rotation(symbols(a, np.array(a) // 10), turned) == 11


@pytest.mark.parametrize(
    ("a", "b", "kinds"),
    [([], [], []), ([], [1], ["added"]), ([1], [], ["removed"]), ([1], [1], ["kept"]), ([1], [2], ["replaced"])],
)
def test_tiny_sequences(a, b, kinds):
    assert [run.kind for run in align(symbols(a), symbols(b))] == kinds
    assert find_rotation(symbols(a), symbols(b)) == 0
    assert aligned_ratio([], 0) == 1


@given(FEW, FEW)
def test_the_cheaper_way_for_long_sequences_is_as_true(a, b):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(alignment, "EXACT_CELLS", 0)
        runs = align(symbols(a), symbols(b))
    assert apply(runs, a, b) == b


def test_a_hundred_thousand_kernels_are_aligned_in_seconds():
    draws = np.random.default_rng(0)
    a = draws.integers(0, 60, 100_000)
    b = np.roll(np.delete(a, draws.integers(0, len(a), 500)), 31_000)
    begun = time.process_time()
    rotation = find_rotation(symbols(a), symbols(b))
    assert rotation == 31_000
    turned = symbols(b).rotate(rotation)
    counts = count_kernels(align(symbols(a), turned))
    assert counts["kept"] > 0.99 * len(b)
    assert time.process_time() - begun < 60
