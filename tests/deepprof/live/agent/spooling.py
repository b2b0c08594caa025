"""Messages for tests of the spool, small and distinguished by their numbers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import polars as pl

from deepprof.collectors.trace import DEVICE_EVENTS
from deepprof.live.agent.spool import Spool
from deepprof.live.wire.decoding import encode_table
from deepprof.v1.ingest_pb2 import SendRequest
from deepprof.v1.records_pb2 import Batch, Gap, Hello, Table

__all__ = ["append", "batch", "find_segments", "hello", "kernels", "numbers", "payloads"]


def hello(**changes: object) -> Hello:
    """Return a Hello."""
    known = {"job": "../../etc", "rank": 3, "collector": "c", "clock": 1, "rank_known": True}
    return Hello(**(known | changes))


def batch(count: int, names: Iterable[str] = (), first_name: int = 0, nbytes: int = 40) -> Batch:
    """Return a batch; the spool does not examine its tables."""
    table = Table(kind="TABLE_KIND_DEVICE_EVENTS", arrow=bytes([count % 251]) * nbytes)
    return Batch(names=names, first_name=first_name, complete_until_ns=count, tables=[table])


def kernels(start_ns: int, count: int, names: Iterable[str] = (), first_name: int = 0) -> Batch:
    """Return a batch of `count` kernels that a daemon takes, 1 ns long, from `start_ns` on."""
    rows = pl.DataFrame({"start_ns": range(start_ns, start_ns + count)}).with_columns(
        end_ns=pl.col("start_ns") + 1, device=0, stream=7, activity=pl.lit("kernel"), name_id=0
    )
    absent = [pl.lit(None, kind).alias(name) for name, kind in DEVICE_EVENTS.items() if name not in rows.columns]
    table = encode_table(rows.with_columns(absent).select(DEVICE_EVENTS.names()).cast(dict(DEVICE_EVENTS)))
    tables = [Table(kind="TABLE_KIND_DEVICE_EVENTS", arrow=table)] if count else []
    return Batch(names=names, first_name=first_name, complete_until_ns=start_ns + count, tables=tables)


def append(spool: Spool, count: int = 5, source_next: int = 0, **more: object) -> bool:
    """Append a batch."""
    return spool.append(SendRequest(batch=batch(count, **more)), count, source_next)


def payloads(spool: Spool) -> list[bytes]:
    """Return all messages that are kept."""
    return [message.payload for message in spool.read()]


def numbers(spool: Spool) -> list[tuple[int, int]]:
    """Return first and count of all messages that are kept; for each the frame and the message must agree."""
    found = []
    for message in spool.read():
        request = SendRequest.FromString(message.payload)
        inner: Batch | Gap | None = getattr(request, request.WhichOneof("message") or "", None)
        assert request.WhichOneof("message") == "end" or (inner is not None and inner.first == message.first)
        found.append((message.first, message.count))
    return found


def find_segments(root: Path) -> list[Path]:
    """Return the segments of the only spool under `root`, in order."""
    return sorted(root.glob("*/*.seg"))
