"""`copy-bound`: copies between host and device that nothing hides."""

from __future__ import annotations

import polars as pl
import pytest
from msgspec.structs import replace

from deepprof.diagnosis.coverage import OTHER_DIRECTION, find_unnamed
from deepprof.diagnosis.rules.copy_bound import _is_mostly, copy_bound
from deepprof.diagnosis.rules.device_copies import device_copies
from tests.deepprof.diagnosis.loops import Job, Work, compute

AHEAD = compute(60_000, launched=-10_000_000)  # long before it runs


def copied(kind: str | None, start: float, end: float, nbytes: int | None = 10**8, name: str = "Memcpy") -> Work:
    return Work(start, end, None, name, 9, "memcpy", {"copy_kind": kind, "nbytes": nbytes})


def test_direction_size_speed_and_memory_are_told() -> None:
    name = "Memcpy HtoD (Pageable -> Device)"
    (found,) = Job(100_000, [AHEAD, copied("HtoD", 60_000, 80_000, name=name)]).found(copy_bound)
    assert found.title == "Copies from the host are not hidden behind computation"
    assert found.evidence["copied_bytes_per_iteration"] == 100_000_000
    assert found.evidence["bytes_per_second"] == 5_000_000_000
    assert found.evidence["copies_per_iteration"] == 1
    assert found.evidence["pageable"] == "yes"
    assert found.evidence["avg_overlap_ratio"] == 0.5
    assert "100.0 MB at 5.0 GB/s" in found.summary
    assert "pageable memory" in found.summary


@pytest.mark.parametrize(
    ("nbytes", "told"),
    [(3 * 10**9, "3.0 GB at 150.0 GB/s"), (5_000, "5.0 kB at 250.0 kB/s"), (20, "20 bytes at 1.0 kB/s")],
)
def test_sizes_and_speeds_have_the_unit_that_fits(nbytes: int, told: str) -> None:
    (found,) = Job(100_000, [AHEAD, copied("HtoD", 60_000, 80_000, nbytes)]).found(copy_bound)
    assert f": {told}." in found.summary


@pytest.mark.parametrize(("nbytes", "told"), [(2 * 10**9, "2.0 GB"), (5_000, "5.0 kB")])
def test_copies_on_the_device_have_them_too(nbytes: int, told: str) -> None:
    (found,) = Job(100_000, [AHEAD, copied("DtoD", 60_000, 80_000, nbytes)]).found(device_copies)
    assert f"1 time and {told} per iteration" in found.summary


@pytest.mark.parametrize(
    ("kind", "way"), [("HtoD", "from the host"), ("DtoH", "to the host"), (None, "between host and device")]
)
def test_ways(kind: str | None, way: str) -> None:
    (found,) = Job(100_000, [AHEAD, copied(kind, 60_000, 80_000)]).found(copy_bound)
    assert way in found.title
    assert found.evidence["pageable"] == "no"


BOTH = [copied("HtoD", 60_000, 75_000, 3 * 10**8), copied("DtoH", 80_000, 92_000, 2 * 10**8)]


def test_the_way_is_that_of_most_time() -> None:
    both = [copied("HtoD", 60_000, 65_000), copied("DtoH", 70_000, 90_000)]
    (found,) = Job(100_000, [AHEAD, *both]).found(copy_bound)
    assert "to the host" in found.title
    assert found.headroom_ns_per_iteration == 20_000_000
    assert found.evidence["copied_bytes_per_iteration"] == 10**8
    assert "another" not in found.summary  # 5 % are below the limit


def test_two_ways_are_never_added_up() -> None:
    (found,) = Job(100_000, [AHEAD, *BOTH]).found(copy_bound)
    assert found.title == "Copies from the host are not hidden behind computation"
    assert "only copies from the host: 300.0 MB at 20.0 GB/s." in found.summary
    assert "Copies to the host take another 12.0 ms (12.0 %)." in found.summary
    assert found.headroom_ns_per_iteration == 15_000_000
    assert found.parts == {"exposed_htod_ns": 15_000_000}
    assert (found.evidence["copied_bytes_per_iteration"], found.evidence["bytes_per_second"]) == (3 * 10**8, 2 * 10**10)
    assert found.evidence["copies_per_iteration"] == 1
    assert "one stream per direction" in found.advice


def test_the_way_that_costs_less_is_a_part_with_a_reason() -> None:
    loop, trace = Job(100_000, [AHEAD, *BOTH]).build()
    unnamed = {each.part: each.why for each in find_unnamed([loop], list(copy_bound(loop, trace)))}
    assert unnamed["exposed_dtoh_ns"] == OTHER_DIRECTION
    assert "exposed_htod_ns" not in unnamed


def test_the_memory_is_that_of_the_way_alone() -> None:
    read = copied("DtoH", 80_000, 92_000, 9 * 10**9, "Memcpy DtoH (Device -> Pageable)")
    fed = copied("HtoD", 60_000, 75_000, 10**8, "Memcpy HtoD (Pinned -> Device)")
    (found,) = Job(100_000, [AHEAD, fed, read]).found(copy_bound)
    assert found.evidence["pageable"] == "no"
    assert "100.0 MB at 6.7 GB/s, pinned memory." in found.summary
    assert "pin_memory" not in found.advice


def test_a_device_that_only_copies_has_nothing_to_hide_them_behind() -> None:
    loop, trace = Job(100_000, [compute(60_000), *BOTH]).build()
    only = loop.parts.with_columns(compute_ns=pl.lit(0, pl.Int64))
    (found,) = copy_bound(replace(loop, parts=only), trace)
    assert found.title == "Copies from the host run, and no kernel runs at the same time"


def test_copies_that_hide_a_late_launch_are_a_remark() -> None:
    copy = copied("HtoD", 60_000, 80_000)
    (ahead,) = Job(100_000, [AHEAD, copy]).found(copy_bound)
    (late,) = Job(100_000, [compute(60_000), copy]).found(copy_bound)
    assert (ahead.severity, ahead.headroom_ns_per_iteration) == ("warning", 20_000_000)
    assert (late.severity, late.headroom_ns_per_iteration) == ("info", 0)
    assert "an iteration would take 0.000 ms less: the host launches what follows just in time" in late.summary
    assert "just in time" not in ahead.summary


def test_copies_to_other_devices_are_not_added_to_those_within_one() -> None:
    both = [copied("PtoP", 60_000, 75_000, 3 * 10**8), copied("DtoD", 80_000, 92_000, 9 * 10**8)]
    loop, trace = Job(100_000, [AHEAD, *both]).build()
    (found,) = device_copies(loop, trace)
    assert found.title == "Copies between devices are not hidden behind computation"
    assert "only copies from or to other devices: 1 time and 300.0 MB per iteration" in found.summary
    assert found.parts == {"exposed_ptop_ns": 15_000_000}
    unnamed = {each.part: each.why for each in find_unnamed([loop], [found])}
    assert unnamed["exposed_dtod_ns"] == OTHER_DIRECTION
    (within,) = Job(100_000, [AHEAD, both[1]]).found(device_copies)
    assert within.title == "Copies within the device are not hidden behind computation"
    assert within.evidence["copied_bytes_per_iteration"] == 9 * 10**8


@pytest.mark.parametrize("kind", ["DtoD", "PtoP"])
def test_copies_between_devices_are_another_matter(kind: str) -> None:
    assert Job(100_000, [AHEAD, copied(kind, 60_000, 95_000)]).found(copy_bound) == []


def test_hidden_copies_are_no_matter() -> None:
    assert Job(100_000, [compute(99_000), copied("HtoD", 1_000, 98_000)]).found(copy_bound) == []


def test_copies_of_unknown_size_have_no_speed() -> None:
    (found,) = Job(100_000, [AHEAD, copied("HtoD", 60_000, 80_000, None)]).found(copy_bound)
    assert found.evidence["bytes_per_second"] == 0
    assert "GB/s" not in found.summary


def test_a_few_small_copies_from_pageable_memory_are_no_pageable_copying() -> None:
    kinds = [("Pinned", 50_000_000)] * 3 + [("Pageable", 3_000)] * 4
    names = [f"Memcpy HtoD ({kind} -> Device)" for kind, _ in kinds]
    columns = {"name": names, "nbytes": [nbytes for _, nbytes in kinds], "start_ns": 0, "end_ns": 10}
    copies = pl.DataFrame(columns)
    assert [_is_mostly(copies, kind) for kind in ("pageable", "pinned")] == [False, True]
    small = copies.filter(pl.col("nbytes") < 4_000)
    assert [_is_mostly(small, kind) for kind in ("pageable", "pinned")] == [True, False]
    unsized = copies.with_columns(nbytes=pl.lit(None, pl.Int64))
    assert _is_mostly(unsized, "pageable")
