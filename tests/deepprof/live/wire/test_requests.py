"""Bytes from the network: read where their lists are short enough, and counted before anything is built."""

import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.collectors.trace import TABLES
from deepprof.live.wire import WireError, WireLimits, cut, make_end, make_hello, read_request
from deepprof.v1 import ingest_pb2
from deepprof.v1 import records_pb2 as pb
from tests.deepprof.live.wire.traces import make_full_trace

TRACE = make_full_trace()
SOUND = [
    ingest_pb2.SendRequest(hello=make_hello(TRACE, "job")),
    *(ingest_pb2.SendRequest(batch=message) for message in cut(TRACE, records=9)),
    ingest_pb2.SendRequest(gap=pb.Gap(first=2**40, lost=7, reason="spool-full")),
    ingest_pb2.SendRequest(end=make_end(TRACE)),
    ingest_pb2.SendRequest(),
]


@pytest.mark.parametrize("message", SOUND, ids=lambda message: message.WhichOneof("message") or "nothing")
def test_what_was_written_is_read(message):
    assert read_request(message.SerializeToString()) == message


@pytest.mark.parametrize(
    ("message", "limits"),
    [
        (ingest_pb2.SendRequest(hello=pb.Hello(notes=["n"] * 4)), WireLimits(notes=3)),
        (ingest_pb2.SendRequest(batch=pb.Batch(names=[""] * 4)), WireLimits(batch_names=3)),
        (ingest_pb2.SendRequest(batch=pb.Batch(tables=[pb.Table()] * (len(TABLES) + 1))), WireLimits()),
        (ingest_pb2.SendRequest(end=pb.End(dropped={str(i): 1 for i in range(4)})), WireLimits(reasons=3)),
        (ingest_pb2.SendRequest(end=pb.End(flagged={str(i): 1 for i in range(4)})), WireLimits(reasons=3)),
    ],
)
def test_lists_that_are_too_long_are_refused(message, limits):
    with pytest.raises(WireError, match=r"^the message: a list of more than"):
        read_request(message.SerializeToString(), limits)


def test_a_list_in_pieces_is_counted_whole():
    piece = ingest_pb2.SendRequest(batch=pb.Batch(names=["a", "b"])).SerializeToString()
    assert list(read_request(piece * 2, WireLimits(batch_names=4)).batch.names) == ["a", "b", "a", "b"]
    with pytest.raises(WireError, match="a list of more than 3"):
        read_request(piece * 2, WireLimits(batch_names=3))


def test_more_bytes_than_allowed_are_refused():
    with pytest.raises(WireError, match="the message: 11 bytes, at most 10"):
        read_request(bytes(11), WireLimits(message_nbytes=10))


@pytest.mark.parametrize(
    "data", [b"\x12", b"\x12\x05\x12", b"\x13\x14", b"\xff" * 20, b"\x12\xff", b"\x0a\x02\x0a\x05"]
)
def test_what_is_no_message_is_refused(data):
    with pytest.raises(WireError, match="the message: "):
        read_request(data)


def test_a_text_that_is_no_utf8_is_refused():
    with pytest.raises(WireError, match="the message: cannot be read"):
        read_request(b"\x12\x03\x12\x01\xff")


def test_fields_of_a_later_version_are_passed_over():
    message = SOUND[1].SerializeToString()
    more = b"\xa0\x06\x01" + b"\xa9\x06" + bytes(8) + b"\xad\x06" + bytes(4) + b"\xb2\x06\x02ab"
    assert read_request(message + more).batch == SOUND[1].batch


def test_more_fields_than_any_message_has_are_refused():
    unknown = b"\x12\x80\x20" + b"\x78\x01" * 2048  # a batch of 4,096 bytes
    assert read_request(unknown).WhichOneof("message") == "batch"
    with pytest.raises(WireError, match="a list of more than"):
        read_request(unknown, WireLimits(batch_names=1000))
    with pytest.raises(WireError, match="a list of more than"):
        read_request(b"\x78\x01" * 100_000)


def test_short_names_cost_no_call_but_the_two_that_walk_them():
    message, calls = ingest_pb2.SendRequest(batch=pb.Batch(names=["n"] * 1000)).SerializeToString(), Counter()
    sys.setprofile(lambda frame, event, _: calls.update([frame.f_code.co_name] if event == "call" else ()))
    try:
        read_request(message)
    finally:
        sys.setprofile(None)
    assert calls["_walk"] + calls["_list_fields"] > 2000
    assert calls.total() < 2100  # a message is walked in the loop that all streams share


@given(st.sampled_from(SOUND), st.data())
def test_any_bytes_are_refused_or_read_as_they_are(message, data):
    mutated = bytearray(message.SerializeToString() or b"\0")
    for _ in range(3):
        mutated[data.draw(st.integers(0, min(len(mutated), 60) - 1))] = data.draw(st.integers(0, 255))
    try:
        read = read_request(bytes(mutated))
    except WireError:
        return
    assert read == ingest_pb2.SendRequest.FromString(bytes(mutated))
