"""Iterations one after the other are those of the whole stream: the segmenter next to `to_iterations`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepprof.mining.iterations import Iterations, to_iterations
from deepprof.mining.matching import Matches
from deepprof.mining.online.template_tracker import NO_ITERATIONS, IterationSegmenter, join_rows
from tests.chance import examples

PERIOD = 100


def as_passes(rows: list[tuple[int, int, int, int]]) -> Matches:
    return Matches.from_rows(np.array(rows, np.int64).reshape(-1, 4), 0)


@st.composite
def passes(draw: st.DrawFn) -> list[tuple[int, int, int, int]]:
    """Whole, edited, halved, tiny passes, at all the distances that make a difference."""
    at, rows = draw(st.integers(0, 300)), []
    for _ in range(draw(st.integers(0, 25))):
        at += draw(st.sampled_from([0, 0, 0, 1, 8, 9, 11, 80, 150]))
        matched = draw(st.sampled_from([100, 100, 100, 99, 98, 60, 50, 49, 40, 2, 1]))
        edits = draw(st.sampled_from([0, 0, 1, 40, 50, 60, 100 - matched]))
        end = at + matched + draw(st.sampled_from([0, 0, edits]))
        rows.append((at, end, matched, edits))
        at = end
    return rows


def take(segmenter: IterationSegmenter, found: Matches) -> Iterations:
    if not len(found):
        return NO_ITERATIONS
    return segmenter.take_exact(found) if segmenter.goes_on_exactly(found) else segmenter.take(found)


def listed(rows: Iterations) -> list[tuple[int, ...]]:
    columns = (rows.first, rows.end, rows.matched, rows.edits, rows.complete)
    return list(zip(*(column.tolist() for column in columns), strict=True))


@settings(max_examples=examples(300))
@given(passes(), st.lists(st.integers(0, 25), max_size=6))
def test_any_chunking_settles_to_the_same_iterations(rows: list[tuple[int, int, int, int]], cuts: list[int]) -> None:
    segmenter, found = IterationSegmenter(PERIOD), NO_ITERATIONS
    for part in np.split(np.array(rows, np.int64).reshape(-1, 4), sorted(cuts)):
        found = join_rows(found, take(segmenter, Matches.from_rows(part, 0)))
        assert len(segmenter.passes) <= 3
        assert len(segmenter.held.first) <= 1
    found = join_rows(found, segmenter.close(as_passes([]), whole_only=False))
    assert listed(found) == (listed(to_iterations(as_passes(rows), PERIOD)) if rows else [])


def test_an_iteration_is_given_when_the_next_has_ended() -> None:
    segmenter = IterationSegmenter(PERIOD)
    assert listed(take(segmenter, as_passes([(0, 100, 100, 0)]))) == []
    assert listed(take(segmenter, as_passes([(100, 200, 100, 0)]))) == [(0, 100, 100, 0, True)]
    assert listed(take(segmenter, as_passes([(205, 305, 100, 0)]))) == [(100, 205, 100, 5, True)]


@pytest.mark.parametrize(("matched", "complete"), [(100, True), (99, False)])
def test_beside_lost_records_an_iteration_is_complete_only_when_all_of_it_was_seen(
    matched: int, complete: bool
) -> None:
    before = IterationSegmenter(PERIOD)
    assert listed(before.close(as_passes([(0, matched, matched, 0)]), whole_only=True))[0][4] == complete
    after = IterationSegmenter(PERIOD, cut=True)
    take(after, as_passes([(0, matched, matched, 0)]))
    assert listed(after.close(as_passes([]), whole_only=True))[0][4] == complete
