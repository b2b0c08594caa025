from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from deepprof.metrics.spans import Spans, covered, union

SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=12)


def cells(spans: Spans) -> set[int]:
    return {t for a, b in zip(spans.starts.tolist(), spans.ends.tolist(), strict=True) for t in range(a, b)}


def make(pairs: list[tuple[int, int]]) -> tuple[Spans, set[int]]:
    starts, ends = (np.array([p[i] for p in pairs], np.int64) for i in (0, 1))
    return union(starts, ends), {t for a, b in pairs for t in range(a, b)}


@given(SPANS)
def test_union_covers_exactly_what_its_spans_cover(pairs: list[tuple[int, int]]) -> None:
    spans, truth = make(pairs)
    assert cells(spans) == truth
    assert spans.total_ns == len(truth)
    assert (spans.starts[1:] > spans.ends[:-1]).all()


@given(SPANS, st.integers(0, 60), st.integers(0, 60))
def test_covered_counts_the_time_inside_a_window(pairs: list[tuple[int, int]], a: int, b: int) -> None:
    spans, truth = make(pairs)
    low, high = min(a, b), max(a, b)
    inside = covered(spans, np.array([low]), np.array([high]))[0]
    assert inside == len(truth & set(range(low, high)))


def test_no_spans_cover_nothing() -> None:
    spans, _ = make([])
    assert spans.total_ns == 0
    assert covered(spans, np.array([0]), np.array([9])).tolist() == [0]
