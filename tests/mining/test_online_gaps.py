"""Lost records: nothing reaches over them, nothing is made up, and the loop is found again at once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepprof.mining.online.miner import OnlineMiner
from tests.chance import examples
from tests.mining.jobs import Job
from tests.mining.online_runs import kinds, rows, run, starts_of, story

JOB = Job(iterations=80, prologue=0)
STREAM = JOB.symbols()
PERIOD = JOB.period
WINDOW = 1 << 12


def without(stream: np.ndarray, first: int, count: int) -> np.ndarray:
    return np.delete(stream, np.s_[first : first + count])


def around(position: int, found: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The last iteration before a gap and the first behind it."""
    before = [row for row in found if row[1] <= position]
    return [before[-1], next(row for row in found if row[0] >= position)]


@pytest.mark.widens(6)
@pytest.mark.parametrize("lost", [1, 7, 50, 200, 390, 1000])
@pytest.mark.parametrize("into", [100, 150, 250, 390])
def test_the_iteration_under_way_is_cut_and_so_is_the_next(into: int, lost: int) -> None:
    at = 60 * PERIOD + into
    _, found = run(without(STREAM, at, lost), WINDOW, gaps=[at])
    cut, resumed = around(at, rows(found))
    assert cut[:2] == (60 * PERIOD, at)
    assert not cut[4]
    assert resumed[4] == ((resumed[0] + lost) % PERIOD == 0)
    assert resumed[0] <= at + 100
    whole = [row for row in rows(found) if row[4] and row[1] - row[0] == PERIOD]
    assert {(row[0] + (lost if row[0] >= at else 0)) % PERIOD for row in whole} == {0}
    assert len(whole) >= 80 - 2 - lost // PERIOD - 1


def test_a_gap_at_a_boundary_costs_no_iteration() -> None:
    at = 60 * PERIOD
    _, found = run(without(STREAM, at, 3 * PERIOD), WINDOW, gaps=[at])
    assert len(found) == 77
    assert found.complete.all()
    assert found.first.tolist() == [i * PERIOD for i in range(77)]


def test_symbols_missing_without_a_mark_are_edits_and_with_one_a_cut() -> None:
    at = 60 * PERIOD + 200
    damaged = without(STREAM, at, 5)
    row = 60
    unmarked, marked = (rows(run(damaged, WINDOW, gaps=gaps)[1]) for gaps in ([], [at]))
    assert unmarked[row][3:5] == (5, True)
    assert (marked[row][1], marked[row][4]) == (at, False)
    assert (marked[row + 1][0], marked[row + 1][4]) == (at, False)
    assert len(marked) == len(unmarked) + 1


def test_an_iteration_that_lacks_its_first_symbols_is_never_complete() -> None:
    at = 60 * PERIOD
    for lost in (1, 2, 3):
        _, found = run(without(STREAM, at, lost), WINDOW, gaps=[at])
        cut, resumed = around(at, rows(found))
        assert cut[4]
        assert resumed[:2] == (at, at + PERIOD - lost)
        assert not resumed[4]


def test_several_gaps_in_one_iteration() -> None:
    first = 60 * PERIOD
    gaps = [first + 80, first + 160, first + 240, first + 241, first + 300]
    _, found = run(STREAM, WINDOW, gaps=gaps)
    inside = [row for row in rows(found) if first <= row[0] < first + PERIOD]
    assert inside
    assert not any(row[4] for row in inside)
    assert starts_of(found).tolist() == [i * PERIOD for i in range(80) if i != 60]


def test_the_lock_survives() -> None:
    miner, found = run(STREAM, WINDOW, gaps=[20 * PERIOD + 3, 40 * PERIOD + 99])
    assert [loop for _, _, loop, _ in kinds(miner, "lock")][-1] == 0
    assert story(miner).count(("lost", 0)) == 0
    assert len(starts_of(found)) >= 78


def test_lost_records_are_counted_apart() -> None:
    miner = OnlineMiner(WINDOW)
    miner.feed(STREAM[:1000])
    miner.gap(17)
    miner.gap()
    miner.feed(STREAM[1500:2000])
    assert (miner.counts.gaps, miner.counts.lost_records) == (2, 17)
    assert miner.position == 1500
    assert [event.why for event in miner.events if event.kind == "gap"] == ["17 records were lost", "records were lost"]


@pytest.mark.parametrize("lost", [-1, -(10**9)])
def test_fewer_than_no_records_cannot_be_lost(lost: int) -> None:
    miner = OnlineMiner(WINDOW)
    with pytest.raises(ValueError, match="must not be negative"):
        miner.gap(lost)
    assert miner.counts.gaps == 0


def test_nothing_is_learnt_over_a_gap() -> None:
    gaps = range(2 * PERIOD, len(STREAM), 2 * PERIOD)  # never three iterations in a row
    miner, found = run(STREAM, WINDOW, gaps=gaps)
    assert miner.loop is None
    assert len(found) == 0


def test_gaps_at_the_start_and_the_end_and_in_a_row() -> None:
    _, plain = run(STREAM, WINDOW)
    miner = OnlineMiner(WINDOW)
    parts = [miner.gap(), miner.gap(3), miner.feed(STREAM), miner.gap(), miner.gap(), miner.finish()]
    assert sum(map(len, parts)) == len(plain)


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.integers(0, len(STREAM)), max_size=12), st.integers(0, 30), st.integers(0, 10**6))
def test_no_iteration_reaches_over_a_gap_nor_is_one_made_up(gaps: list[int], most: int, seed: int) -> None:
    lost = np.random.default_rng(seed).integers(0, most + 1, len(gaps))
    truth = np.arange(len(STREAM))
    for gap, count in zip(gaps, lost.tolist(), strict=True):
        truth[gap : gap + count] = -1
    kept = np.flatnonzero(truth >= 0)
    marks = sorted({int(np.searchsorted(kept, gap)) for gap in gaps})
    miner, found = run(STREAM[kept], WINDOW, gaps=marks)
    for first, end, _, _, complete, _ in rows(found):
        assert not any(first < mark < end for mark in marks)
        if complete:
            assert kept[end - 1] - kept[first] == PERIOD - 1
            assert kept[first] % PERIOD == kept[starts_of(found)[0]] % PERIOD
    assert miner.counts.foreign + int((found.end - found.first).sum()) == len(kept)
