"""What others cost an iteration, against a count of single nanoseconds."""

from __future__ import annotations

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from deepprof.metrics.sharing.losses import LOSSES, QueuedTime, find_level, measure_losses
from deepprof.metrics.sharing.repeated import Repeated, look_beside
from deepprof.metrics.sharing.work import BETWEEN_NS, DeviceWork, OtherWork
from deepprof.metrics.spans import NOTHING, Spans, union

TIME = 120
PAIRS = st.lists(st.tuples(st.integers(0, TIME), st.integers(0, TIME)), max_size=8)
NO_EVENTS = Repeated(*(np.zeros(0, np.int64) for _ in range(5)))


def spans(pairs: list[tuple[int, int]]) -> Spans:
    return union(*(np.array([pair[i] for pair in pairs], np.int64) for i in (0, 1)))


def cells(found: Spans) -> set[int]:
    return {t for a, b in zip(found.starts.tolist(), found.ends.tolist(), strict=True) for t in range(a, b)}


def others(kernels: Spans, copies: Spans = NOTHING) -> OtherWork:
    return OtherWork.of([DeviceWork(1, 0, kernels, copies)])


def usual(*bounds: int) -> pl.DataFrame:
    """Return iterations that run from one bound to the next."""
    start = np.array(bounds[:-1], np.int64)
    return pl.DataFrame({"index": np.arange(len(start)), "start_ns": start, "iteration_ns": np.diff(bounds)})


def repeated(*events: tuple[int, int, int, int, int]) -> Repeated:
    """Return events as (start, end, iteration, key, counted)."""
    return Repeated(*(np.array(column, np.int64) for column in zip(*events, strict=True))) if events else NO_EVENTS


@given(PAIRS, PAIRS, PAIRS, PAIRS)
def test_what_waits_is_held_while_others_have_what_it_waits_for(
    kernels: list[tuple[int, int]], copies: list[tuple[int, int]], a: list[tuple[int, int]], b: list[tuple[int, int]]
) -> None:
    """All pauses are shorter than what a device needs between two kernels: others have it from first to last."""
    held = others(spans(kernels), spans(copies)).hold(spans(a), spans(b))
    for found, waiting, other in zip(held, (a, b), (kernels, copies), strict=True):
        theirs = cells(spans(other))
        reach = set(range(min(theirs), max(theirs) + 1)) if theirs else set()
        assert cells(found) == cells(spans(waiting)) & reach


def test_a_longer_pause_of_others_is_nobodys() -> None:
    far = 2 * BETWEEN_NS
    theirs = spans([(0, 10), (10 + BETWEEN_NS, 20 + BETWEEN_NS), (20 + BETWEEN_NS + far, 30 + BETWEEN_NS + far)])
    waiting = spans([(5, 30 + BETWEEN_NS + far)])
    held, _ = others(theirs).hold(waiting, NOTHING)
    assert held.starts.tolist() == [5, 20 + BETWEEN_NS + far]
    assert held.total_ns == 15 + BETWEEN_NS + 10


@given(
    st.lists(st.integers(1, TIME - 1), min_size=1, max_size=5, unique=True),
    st.tuples(PAIRS, PAIRS, PAIRS, PAIRS),
    st.booleans(),
)
def test_every_nanosecond_is_lost_once(
    bounds: list[int], pairs: tuple[list[tuple[int, int]], ...], proven: bool
) -> None:
    kernels, copies, a, b = pairs
    rows = usual(0, *sorted(bounds), TIME)
    beside = others(spans(kernels), spans(copies))
    waiting, moving = spans(a), spans([pair for pair in b if not cells(spans([pair])) & cells(spans(a))])
    table = measure_losses(rows, QueuedTime(waiting, moving, proven), NO_EVENTS, NO_EVENTS, beside)
    assert table.schema == LOSSES
    for row, (start, ns) in zip(table.to_dicts(), rows.select("start_ns", "iteration_ns").rows(), strict=True):
        window = set(range(start, start + ns))
        assert row["together_ns"] == len(window & (cells(beside.kernels) | cells(beside.copies)))
        turns, waits = len(window & cells(waiting)), len(window & cells(moving))
        if proven:
            assert (row["turns_ns"], row["copies_ns"]) == (turns, waits)
        else:
            assert row["turns_ns"] + row["copies_ns"] == min(turns + waits, row["stretch_ns"] or 0)
        assert row["lost_ns"] == row["turns_ns"] + row["copies_ns"] <= ns
        if row["stretch_ns"] is not None:
            assert row["rest_ns"] == max(0, row["stretch_ns"] - row["lost_ns"])


@given(st.lists(st.tuples(st.integers(10, 60), st.integers(0, 40)), min_size=3, max_size=20))
def test_a_kernel_alone_is_the_median_of_those_that_nobody_ran_beside(runs: list[tuple[int, int]]) -> None:
    """Runs of one kernel, `own` long each, next to others for their first `beside` nanoseconds."""
    at, events, theirs = 0, [], []
    for own, beside in runs:
        events.append((at, at + own, 0, 1, own))
        theirs.append((at, at + min(own, beside)))
        at += own
    found = look_beside(repeated(*events), spans(theirs))
    alone = [own for own, beside in runs if beside == 0]
    base = float(np.median(alone)) if len(alone) >= 3 else min(own for own, _ in runs)
    assert found.overlap_ns.tolist() == [min(own, beside) for own, beside in runs]
    assert found.extra_ns.tolist() == [own - base if beside else 0.0 for own, beside in runs]


def test_longer_kernels_count_as_far_as_others_ran_beside_them() -> None:
    base = [(at, at + 10, 0, 1, 10) for at in (0, 10, 20)]  # alone it uses 10
    slow = (30, 50, 1, 1, 20)  # 10 more, of which others ran for 4
    noise = (50, 58, 1, 1, 8)  # 2 less, next to others: noise that is taken off
    rows, theirs = usual(0, 30, 60), spans([(46, 58)])
    table = measure_losses(
        rows, QueuedTime(NOTHING, NOTHING, True), repeated(*base, slow, noise), NO_EVENTS, others(theirs)
    )
    assert table["slowed_ns"].to_list() == [0, 4 - 2]


def test_a_copy_that_something_hides_costs_nothing() -> None:
    alone = [(at, at + 10, 0, 1, 10) for at in (0, 10, 20)]
    exposed, hidden = (30, 50, 1, 1, 20), (50, 70, 2, 1, 3)
    rows = usual(0, 30, 50, 70)
    beside = others(NOTHING, spans([(30, 70)]))
    table = measure_losses(
        rows, QueuedTime(NOTHING, NOTHING, True), NO_EVENTS, repeated(*alone, exposed, hidden), beside
    )
    assert table["copies_slowed_ns"].to_list() == [0, 10, 3]
    assert table["together_ns"].to_list() == [0, 20, 20]


def test_a_level_takes_three_iterations_that_others_leave_alone() -> None:
    whole = np.array([100, 110, 120, 400, 900])
    assert find_level(whole, np.array([0, 1, 0, 300, 800])) == 110
    assert find_level(whole, np.array([0, 9, 0, 300, 800])) is None


def test_no_iteration_makes_an_empty_table() -> None:
    empty = measure_losses(usual(0), QueuedTime(NOTHING, NOTHING, True), NO_EVENTS, NO_EVENTS, others(NOTHING))
    assert (empty.schema, empty.height) == (LOSSES, 0)
