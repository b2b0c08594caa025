from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deepprof.metrics.spans import NOTHING, Spans, covered, divide, intersect, paint, union

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


@given(SPANS, SPANS)
def test_intersect_is_what_lies_in_both(ones: list[tuple[int, int]], others: list[tuple[int, int]]) -> None:
    (first, truth), (second, other_truth) = make(ones), make(others)
    both = intersect(first, second)
    assert cells(both) == truth & other_truth
    assert both.total_ns == len(truth & other_truth)
    assert (both.starts[1:] > both.ends[:-1]).all()


@given(st.lists(SPANS, max_size=4))
def test_paint_shows_the_first_layer_over_every_moment(layers: list[list[tuple[int, int]]]) -> None:
    made = [make(pairs) for pairs in layers]
    painted = paint([spans for spans, _ in made])
    truth = {
        t: next((i for i, (_, cells) in enumerate(made) if t in cells), -1)
        for t in range(int(painted.bounds[0]) if len(painted.bounds) else 0, int(painted.bounds[-1:].sum()))
    }
    segments = zip(painted.bounds[:-1].tolist(), painted.bounds[1:].tolist(), painted.colours.tolist(), strict=True)
    assert {t: colour for start, end, colour in segments for t in range(start, end)} == truth
    assert set().union(*(cells for _, cells in made)) <= set(truth)


def test_nothing_painted_has_no_segments() -> None:
    for layers in ([], [NOTHING, NOTHING]):
        painted = paint(layers)
        assert len(painted.bounds) == len(painted.colours) == 0


DIVIDED = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60), st.booleans()), max_size=12)


def cut_by_hand(spans: list[tuple[int, int, bool]]) -> list[Fraction]:
    """Each nanosecond in equal parts to the spans over it, to those that are behind only where there is no other."""
    parts = [Fraction(0)] * len(spans)
    for t in range(60):
        over = [number for number, (start, end, _) in enumerate(spans) if start <= t < end]
        shared = [number for number in over if not spans[number][2]] or over
        for number in shared:
            parts[number] += Fraction(1, len(shared))
    return parts


@given(DIVIDED)
@example([(0, 10, False), (20, 30, False), (5, 4, False)])
@example([(0, 10, True), (2, 5, False)])
def test_overlapping_time_is_divided_equally_and_adds_up_to_the_union(spans: list[tuple[int, int, bool]]) -> None:
    starts, ends = (np.array([span[k] for span in spans], np.int64) for k in (0, 1))
    parts = divide(starts, ends, behind=np.array([span[2] for span in spans], np.bool_))
    assert parts.tolist() == pytest.approx([float(part) for part in cut_by_hand(spans)], abs=1e-9)
    assert parts.sum() == pytest.approx(union(starts, ends).total_ns, abs=1e-9)
    assert (parts <= np.maximum(ends - starts, 0) + 1e-9).all()


def test_without_a_second_class_all_spans_share_alike() -> None:
    # 0 to 4 one span, 4 to 6 two, 6 to 10 one, 20 to 25 one.
    assert divide(np.array([0, 4, 20]), np.array([6, 10, 25])).tolist() == [5.0, 5.0, 5.0]
    assert divide(np.array([], np.int64), np.array([], np.int64)).tolist() == []
