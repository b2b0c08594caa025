"""Bytes from the network to a message: its lists are counted before it is built.

Two bytes of a message can become an object of some fifty bytes; a message of 16 MiB would use 400 MiB before anything
could be checked. So the fields are walked first, which takes no memory and stops at the first list that is too long.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from google.protobuf.message import DecodeError

from deepprof.live.wire.errors import WireError
from deepprof.live.wire.limits import LIMITS, WireLimits
from deepprof.live.wire.sent_tables import SENT_TABLES
from deepprof.v1 import ingest_pb2
from deepprof.v1 import records_pb2 as pb

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # protobuf wire types; no message of this project has groups (3 and 4)
FIXED = {FIXED64: 8, FIXED32: 4}
VARINT_NBYTES = 10
FIELDS = 1024  # besides names: more than a message of this or a later version has
PARTS = frozenset(field.number for field in ingest_pb2.SendRequest.DESCRIPTOR.fields)
Place = tuple[int, int]
"""The field number of a part of the request, and that of a field in the part; 0 for the part itself."""


def read_request(data: bytes, limits: WireLimits = LIMITS) -> ingest_pb2.SendRequest:
    """Return the request that `data` encodes; raises `WireError` for lists longer than `limits` allow.

    Also raises for bytes that are no request; nothing else is checked. With lists of allowed length the message takes a
    small multiple of `data` in memory.
    """
    if len(data) > limits.message_nbytes:
        raise WireError("the message", f"{len(data)} bytes, at most {limits.message_nbytes}")
    most, found = _longest_lists(limits), dict[Place, int]()
    for number, place in enumerate(_list_fields(data)):
        found[place] = count = found.get(place, 0) + 1
        if count > most.get(place, limits.batch_names) or number >= limits.batch_names + FIELDS:
            raise WireError("the message", f"a list of more than {count - 1}")
    try:
        return ingest_pb2.SendRequest.FromString(data)
    except DecodeError as error:
        raise WireError("the message", "cannot be read") from error


def _longest_lists(limits: WireLimits) -> Mapping[Place, int]:
    request = ingest_pb2.SendRequest
    return {
        (request.HELLO_FIELD_NUMBER, pb.Hello.NOTES_FIELD_NUMBER): limits.notes,
        (request.BATCH_FIELD_NUMBER, pb.Batch.NAMES_FIELD_NUMBER): limits.batch_names,
        (request.BATCH_FIELD_NUMBER, pb.Batch.TABLES_FIELD_NUMBER): len(SENT_TABLES),
        (request.END_FIELD_NUMBER, pb.End.DROPPED_FIELD_NUMBER): limits.reasons,
        (request.END_FIELD_NUMBER, pb.End.FLAGGED_FIELD_NUMBER): limits.reasons,
    }


def _list_fields(data: bytes) -> Iterator[Place]:
    """Yield every field of the request's parts, in the order of the data; raises `WireError`."""
    for part, start, end in _walk(data, 0, len(data)):
        yield part, 0
        if part in PARTS:
            for field, *_ in _walk(data, start, end):
                yield part, field


def _walk(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield the number of every field between two positions, and where its bytes begin and end; empty for no bytes."""
    while at < end:
        # Numbers of one byte, which are most, are read without a call: this blocks the event loop of all streams.
        if (tag := data[at]) < 128:
            at += 1
        else:
            tag, at = _read_varint(data, at, end)
        kind = tag & 7
        if kind in {BYTES, VARINT}:
            if at < end and (number := data[at]) < 128:
                at += 1
            else:
                number, at = _read_varint(data, at, end)
            size = number if kind == BYTES else 0
        elif not (size := FIXED.get(kind, 0)):
            raise WireError("the message", "cannot be read")
        if size > end - at:
            raise WireError("the message", "breaks off")
        yield tag >> 3, at, at + size if kind == BYTES else at
        at += size


def _read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return the number at `at`, and the position behind it."""
    number = 0
    for shift in range(min(VARINT_NBYTES, end - at)):
        byte = data[at + shift]
        number |= (byte & 127) << 7 * shift
        if byte < 128:
            return number, at + shift + 1
    raise WireError("the message", "breaks off")
