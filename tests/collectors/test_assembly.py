"""Loose columns become a valid trace, and every row that does not is counted."""

from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.collectors.importers.assembly import Records, assemble
from deepprof.collectors.importers.flags import Tally
from deepprof.collectors.trace import DEVICE_EVENTS

PATH = Path("x")


def test_nothing_is_an_empty_trace():
    trace = assemble(PATH, "own", Records(), read=0)
    assert (trace.format, trace.accounting.read, trace.names.len(), trace.device_events.height) == ("own", 0, 0, 0)


def test_columns_that_are_absent_take_their_defaults():
    trace = assemble(PATH, "own", Records(device=pl.DataFrame({"start_ns": [1], "end_ns": [2], "name": ["k"]})), read=1)
    row = trace.device_events.row(0, named=True)
    assert {k: v for k, v in row.items() if v is not None} == {
        **{"start_ns": 1, "end_ns": 2, "device": 0, "stream": 0, "activity": "kernel", "name_id": 0}
    }


def test_one_names_table_serves_all_tables():
    columns = {"start_ns": [5, 1], "end_ns": [6, 2]}
    records = Records(
        device=pl.DataFrame({**columns, "name": ["b", "a"]}),
        host=pl.DataFrame({**columns, "name": ["a", None], "category": ["op", "runtime"]}),
        annotations=pl.DataFrame({**columns, "end_ns": [None, 1], "name": ["c", "b"]}),
    )
    trace = assemble(PATH, "own", records, read=6, clock="session", rank=3)
    assert trace.names.to_list() == ["b", "a", "unknown", "c"]
    assert trace.device_events["name_id"].to_list() == [1, 0]
    assert trace.host_events["name_id"].to_list() == [2, 1]
    assert trace.annotations["end_ns"].to_list() == [1, None]
    assert (trace.accounting.flagged["unnamed"], trace.clock, trace.rank) == (1, "session", 3)


def test_rows_that_make_no_sense_are_counted_by_reason():
    device = pl.DataFrame(
        {
            "start_ns": [1, None, 5, 2**62, 1, 1],
            "end_ns": [2, 2, 4, 2**62, 2, 2],
            "device": [0, 0, 0, 0, -1, 65536],
            "name": ["k"] * 6,
            "nbytes": [-5, *[None] * 5],
        }
    )
    memory = pl.DataFrame({"time_ns": [1, None, 1], "nbytes": [2**60, 1, 8]})
    trace = assemble(PATH, "own", Records(device=device, memory=memory, tally=Tally()), read=9)
    assert trace.accounting.dropped == {"invalid-time": 4, "invalid-place": 2, "invalid-bytes": 1}
    assert (trace.accounting.kept, trace.accounting.flagged["invalid-bytes"]) == (2, 1)


def test_a_record_that_vanishes_is_a_bug():
    with pytest.raises(ValueError, match="records lost"):
        assemble(PATH, "own", Records(), read=1)


@given(
    st.lists(
        st.tuples(*[st.none() | st.integers(-(2**63), 2**63 - 1)] * 6, st.none() | st.text(max_size=3)), max_size=8
    )
)
def test_any_integers_become_a_valid_table(rows):
    columns = ("start_ns", "end_ns", "device", "stream", "correlation", "nbytes", "name")
    schema = {**dict.fromkeys(columns, pl.Int64), "name": pl.String}
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    trace = assemble(PATH, "own", Records(device=frame, host=frame), read=2 * len(rows))
    assert trace.device_events.schema == DEVICE_EVENTS
