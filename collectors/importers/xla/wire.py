"""The part of protobuf's wire format that cuts a large message into pieces, which are decoded one at a time.

A message is a sequence of fields, and any run of whole fields is a message too: protobuf decodes a line's events run by
run, so that memory depends on the run and not on the file.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

RUN_NBYTES = 1024**2  # protobuf takes up to 60 times as much for a run of the shortest events
PIECES = 500_000  # of one message: it has a plane for every device, a line for every thread, and events in one row
SHORTEST_NBYTES = 8  # of an event, on average: its name, its time and its duration use about 15
LENGTHS = {1: 8, 5: 4}  # of the wire types with a fixed length
MAX_VARINT_NBYTES = 10  # bytes of a number


class ProtobufError(ValueError):
    """Content that is no protobuf message; the text of the error states where."""


class Cut(Struct, frozen=True):
    """A message taken apart: the values of one field, and all other fields.

    `bodies` are the (start, end) of every value without its length, `runs` those of whole fields that follow each
    other; only the one that was requested is filled. `count` is the number of these fields, `rest` all other fields,
    `others` the number of those."""

    bodies: list[tuple[int, int]]
    runs: list[tuple[int, int]]
    rest: bytes
    count: int
    others: int


def fields(content: bytearray, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield for every field of the message in `content[start:end]` its key, and where it, its value and its end are.

    Raises `ProtobufError` where the content is no message.
    """
    at = start
    while at < end:
        begin, key = at, content[at]
        at += 1
        if key >= 128:
            key, at = read_number(content, begin, end)
        body = at
        if key & 7 == 2:
            length = content[at] if at < end else 128  # nearly always one byte, then no call is needed
            body += 1
            if length >= 128:
                length, body = read_number(content, at, end)
            at = body + length
        elif key & 7 == 0:
            _, at = read_number(content, at, end)
        elif key & 7 in LENGTHS:
            at += LENGTHS[key & 7]
        else:
            raise ProtobufError(f"unknown field type at byte {begin}")
        if at > end or key < 8:
            raise ProtobufError(f"a field that cannot be at byte {begin}")
        yield key, begin, body, at


def read_number(content: bytearray, at: int, end: int) -> tuple[int, int]:
    """Return the number that starts at `at`, and where it ends; raise `ProtobufError` when it does not end."""
    value = 0
    for place in range(min(MAX_VARINT_NBYTES, end - at)):
        byte = content[at + place]
        value |= (byte & 127) << (7 * place)
        if byte < 128:
            return value, at + place + 1
    raise ProtobufError(f"a number without end at byte {at}")


def cut(content: bytearray, start: int, end: int, number: int, *, runs: bool = False) -> Cut:
    """Take the message in `content[start:end]` apart by its field `number`; with `runs`, keep those fields together.

    Runs are of about `RUN_NBYTES`. Raises `ProtobufError` where the content is no message, or one that no profiler
    writes: of very many parts, or of runs whose fields are shorter than `SHORTEST_NBYTES` on average.
    """
    bodies: list[tuple[int, int]] = []
    together, others = _Runs(RUN_NBYTES, SHORTEST_NBYTES), _Runs(end - start)
    wanted = number << 3 | 2  # with a length; the same number with another type is an unknown field
    for key, begin, body, after in fields(content, start, end):
        if key != wanted:
            others.add(begin, after)
        elif runs:
            together.add(begin, after)
        elif len(bodies) < PIECES:
            bodies.append((body, after))
        else:
            raise ProtobufError(f"more than {PIECES} parts in the message at byte {start}")
    rest = b"".join(content[begin:after] for begin, after in others.closed())
    return Cut(bodies, together.closed(), rest, len(bodies) + together.count, others.count)


class _Runs:
    """Fields that follow each other, joined until a run contains `nbytes`."""

    def __init__(self, nbytes: int, shortest: int = 0) -> None:
        self.nbytes, self.shortest = nbytes, shortest
        self.count = self.begin = self.end = self.first = 0
        self.done: list[tuple[int, int]] = []

    def add(self, begin: int, end: int) -> None:
        """Add the field from `begin` to `end`."""
        self.count += 1
        if begin != self.end or end - self.begin > self.nbytes:
            if end - self.begin > self.nbytes and (self.end - self.first) < self.shortest * (self.count - 1):
                raise ProtobufError(f"{self.count} fields too short to be events before byte {end}")
            self.first = self.first or begin
            self.closed()
            self.begin = begin
        self.end = end

    def closed(self) -> list[tuple[int, int]]:
        """End the last run, and return all runs."""
        if len(self.done) >= PIECES:
            raise ProtobufError(f"more than {PIECES} parts before byte {self.end}")
        if self.end > self.begin:
            self.done.append((self.begin, self.end))
        self.begin = self.end
        return self.done
