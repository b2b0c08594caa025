"""Messages put together again: with gaps, from the middle, out of order, and with is in them."""

import pytest

from deepprof.collectors.trace import COLLECTIVES, DEVICE_EVENTS, RECORD_TABLES
from deepprof.live.wire import TraceAssembly, WireError, cut, make_end, make_hello
from deepprof.live.wire.assembly import assemble_all
from deepprof.live.wire.records import KINDS
from deepprof.v1 import query_pb2
from deepprof.v1 import records_pb2 as pb
from tests.deepprof.live.wire.messages import make_batch
from tests.deepprof.live.wire.traces import assert_same, make_full_trace
from tests.tables import event, make_trace, table

TRACE = make_full_trace()
MESSAGES = list(cut(TRACE, records=6))


def assembly(skipped=0, trace=TRACE):
    return TraceAssembly(make_hello(trace, "job"), skipped)


def added(messages, skipped=0):
    made = assembly(skipped)
    for message in messages:
        made.add_batch(message)
    return made


def test_nothing_makes_an_empty_trace():
    trace = assembly().trace()
    assert (trace.accounting.read, trace.rank, trace.clock, trace.epoch_ns) == (0, 3, "session", 17 * 10**17)


def test_without_an_end_nothing_is_known_to_be_dropped():
    trace = added(MESSAGES).trace()
    assert trace.accounting.kept == TRACE.accounting.kept == trace.accounting.read
    assert trace.notes == TRACE.notes


def test_records_that_a_gap_leaves_out_are_told():
    made = added(MESSAGES[:2])
    first = made.expected
    made.add_gap(pb.Gap(first=first, lost=1200, reason="buffer-full"))
    made.add_gap(pb.Gap(first=first + 1200, lost=34, reason="buffer-full"))
    made.add_gap(pb.Gap(first=first + 1234))
    made.add_batch(make_batch(first=first + 1234, names=[], device_events=table([event(0, 9, 9)], DEVICE_EVENTS)))
    assert made.trace().notes[1:] == (
        "1,234 records in between are lost (buffer-full)",
        "records in between are lost, how many is not known (gaps: 1)",
    )


def test_a_jump_in_the_numbers_is_a_gap():
    without_names = [pb.Batch.FromString(message.SerializeToString()) for message in MESSAGES]
    for message in without_names:
        del message.names[:]
        message.first_name = 0
    names = pb.Batch(names=TRACE.names.to_list())
    trace = added([names, *(m for m in without_names if m.first != 12)]).trace()
    assert trace.notes[1:] == ("6 records in between are lost",)
    assert trace.accounting.kept == TRACE.accounting.kept - 6


def test_what_comes_after_the_beginning_is_said_to():
    start = next(i for i, m in enumerate(MESSAGES) if m.first == 12)
    whole = [name for m in MESSAGES[: start + 1] for name in m.names]
    first = pb.Batch(first=12, names=whole, complete_until_ns=MESSAGES[start - 1].complete_until_ns)
    rest = [type(m).FromString(m.SerializeToString()) for m in MESSAGES[start:]]
    del rest[0].names[:]
    trace = added([first, *rest], skipped=12).trace()
    assert trace.notes[1:] == ("the first 12 records are no longer kept; this is what came later",)
    assert trace.accounting.kept == TRACE.accounting.kept - 12
    assert trace.names.to_list() == TRACE.names.to_list()
    # Side tables still belong to the events that they belonged to.
    starts = trace.device_events["start_ns"].gather(trace.collectives["event"])
    original = TRACE.device_events["start_ns"].gather(TRACE.collectives["event"])
    assert starts.to_list() == original.to_list()[-len(starts) :]
    assert len(starts)


def test_batches_whose_times_overlap_are_sorted_with_what_belongs_to_them():
    late = table([event(0, 3, 4), event(0, 8, 9)], DEVICE_EVENTS)
    early = table([event(0, 2, 3), event(0, 8, 8)], DEVICE_EVENTS)
    about = [
        table([{"event": i, "collective": name} for i, name in pairs], COLLECTIVES)
        for pairs in ([(0, "three"), (1, "eight")], [(0, "two"), (1, "eight again")])
    ]
    made = assembly(trace=make_trace())
    made.add_batch(make_batch(names=["a"], device_events=late, collectives=about[0]))
    made.add_batch(make_batch(names=[], first=2, first_name=1, device_events=early, collectives=about[1]))
    trace = made.trace()
    assert trace.device_events["start_ns"].to_list() == [2, 3, 8, 8]
    assert trace.collectives.select("event", "collective").rows() == [
        (0, "two"), (1, "three"), (2, "eight"), (3, "eight again"),
    ]  # fmt: skip


def test_devices_and_stacks_that_are_described_again_are_taken_once():
    made = added(MESSAGES)
    tables = [
        part for message in MESSAGES for part in message.tables if part.kind in {KINDS["devices"], KINDS["stacks"]}
    ]
    for part in tables:
        made.add_batch(pb.Batch(first=made.expected, tables=[part], complete_until_ns=99))
    assert {part.kind for part in tables} == {KINDS["devices"], KINDS["stacks"]}
    assert made.trace().devices.equals(TRACE.devices)
    assert made.trace().stacks.equals(TRACE.stacks)


def test_names_that_are_sent_again_must_be_the_same():
    made = added(MESSAGES)
    made.add_batch(pb.Batch(first=made.expected, first_name=1, names=["launch", "Zürich €"]))
    assert made.trace().names.to_list() == TRACE.names.to_list()
    with pytest.raises(WireError, match=r"^names: a name that is known"):
        made.add_batch(pb.Batch(first=made.expected, first_name=1, names=["Launch"]))


def test_numbers_that_come_again_are_refused():
    made = added(MESSAGES)
    with pytest.raises(WireError, match=r"^first: 0 comes again after"):
        made.add_batch(MESSAGES[1])
    with pytest.raises(WireError, match=r"^first: 1 comes again"):
        made.add_gap(pb.Gap(first=1, lost=1))


def answers(trace, rank, messages=None):
    yield query_pb2.ReadWindowResponse(rank=rank, hello=make_hello(trace, "job", rank=rank))
    for message in cut(trace, records=5) if messages is None else messages:
        yield query_pb2.ReadWindowResponse(rank=rank, batch=message)
    yield query_pb2.ReadWindowResponse(rank=rank, end=make_end(trace))


def test_the_ranks_of_a_window_come_back_by_number():
    other = make_full_trace(range(0, 50, 5), rank=2)
    found = assemble_all([*answers(TRACE, 3), *answers(other, 2)])
    assert [trace.rank for trace in found] == [2, 3]
    assert_same(found[0], other)
    assert_same(found[1], TRACE)


def test_gaps_and_what_is_skipped_come_through_a_window():
    hello, *_, end = answers(TRACE, 3)
    hello.skipped = 7
    gap = query_pb2.ReadWindowResponse(rank=3, gap=pb.Gap(first=7, lost=2, reason="duty-cycle"))
    (trace,) = assemble_all([hello, gap, end])
    assert trace.notes[1:] == (
        "the first 7 records are no longer kept; this is what came later",
        "2 records in between are lost (duty-cycle)",
    )
    assert sum(getattr(trace, name).height for name in RECORD_TABLES) == 0


def test_a_rank_without_a_hello_is_refused():
    with pytest.raises(WireError, match="rank: 3 has said no Hello"):
        assemble_all(list(answers(TRACE, 3))[1:])
