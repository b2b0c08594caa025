"""Whole traces given to a rank: nothing lost, in order, within the promises, under the rank's names."""

from __future__ import annotations

import asyncio

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers import read
from deepprof.collectors.trace import (
    ANNOTATIONS,
    COLLECTIVES,
    DEVICE_EVENTS,
    HOST_EVENTS,
    RECORD_TABLES,
    SEGMENTS,
    Accounting,
    Trace,
)
from deepprof.live.agent import traces as module
from deepprof.live.agent.traces import EARLIEST, TraceReceipt, send_trace
from tests import tables

from .receiving import FakeRank

NAMES = pl.Series("name", ["a", "b", "c", "never used"])
TIMES = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 2)), max_size=12).map(sorted)


def table(schema, rows, **fixed):
    given = pl.DataFrame({"start_ns": [at for at, _ in rows], "name_id": [name for _, name in rows]}, strict=False)
    given = given.with_columns(end_ns=pl.col("start_ns") + 1, **{name: pl.lit(value) for name, value in fixed.items()})
    absent = [pl.lit(None).alias(name) for name in schema if name not in given.columns]
    return given.with_columns(absent).select(list(schema)).cast(dict(schema))


def make_trace(device=(), host=(), ranges=(), **header):
    tables = {
        "device_events": table(DEVICE_EVENTS, device, device=0, stream=7, activity="kernel"),
        "host_events": table(HOST_EVENTS, host, category="op", stack_id=3),
        "annotations": table(ANNOTATIONS, ranges, side="host", framework=False),
    }
    kept = len(device) + len(host) + len(ranges)
    return Trace(path="t", format="kineto", names=NAMES, accounting=Accounting(kept, kept), **tables, **header)


def send(rank, trace, **how) -> TraceReceipt:
    return asyncio.run(send_trace(rank, trace, **how))


@given(TIMES, TIMES, TIMES, st.integers(-5, 60), st.integers(1, 7))
def test_every_record_is_given_or_late(device, host, ranges, promised, records):
    rank, trace = FakeRank(), make_trace(device, host, ranges)
    before, module.RECORDS = module.RECORDS, records
    try:
        given = send(rank, trace, watermark_ns=promised)
    finally:
        module.RECORDS = before
    for name, rows in (("device_events", device), ("host_events", host), ("annotations", ranges)):
        timely = [(at, NAMES[i]) for at, i in rows if at >= promised]
        assert rank.rows(name).select("start_ns", "name").rows() == timely
    everything = [at for at, _ in (*device, *host, *ranges)]
    assert given.late == sum(at < promised for at in everything)
    assert given.records == len(everything) - given.late == rank.records
    assert given.until_ns == max([promised, *(at + 1 for at in everything)])
    assert rank.watermark_ns in (given.until_ns, EARLIEST)
    assert "never used" not in rank.names


def test_records_that_are_never_sent_are_counted():
    rank, trace = FakeRank(), make_trace([(3, 0)], [], [])
    taken = tables.table([{"time_ns": 5, "device": 0, "nbytes": 64, "stream": 0}], SEGMENTS)
    given = send(rank, replace(trace, segments=taken, accounting=Accounting(2, 2)))
    assert given == TraceReceipt(1, 0, 4, unsent=1)
    assert rank.records == 1


def test_nothing_is_said_of_an_empty_trace():
    rank = FakeRank()
    assert send(rank, make_trace()) == TraceReceipt(0, 0, EARLIEST)
    assert rank.log == []


def test_a_promise_without_records_is_given_on():
    rank = FakeRank()
    assert send(rank, make_trace(), watermark_ns=5, until_ns=9).until_ns == 9
    assert rank.watermark_ns == 9


def test_names_of_two_traces_are_the_ranks():
    rank = FakeRank()
    send(rank, make_trace([(1, 2)]))
    send(rank, make_trace([(5, 0), (6, 2)]), watermark_ns=2)
    assert rank.rows("device_events")["name"].to_list() == ["c", "a", "c"]


def test_details_follow_their_records_and_stacks_stay():
    details = pl.DataFrame({"event": [0, 2], "collective": ["early", "late"]})
    absent = [pl.lit(None).alias(name) for name in COLLECTIVES if name not in details.columns]
    details = details.with_columns(absent).select(list(COLLECTIVES)).cast(dict(COLLECTIVES))
    rank = FakeRank()
    send(rank, make_trace([(1, 0), (2, 0), (3, 0)], host=[(4, 0)], collectives=details), watermark_ns=2)
    (sent,) = rank.tables["collectives"]
    assert sent.select("event", "collective").rows() == [(1, "late")]
    assert rank.rows("host_events")["stack_id"].to_list() == [None]


def test_a_session_clock_needs_its_beginning():
    trace = make_trace([(1, 0)], clock="session")
    with pytest.raises(TraceError, match="count from a moment"):
        send(FakeRank(), trace)
    with pytest.raises(TraceError, match="impossible"):
        send(FakeRank(), trace, offset_ns=4 * 10**18)
    rank = FakeRank()
    assert send(rank, trace, offset_ns=100).until_ns == 102
    assert send(rank, replace(trace, epoch_ns=10**18), offset_ns=5, watermark_ns=102).until_ns == 10**18 + 2


@pytest.mark.traces
@pytest.mark.parametrize("file", ["tb-resnet50-nw0/worker0.pt.trace.json.gz", "cs336-ihor/result.sqlite"])
def test_a_real_trace_arrives_whole(traces, file):
    trace, rank = read(traces / file), FakeRank()
    given = send(rank, trace, offset_ns=0)
    assert given.records == trace.accounting.kept == rank.records
    for name in RECORD_TABLES:
        rows = getattr(trace, name)
        assert rank.rows(name)["end_ns" if "end_ns" in rows.columns else "time_ns"].len() == rows.height
    texts = trace.names.gather(trace.device_events["name_id"].to_numpy())
    assert rank.rows("device_events")["name"].to_list() == texts.to_list()
