"""Messages by hand: batches, and Arrow streams whose heads state something else than is there."""

from io import BytesIO

import polars as pl

from deepprof.collectors.trace import DEVICE_EVENTS
from deepprof.live.wire import encode_table
from deepprof.live.wire.arrow_messages import END, frame_head, split_stream
from deepprof.live.wire.records import KINDS
from deepprof.v1 import records_pb2 as pb
from tests.tables import copy, event, table


def device_rows(count=5):
    """Return device events with names 0 to 2, some with nulls."""
    return table([event(i % 3, 10 * i, 10 * i + 7) for i in range(count - 1)] + [copy(10**6, 10**6, 64)], DEVICE_EVENTS)


def make_batch(first_name=0, names=("a", "b", "c"), complete_until_ns=0, first=0, **tables):
    """Return a batch of these tables, each a table or the bytes of a stream."""
    parts = [
        pb.Table(kind=KINDS[name], arrow=rows if isinstance(rows, bytes) else encode_table(rows))
        for name, rows in tables.items()
    ]
    return pb.Batch(first=first, names=names, first_name=first_name, complete_until_ns=complete_until_ns, tables=parts)


def write_stream(rows, *, views=False, compression="uncompressed"):
    """Return a stream as polars writes it."""
    buffer, level = BytesIO(), pl.CompatLevel.newest() if views else pl.CompatLevel.oldest()
    rows.write_ipc_stream(buffer, compression=compression, compat_level=level)
    return buffer.getvalue()


def parts_of(data):
    """Return the messages of a stream, each as a kind and its bytes."""
    return [(message.kind, frame_head(message.raw) + bytes(message.body)) for message in split_stream(data)]


def join(parts):
    return b"".join(part for _, part in parts) + END


def message_of(data, kind):
    """Return the first message of a kind, and where its head begins in the stream."""
    message = next(message for message in split_stream(data) if message.kind == kind)
    return message, data.index(message.raw)


def lie(data, kind, place, layout, value, *, at=0):
    """Return the stream with another number in its first head of `kind`, `at` elements behind what `place` finds."""
    message, begin = message_of(data, kind)
    nbytes = {"q": 8, "i": 4, "h": 2, "B": 1, "I": 4}[layout]
    where = begin + place(message) + at * nbytes
    return data[:where] + value.to_bytes(nbytes, "little", signed=value < 0) + data[where + nbytes :]


def field(number):
    """Return what finds a number that is in the head itself."""
    return lambda message: message.head.place(number)


def element(number):
    """Return what finds the first element of a list in the head."""
    return lambda message: message.head.vector(number)[0]
