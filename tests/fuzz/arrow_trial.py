"""One input of the fuzzer of the wire's door, and those that it begins with."""

import resource
from pathlib import Path

import polars as pl

from deepprof.collectors.trace import Accounting, Trace
from deepprof.live.wire import WireError, WireLimits, check_batch, count_records, encode_table
from deepprof.live.wire.records import KINDS, TABLE_OF
from deepprof.live.wire.sent_tables import SENT_RECORDS, SENT_SIDES, SENT_TABLES
from deepprof.v1 import records_pb2 as pb
from tests.deepprof.live.wire.messages import write_stream
from tests.deepprof.live.wire.traces import make_full_trace

TRACE = make_full_trace()
LIMITS = WireLimits(message_nbytes=1 << 20)
NAMES = 5
SOUND = {table: pb.Table(kind=KINDS[table], arrow=encode_table(getattr(TRACE, table))) for table in SENT_SIDES.values()}
SPARE_NBYTES = 768 * 1024**2  # of address space, beyond what is taken at the start


def seeds() -> list[bytes]:
    """Return a stream of every table, with texts in both layouts, and one in several pieces."""
    rows = [(KINDS[table], getattr(TRACE, table)) for table in SENT_TABLES]
    rows.append(
        (KINDS["annotations"], pl.concat([TRACE.annotations.head(2), TRACE.annotations.tail(1)], rechunk=False))
    )
    return [bytes([kind]) + write_stream(part, views=views) for kind, part in rows for views in (False, True)]


def try_bytes(data: bytes) -> None:
    """Check a batch that has `data` for a table, and next to it the one that it refers to."""
    kind = data[0] % (max(TABLE_OF) + 1) if data else 0
    beside = [SOUND[SENT_SIDES[table]] for table in [TABLE_OF.get(kind, "")] if table in SENT_SIDES]
    message = pb.Batch(first_name=NAMES, tables=[*beside, pb.Table(kind=kind, arrow=data[1:])])
    counted = count_records(message, LIMITS)
    try:
        records = check_batch(message, LIMITS, NAMES)
    except WireError as error:
        if not str(error).isprintable():
            raise AssertionError("the error cannot be shown") from error
        return
    assert records.count == counted
    rows = sum(table.height for name, table in records.tables.items() if name in SENT_RECORDS)
    Trace(path="", format="", names=pl.Series(["n"] * NAMES), accounting=Accounting(rows, rows), **records.tables)
    for table in records.tables.values():
        assert table.estimated_size() <= 4 * LIMITS.message_nbytes
        table.write_json()  # examines every value


def limit_memory() -> None:
    """Let the process take little more memory than it has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + SPARE_NBYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
