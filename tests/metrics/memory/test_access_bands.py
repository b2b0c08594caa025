"""Counted accesses by sections of 2 MiB and by kernel, against values by hand and a brute-force oracle."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from deepprof.collectors.trace import ACCESSES, MEMORY_EVENTS, Accounting, Trace
from deepprof.metrics.memory.access_bands import ACCESS_WINDOWS, ACCESSED_BANDS, measure_access_bands
from deepprof.metrics.memory.access_footprints import (
    ACCESS_FOOTPRINTS,
    ACCESS_WORKING_SETS,
    measure_access_footprints,
    measure_access_working_sets,
)
from tests.tables import Row, event, make_trace, table

MIB = 1 << 20
PAGE = 1 << 16
Access = tuple[int, int | None, int, int]  # kernel, page, bytes read, bytes written


def make_accesses(kernels: Sequence[Row], accesses: Sequence[Access], nbytes: int = PAGE) -> Trace:
    rows = [
        {"event": at, "address": None if page is None else page * nbytes, "nbytes": nbytes}
        | {"reads": read // 4, "read_nbytes": read, "writes": written // 4, "write_nbytes": written}
        for at, page, read, written in accesses
    ]
    return replace(make_trace(kernels), accesses=table(rows, ACCESSES))


def test_what_is_accessed_all_the_time_and_what_in_bursts() -> None:
    """Ten kernels: the first section is read by all, the second by one, the third written by five of them."""
    kernels = [event(at % 2, 10 * at, 10 * at + 5) for at in range(10)]
    accesses: list[Access] = [(at, 0, 8, 0) for at in range(10)]
    accesses += [(3, 32, 400, 0), (3, 33, 400, 0), (3, None, 16, 4)]
    accesses += [(at, 64, 0, 4) for at in (0, 2, 4, 6, 8)]
    found = measure_access_bands(make_accesses(kernels, accesses), 10)
    columns = ("address", "kernels", "windows", "read_nbytes", "write_nbytes", "heat", "kernel")
    assert found.bands.select(columns).rows() == [
        (0, 10, 10, 80, 0, "steady", "k0"),
        (2 * MIB, 1, 1, 800, 0, "burst", "k1"),
        (4 * MIB, 5, 5, 0, 20, "mixed", "k0"),
    ]
    assert found.unplaced_nbytes == 20
    assert found.windows.filter(address=2 * MIB).rows() == [(0, 2 * MIB, 3, 800)]


def test_devices_have_windows_of_their_own() -> None:
    kernels = [event(0, 1, 2), event(0, 2, 3), event(0, 3, 4, device=1)]
    found = measure_access_bands(make_accesses(kernels, [(0, 0, 4, 0), (2, 0, 4, 0)]), 10)
    assert found.bands.select("device", "windows", "windows_ratio").rows() == [(0, 1, 0.5), (1, 1, 1.0)]


def test_a_footprint_is_the_blocks_that_are_touched() -> None:
    kernels = [event(0, 1, 2), event(0, 2, 3), event(1, 3, 4), event(2, 4, 5)]
    trace = make_accesses(kernels, [(0, 0, 8, 0), (0, 1, 8, 8), (1, 1, 4, 0), (2, None, 4, 4), (2, 2, 0, 4)])
    assert measure_access_footprints(trace).rows() == [
        (0, "k0", 2, 2 * PAGE, 1.5 * PAGE, 20, 8, 0),
        (0, "k1", 1, PAGE, 1.0 * PAGE, 4, 8, 8),
        (0, "k2", 1, 0, 0.0, 0, 0, 0),
    ]
    (row,) = measure_access_working_sets(trace).rows(named=True)
    assert (row["kernels"], row["working_set_nbytes"], row["kernel"]) == (4, 2 * PAGE, "k0")
    assert (row["mean_nbytes"], row["median_nbytes"], row["p90_nbytes"]) == (PAGE, PAGE, 2 * PAGE)
    assert (row["block_nbytes"], row["footprint_nbytes"], row["footprint_ratio"]) == (PAGE, None, None)


def test_the_footprint_of_the_program_is_what_was_taken_from_the_driver() -> None:
    trace = make_accesses([event(0, 1, 2)], [(0, 0, 4, 0)])
    taken = table([{"time_ns": 0, "device": 0, "nbytes": MIB, "allocated_nbytes": 3 * PAGE}], MEMORY_EVENTS)
    (row,) = measure_access_working_sets(replace(trace, memory_events=taken, accounting=Accounting(2, 2))).rows(
        named=True
    )
    assert (row["footprint_nbytes"], row["footprint_ratio"]) == (3 * PAGE, 3.0)


@pytest.mark.parametrize("kernels", [[], [event(0, 0, 1)]], ids=["empty", "one kernel"])
def test_nothing_was_accessed(kernels: list[Row]) -> None:
    trace = make_trace(kernels)
    found = measure_access_bands(trace, 10)
    assert (found.bands.schema, found.windows.schema) == (pl.Schema(ACCESSED_BANDS), pl.Schema(ACCESS_WINDOWS))
    assert found.bands.is_empty()
    assert found.windows.is_empty()
    footprints, sets = measure_access_footprints(trace), measure_access_working_sets(trace)
    assert (footprints.schema, sets.schema) == (pl.Schema(ACCESS_FOOTPRINTS), pl.Schema(ACCESS_WORKING_SETS))
    assert footprints.height == sets.height == len(kernels)


def test_a_stored_table_may_say_anything() -> None:
    trace = make_accesses([event(0, 0, 1)], [(0, 1, 8, 8)])
    for value in (2**64 - 1, None):
        odd = trace.accesses.with_columns(pl.lit(value, pl.UInt64).alias(name) for name in trace.accesses.columns[1:])
        changed = replace(trace, accesses=odd)
        assert measure_access_bands(changed, 3).bands.height == (value is not None)
        (row,) = measure_access_working_sets(changed).rows(named=True)
        assert row["working_set_nbytes"] == (0 if value is None else 1 << 44)
        assert measure_access_footprints(changed)["read_nbytes"].to_list() == [0 if value is None else 1 << 44]


@given(
    st.integers(1, 30),
    st.integers(1, 12),
    st.lists(st.tuples(st.integers(0, 29), st.integers(0, 200), st.integers(0, 64), st.integers(0, 64)), max_size=60),
)
def test_any_accesses(many: int, windows: int, drawn: list[tuple[int, int, int, int]]) -> None:
    accesses: list[Access] = [(at % many, page, read, written) for at, page, read, written in drawn]
    trace = make_accesses([event(0, at, at + 1) for at in range(many)], accesses)
    found = measure_access_bands(trace, windows)
    there = min(windows, many)
    expected: dict[int, dict[int, int]] = {}
    for at, page, read, written in accesses:
        over_time = expected.setdefault(page * PAGE // (2 * MIB) * 2 * MIB, {})
        window = at * there // many
        over_time[window] = over_time.get(window, 0) + read + written
    assert {
        address: dict(rows.select("window", "accessed_nbytes").rows())
        for (address,), rows in found.windows.partition_by("address", as_dict=True).items()
    } == expected
    kinds = dict(found.bands.select("address", "heat").rows())
    for address, over_time in expected.items():
        share = len(over_time) / there
        assert kinds[address] == ("steady" if share >= 0.8 else "burst" if share <= 0.2 else "mixed")
    touched = [len([page for of, page, *_ in accesses if of == at]) * PAGE for at in range(many)]
    (row,) = measure_access_working_sets(trace).rows(named=True)
    assert row["working_set_nbytes"] == max(touched)
    assert sum(size <= row["p90_nbytes"] for size in touched) * 10 >= 9 * many
    assert row["p90_nbytes"] == min(size for size in touched if sum(e <= size for e in touched) * 10 >= 9 * many)
