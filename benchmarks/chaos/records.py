"""Records that know their numbers: each states in `correlation` which record of its sender it is.

All senders send the same messages, cut once, so that sending costs little next to what is measured.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

if TYPE_CHECKING:
    import numpy as np

    from deepprof.v1.records_pb2 import Batch

__all__ = ["numbers_of", "read_messages", "write_messages"]

KERNELS = 50  # of an iteration
LENGTH = struct.Struct("<II")  # of a message, and its records


def write_messages(path: Path, batches: int, records: int, seed: int) -> None:
    """Write this many batches of `records` records."""
    import polars as pl

    from benchmarks.kernels import kernels_and_copies
    from deepprof.collectors.trace import DEVICE_EVENTS
    from deepprof.live.wire.checking import count_records
    from deepprof.live.wire.cutting import cut

    made = kernels_and_copies(1 + batches * records // KERNELS, KERNELS, seed=seed)
    numbers = pl.int_range(pl.len()).cast(DEVICE_EVENTS["correlation"])
    trace = replace(made, device_events=made.device_events.with_columns(correlation=numbers))
    with path.open("wb") as file:
        for batch in cut(trace, records=records):
            content = batch.SerializeToString()
            file.write(LENGTH.pack(len(content), count_records(batch)) + content)


def read_messages(path: Path) -> Iterator[tuple[Batch, int]]:
    """Yield the batches with their counts."""
    from deepprof.v1.records_pb2 import Batch

    with path.open("rb") as file:
        while head := file.read(LENGTH.size):
            nbytes, count = LENGTH.unpack(head)
            yield Batch.FromString(file.read(nbytes)), count


def numbers_of(batch: Batch) -> Iterator[np.ndarray]:
    """Yield the numbers that the records of a batch know."""
    import polars as pl

    from deepprof.v1.records_pb2 import TABLE_KIND_DEVICE_EVENTS

    for table in batch.tables:
        if table.kind == TABLE_KIND_DEVICE_EVENTS:
            yield pl.read_ipc_stream(BytesIO(table.arrow))["correlation"].to_numpy()
