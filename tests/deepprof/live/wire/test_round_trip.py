"""What is cut and put together again is what it was: every column of every table, and everything around them."""

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from deepprof import analyze
from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers import read
from deepprof.collectors.trace import (
    ALLOCATIONS,
    FAILED_ALLOCATIONS,
    RECORD_TABLES,
    SEGMENTS,
    STACKS,
    Accounting,
)
from deepprof.live.wire import WireError, WireLimits, check_batch, cut, make_hello
from deepprof.live.wire.sent_tables import as_sent
from tests import manifest
from tests.chance import examples
from tests.deepprof.live.wire.traces import assert_same, made_up_traces, make_full_trace, over_the_wire
from tests.tables import event, make_trace, table
from tests.widening import first_of_each, slow_unless

REPORTED = ["hta-nccl", "param-linear/", "cs336-zx-base/", "tl-jax-conv-08/", "maxtext"]


@pytest.mark.parametrize("records", [1, 2, 3, 7, 8192])
def test_everything_comes_back(records):
    trace = make_full_trace()
    assert_same(over_the_wire(trace, records=records), trace)


@settings(max_examples=examples(60))
@given(made_up_traces(), st.integers(1, 30))
def test_any_trace_comes_back(trace, records):
    assert_same(over_the_wire(trace, records=records), trace)


@pytest.mark.traces
@pytest.mark.parametrize("row", first_of_each("format", manifest.rows()))
def test_real_traces_come_back(row, traces):
    try:
        trace = read(manifest.path_of(row), details=True)
    except TraceError:
        return  # a file that is no trace, as tests/collectors states
    assert_same(over_the_wire(trace), as_sent(trace))


@pytest.mark.traces
@pytest.mark.parametrize("name", slow_unless("hta-nccl".__eq__, REPORTED))
def test_reports_of_real_traces_are_the_same(name, traces):
    path = next(manifest.path_of(row.values[0]) for row in manifest.rows() if name in row.values[0]["file"])
    trace = read(path, details=True)
    assert analyze(over_the_wire(trace)).to_json() == analyze(as_sent(trace)).to_json()


@pytest.mark.parametrize("records", [1, 8192])
def test_what_only_files_hold_is_counted_as_not_sent(records):
    trace = make_full_trace()
    taken = table([{"time_ns": t, "device": 0, "nbytes": 64, "stream": 0} for t in (5, 95)], SEGMENTS)
    failed = table([{"time_ns": 6, "device": 0, "nbytes": 64}], FAILED_ALLOCATIONS)
    beside = table([{"event": 0, "stream": 7}], ALLOCATIONS)
    said = trace.accounting
    counts = Accounting(said.read + 3, said.kept + 3, said.dropped, said.flagged)
    local = replace(trace, segments=taken, failed_allocations=failed, allocations=beside, accounting=counts)
    counts = Accounting(said.read + 3, said.kept, {"metadata": 5, "not-sent": 3}, said.flagged)
    assert_same(over_the_wire(local, records=records), replace(trace, accounting=counts))
    assert as_sent(trace) is trace


@settings(max_examples=examples(40))
@given(made_up_traces(), st.integers(1, 10))
def test_batches_are_in_the_order_of_time_and_numbered_without_holes(trace, records):
    expected, names, former = 0, 0, -1
    for message in cut(trace, records=records):
        batch = check_batch(message, WireLimits(), names)
        assert batch.first == expected
        assert batch.first_name == names
        starts = [t for rows in RECORD_TABLES if rows in batch.tables for t in batch.tables[rows].to_series(0)]
        assert all(former <= start < batch.complete_until_ns + 1 for start in starts)
        assert len(starts) == batch.count <= records
        expected, names, former = expected + batch.count, names + len(batch.names), batch.complete_until_ns
    assert (expected, names) == (trace.accounting.kept, len(trace.names))


def test_no_record_comes_before_a_promise_that_was_made():
    messages = list(cut(make_full_trace(), records=4))
    batches = [check_batch(message, WireLimits(), 99) for message in messages]
    first = {
        id(b): min(b.tables[t].to_series(0)[0] for t in RECORD_TABLES if t in b.tables) for b in batches if b.count
    }
    with_rows = [b for b in batches if b.count]
    assert [b.complete_until_ns for b in with_rows[:-1]] == [first[id(b)] for b in with_rows[1:]]
    assert with_rows[-1].complete_until_ns == 91  # the last start, 90, and 1 ns


def test_devices_come_first_and_stacks_with_their_first_use():
    tables = [check_batch(message, WireLimits(), 99).tables for message in cut(make_full_trace(), records=8)]
    assert list(tables[0]) == ["devices"]
    used = [(set(t["host_events"]["stack_id"].drop_nulls()) if "host_events" in t else set()) for t in tables]
    sent = [set(t["stacks"]["stack_id"]) if "stacks" in t else set() for t in tables]
    assert all(use <= set().union(*sent[: i + 1]) for i, use in enumerate(used))
    assert sorted(i for ids in sent for i in ids) == [0, 1, 2, 3]
    assert [ids for ids in sent if ids][-1] == {3}  # which no host event names


def test_a_trace_without_records_still_says_what_it_knows():
    trace = make_trace(names=["a", "b"])
    assert [list(message.names) for message in cut(trace)] == [["a", "b"]]
    assert_same(over_the_wire(trace), trace)
    assert list(cut(make_trace())) == []


def test_rows_of_one_time_may_be_in_several_batches():
    trace = make_trace([event(0, 5, 6)] * 10)
    assert [check_batch(m, WireLimits(), 9).count for m in cut(trace, records=4)] == [4, 4, 2]
    assert_same(over_the_wire(trace, records=4), trace)


def test_texts_that_fill_messages_make_more_of_them():
    frames = ["x" * 50_000 + str(i) for i in range(11)]
    trace = make_full_trace(names=pl.Series("name", [f"{i}" + "n" * 9000 for i in range(60)]))
    stacks = table([{"stack_id": i, "frames": text} for i, text in enumerate(frames)], STACKS)
    trace = replace(trace, stacks=stacks)
    limits = WireLimits(message_nbytes=150_000)
    assert max(message.ByteSize() for message in cut(trace, limits=limits)) <= 150_000
    assert_same(over_the_wire(trace, limits=limits), trace)


def test_names_come_in_pieces_of_as_many_as_a_batch_may_have():
    trace = make_trace(names=[f"name {i}" for i in range(10)])
    assert [len(message.names) for message in cut(trace, limits=WireLimits(batch_names=4))] == [4, 4, 2]
    assert_same(over_the_wire(trace, limits=WireLimits(batch_names=4)), trace)


def test_a_row_that_no_message_can_hold_is_refused():
    trace = replace(make_full_trace(), stacks=table([{"stack_id": 1, "frames": "x" * 200_000}], STACKS))
    with pytest.raises(WireError, match=r"tables: one row takes more than"):
        list(cut(trace, limits=WireLimits(message_nbytes=150_000)))


def test_names_that_are_too_long_are_cut_and_stay_different():
    names = ["é" * 50, "é" * 50 + "1", "é" * 50 + "2", "short"]
    trace = make_full_trace(names=pl.Series("name", names))
    arrived = over_the_wire(trace, limits=WireLimits(name_nbytes=60)).names.to_list()
    assert max(len(name.encode()) for name in arrived) <= 60
    assert len(set(arrived)) == 4
    assert all(name.startswith("ééé") for name in arrived[:3])
    assert arrived[3] == "short"


def test_a_rank_that_is_not_known_stays_unknown():
    hello = make_hello(make_trace(), "job")
    assert (hello.rank, hello.rank_known) == (0, False)
    assert make_hello(make_trace(rank=3), "job").rank == 3
    given_rank = make_hello(make_trace(rank=3), "job", rank=7)
    assert (given_rank.rank, given_rank.rank_known) == (7, True)


def test_each_sending_has_a_name_of_its_own():
    assert make_hello(make_trace(), "job").collector != make_hello(make_trace(), "job").collector


@pytest.mark.parametrize("rank", [-1, 1_000_000, 2**40])
def test_a_rank_that_cannot_be_is_refused(rank):
    with pytest.raises(WireError, match=r"^rank: "):
        make_hello(make_trace(rank=rank), "job")


def test_texts_that_do_not_fit_a_hello_are_cut():
    trace = replace(make_trace(), path="p\udcff" * 5000, notes=("n" * 5000,) * 100, format="f\n" * 100)
    hello = make_hello(trace, "job", host="h\x1b" * 300)
    assert (len(hello.source), len(hello.notes), len(hello.notes[0])) == (4096, 64, 1024)
    assert (len(hello.host), len(hello.format)) == (256, 64)


def test_a_world_that_is_smaller_than_its_rank_is_left_out():
    assert make_hello(replace(make_trace(rank=5), world_size=4), "job").world_size == 0
