"""A trace that is not what it must be cannot be made."""

from __future__ import annotations

import polars as pl
import pytest
from msgspec.structs import replace

from deepprof.collectors import errors
from deepprof.collectors.trace import (
    ALLOCATIONS,
    DEVICE_EVENTS,
    FAILED_ALLOCATIONS,
    SEGMENTS,
    TABLES,
    Accounting,
    Trace,
    empty_table,
)
from tests.tables import event, make_trace, span, table


def test_what_is_read_is_kept_or_dropped_for_a_reason() -> None:
    assert Accounting(5, 3, {"metadata": 1, "flow": 1}).read == 5
    with pytest.raises(ValueError, match="records lost: read 5 != kept 3"):
        Accounting(5, 3, {"metadata": 1})


def test_the_tables_hold_what_the_accounting_says() -> None:
    made = make_trace([event(0, 1, 2)], annotations=[span(0, 1, 2)])
    assert made.accounting.kept == 2
    with pytest.raises(ValueError, match="accounting says 3 records kept, the tables hold 2"):
        replace(made, accounting=Accounting(3, 3))


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        (pl.DataFrame({"start_ns": [1]}), "device_events: columns"),
        (make_trace([event(0, 1, 2)]).device_events.reverse().with_columns(stream=None), "columns"),
        (make_trace([event(0, 1, 2), event(0, 5, 6)]).device_events.reverse(), "not sorted by start_ns"),
        (make_trace([event(0, 1, 2)]).device_events.with_columns(end_ns=pl.lit(0, pl.Int64)), "end before they start"),
        (make_trace([event(4, 1, 2)]).device_events, "a name_id beyond the 1 names"),
    ],
    ids=["columns", "types", "order", "backwards", "names"],
)
def test_device_events_must_be_sound(rows: pl.DataFrame, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Trace(
            path="x",
            format="test",
            names=pl.Series(["k"]),
            accounting=Accounting(rows.height, rows.height),
            device_events=rows,
        )


def test_a_value_that_must_stand_may_not_be_null() -> None:
    rows = make_trace([event(0, 1, 2)]).device_events.with_columns(activity=pl.lit(None, DEVICE_EVENTS["activity"]))
    with pytest.raises(ValueError, match="nulls in activity"):
        replace(make_trace([event(0, 1, 2)]), device_events=rows)


def test_segments_and_failed_allocations_are_records() -> None:
    bare = make_trace([event(0, 1, 2)])
    taken = table([{"time_ns": 5, "device": 0, "nbytes": 64, "stream": 0}], SEGMENTS)
    failed = table([{"time_ns": 6, "device": 0, "nbytes": 64}], FAILED_ALLOCATIONS)
    with pytest.raises(ValueError, match="accounting says 1 records kept, the tables hold 3"):
        replace(bare, segments=taken, failed_allocations=failed)
    assert replace(bare, segments=taken, failed_allocations=failed, accounting=Accounting(3, 3)).segments.height == 1
    with pytest.raises(ValueError, match="segments: nulls in stream"):
        replace(bare, segments=taken.with_columns(stream=pl.lit(None, pl.Int64)), accounting=Accounting(2, 2))


def test_what_the_allocator_says_needs_no_stream() -> None:
    rows = table([{"event": 0, "stack_id": 3}], ALLOCATIONS)
    assert replace(make_trace(), allocations=rows).allocations.height == 1


def test_every_table_may_be_empty() -> None:
    made = make_trace()
    assert all(getattr(made, name).schema == schema == empty_table(schema).schema for name, schema in TABLES.items())


def test_a_trace_error_is_one_line_with_path_problem_and_advice() -> None:
    error = errors.TraceError("a/b.json", "is cut off", "record it again")
    assert str(error) == "a/b.json: is cut off; record it again"
    assert issubclass(errors.UsageError, errors.DeepProfError)
