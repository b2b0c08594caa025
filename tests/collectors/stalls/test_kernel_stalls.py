"""Stall reasons on the kernels of a trace: by full name, by short name, and what is left over."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from deepprof.collectors.errors import TraceError
from deepprof.collectors.stalls.kernel_stalls import give_stalls
from deepprof.collectors.stalls.stall_reasons import StallExport
from deepprof.collectors.time_range import cut
from deepprof.collectors.trace import STALLS, Trace
from tests.collectors.damage import checked
from tests.tables import copy, event, make_trace

FLOATS, HALVES = "void at::vectorized<4, float>(int)", "void at::vectorized<4, c10::Half>(int)"
GEMM, UNUSED = "volta_sgemm_128x64_nn", "a name that no kernel has"


def make() -> Trace:
    names = ["Memcpy", FLOATS, HALVES, GEMM, UNUSED]
    return make_trace([copy(0, 5, 8), event(1, 10, 20), event(2, 20, 30), event(3, 30, 40)], names=names, rank=0)


def export(*rows: tuple[str, str, float], unreadable: int = 0) -> StallExport:
    table = pl.DataFrame(rows, schema=["kernel", "reason", "share_ratio"], orient="row")
    return StallExport(Path("a/stalls.csv"), table, unreadable)


def given(trace: Trace, found: StallExport) -> list[tuple[str, str, float]]:
    (made,) = give_stalls([trace], found)
    assert made.stalls.schema == STALLS
    return [(made.name(number), reason, share) for number, reason, share in made.stalls.rows()]


def test_a_kernel_is_found_by_its_full_name() -> None:
    found = export((FLOATS, "barrier", 0.25), (FLOATS, "wait", 0.75), (GEMM, "wait", 1.0))
    assert given(make(), found) == [(FLOATS, "barrier", 0.25), (FLOATS, "wait", 0.75), (GEMM, "wait", 1.0)]


def test_a_full_name_goes_before_a_short_one() -> None:
    found = given(make(), export((FLOATS, "wait", 1.0), ("vectorized", "barrier", 1.0)))
    assert [row for row in found if row[0] == FLOATS] == [(FLOATS, "wait", 1.0)]


def test_the_base_name_stands_for_all_that_are_called_so() -> None:
    assert given(make(), export(("vectorized", "wait", 1.0))) == [(FLOATS, "wait", 1.0), (HALVES, "wait", 1.0)]


def test_kernels_of_one_short_name_count_alike() -> None:
    others = ("void x::vectorized<8>()", "void x::vectorized<16>()")
    found = export((others[0], "wait", 1.0), (others[1], "wait", 0.5), (others[1], "barrier", 0.5))
    assert given(make(), found)[:2] == [(FLOATS, "barrier", 0.25), (FLOATS, "wait", 0.75)]


def test_what_is_not_used_is_noted() -> None:
    (made,) = give_stalls([make()], export((GEMM, "wait", 1.0), ("other", "wait", 1.0), (UNUSED, "wait", 1.0)))
    assert made.notes == ("2 kernels of 3 in 'a/stalls.csv' ran nowhere in this trace",)
    (made,) = give_stalls([make()], export((GEMM, "wait", 1.0), unreadable=2))
    assert made.notes == ("2 stall metrics in 'a/stalls.csv' had no number and were left out",)


def test_no_kernel_at_all_is_an_error() -> None:
    with pytest.raises(TraceError, match="no trace has any of its 1 kernel") as refusal:
        give_stalls([make(), make_trace()], export(("other", "wait", 1.0)))
    checked(refusal.value)


def test_a_rank_may_have_none_of_the_kernels() -> None:
    mine, empty = give_stalls([make(), make_trace()], export((GEMM, "wait", 1.0)))
    assert (mine.stalls.height, empty.stalls.height) == (1, 0)


def test_they_stay_with_a_part_of_the_trace() -> None:
    (made,) = give_stalls([make()], export((GEMM, "wait", 1.0)))
    assert cut(made, 35, 40).stalls.height == 1
