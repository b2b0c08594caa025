"""Which ranks are slower for equal kernels, by ratios that a hand computes, and when none is."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from itertools import chain

import polars as pl
import pytest

from deepprof.metrics.ranks.collectives import PASSES, Passes
from deepprof.metrics.ranks.facts import KERNEL_CALLS, MOST_KINDS, PlaceFacts, gather_facts, list_calls
from deepprof.metrics.ranks.slower import FEWEST_CALLS, SlowerRank, find_slower
from deepprof.metrics.spans import NOTHING
from tests.rank_jobs import RankJob, with_shapes
from tests.tables import Row, event, make_trace, table

US = 1_000
Kind = tuple[int, int, float]  # kernel, grid, median in µs
ALIKE: tuple[Kind, ...] = ((1, 64, 100.0), (2, 64, 200.0), (3, 128, 50.0), (4, 8, 50.0))


def place(kinds: Sequence[Kind], count: int = 10) -> PlaceFacts:
    """A rank with kinds of kernels that are called so often."""
    rows: list[Row] = [
        {"kernel": kernel, "grid": grid, "block": 256, "count": count, "median_ns": length * US}
        for kernel, grid, length in kinds
    ]
    passes = Passes((), pl.DataFrame(schema=PASSES))
    return PlaceFacts(passes, NOTHING, pl.DataFrame(), table(rows, KERNEL_CALLS))


def times(factor: float, kinds: Sequence[Kind] = ALIKE) -> list[Kind]:
    return [(kernel, grid, length * factor) for kernel, grid, length in kinds]


def job(*ranks: Sequence[Kind], count: int = 10) -> Mapping[tuple[int, int], PlaceFacts]:
    return {(rank, 0): place(kinds, count) for rank, kinds in enumerate(ranks)}


def test_one_of_two_is_slower_than_the_other() -> None:
    assert find_slower(job(times(1.25), ALIKE)) == [SlowerRank((0, 0), 1.25, 1.0, 4, 1.0)]


def test_one_of_eight_is_compared_with_the_median_of_the_others() -> None:
    """The others have 0.97 … 1.03 times the usual lengths: their median is 1."""
    others = [times(1 + (k - 3) / 100) for k in range(7)]
    (found,) = find_slower(job(*others[:5], times(1.3), *others[5:]))
    assert (found.place, found.kinds) == ((5, 0), 4)
    assert found.ratio == pytest.approx(1.3)


def test_several_come_in_the_order_of_their_slowness() -> None:
    found = find_slower(job(ALIKE, times(1.2), ALIKE, times(1.4), ALIKE, ALIKE))
    assert [(each.place[0], each.ratio) for each in found] == [(3, pytest.approx(1.4)), (1, pytest.approx(1.2))]


def test_time_decides_how_even_it_is() -> None:
    """Of 400 µs a call of each, one of 50 µs is not slower; of 120, 240, 60 and 50 µs the rest are 420 of 470."""
    (found,) = find_slower(job([*times(1.2, ALIKE[:3]), ALIKE[3]], ALIKE))
    assert found.ratio == pytest.approx(1.2)
    assert found.even_ratio == pytest.approx(420 / 470)


def test_kernels_of_one_rank_alone_are_not_compared() -> None:
    (found,) = find_slower(job([*times(1.2), (9, 64, 48.0)], ALIKE))
    assert (found.kinds, found.compared_ratio) == (4, pytest.approx(480 / 528))


@pytest.mark.parametrize(
    "ranks",
    [
        [times(1.5)],
        [ALIKE, ALIKE],
        [times(1.07), ALIKE, ALIKE],
        [times(1.5, [(1, 96, 100.0), (2, 96, 200.0), (3, 192, 50.0), (4, 12, 50.0)]), ALIKE, ALIKE],
        [times(1.5, [(5, 64, 100.0), (6, 64, 200.0), (7, 128, 50.0), (8, 8, 50.0)]), ALIKE],
        [[(1, 64, 100.0), (2, 64, 400.0), (3, 128, 50.0), (4, 8, 50.0)], ALIKE, ALIKE],
        [times(1.5, ALIKE[:2]), ALIKE[:2], ALIKE[:2]],
        [[*times(1.5), (9, 64, 200.0)], ALIKE, ALIKE],
        [times(1.1), ALIKE, times(1.04), times(0.96), times(0.92), times(1.08)],
        [times(1.3), times(1.3), ALIKE],
        [times(1.5, ALIKE[:3]), [], [], ALIKE],
    ],
    ids=[
        *("one rank", "alike", "a little", "other grids", "other kernels", "one kernel", "two kinds", "half compared"),
        *("all differ", "most of them", "kinds that two of four have"),
    ],
)
def test_no_rank_is_slower(ranks: list[list[Kind]]) -> None:
    assert find_slower(job(*ranks)) == []


def test_few_calls_are_not_compared() -> None:
    assert find_slower(job(times(1.5), ALIKE, count=FEWEST_CALLS - 1)) == []
    assert find_slower(job(times(1.5), ALIKE, count=FEWEST_CALLS)) != []


def test_little_time_is_not_compared() -> None:
    short = times(0.1)  # 40 µs a call of each, ten times: 0.4 ms
    assert find_slower(job(times(1.5, short), short)) == []


def constant(*per_rank: int, **more: object) -> RankJob:
    lengths = pl.DataFrame({"ns": per_rank})["ns"].to_numpy().reshape(-1, 1, 1).repeat(6, axis=1)
    return RankJob(compute_ns=lengths, **more)  # type: ignore[arg-type]


def test_calls_are_counted_by_name_and_shape() -> None:
    """Five of six iterations are usual: of the last one no one can show when it ends."""
    loops, traces = constant(200, 300).build()
    found = [list_calls(loop, with_shapes(trace)) for loop, trace in zip(loops, traces, strict=True)]
    columns = ["grid", "block", "count", "median_ns"]
    assert [each.select(columns).rows() for each in found] == [[(8, 256, 5, 200.0)], [(8, 256, 5, 300.0)]]
    assert found[0]["kernel"].to_list() == found[1]["kernel"].to_list()


def test_kernels_beside_a_collective_are_left_out() -> None:
    """The first collective of an iteration runs next to the second kernel: the first kernel alone is left."""
    compute = pl.DataFrame({"ns": [200, 300] * 6})["ns"].to_numpy().reshape(1, 6, 2)
    loops, traces = RankJob(compute_ns=compute, transfer_ns=(250, 10), overlapping=True).build()
    assert list_calls(loops[0], with_shapes(traces[0])).select("count", "median_ns").rows() == [(5, 200.0)]


def test_without_shapes_or_on_a_shared_device_nothing_is_sent() -> None:
    loops, traces = constant(200).build()
    assert list_calls(loops[0], traces[0]).is_empty()
    shaped = with_shapes(traces[0])
    assert [gather_facts(loops, shaped, shared).places[0].calls.height for shared in ((), (0,))] == [1, 0]


def test_what_a_rank_sends_is_bounded() -> None:
    """A thousand kernels with long names, ten times in each of six iterations."""
    loops, _ = constant(200_000).build()
    loop = loops[0]
    begin = [int(start) for start in loop.usual["start_ns"]]
    kernels = [[event(k, at + 100 * k, at + 100 * k + 90) for k in range(1_000)] for at in begin]
    trace = with_shapes(make_trace([*chain(*kernels)], names=[f"kernel_{k}_{'x' * 500}" for k in range(1_000)]))
    found = list_calls(loop, trace)
    assert found.height == MOST_KINDS
    assert len(pickle.dumps(found)) < 64 * MOST_KINDS
