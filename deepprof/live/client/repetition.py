"""A trace repeated many times, one after the other, as one long recording: the input of a soak test."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
from msgspec.structs import replace

from deepprof.collectors.clocks import extremes, fits, shift
from deepprof.collectors.errors import UsageError
from deepprof.collectors.trace import DEVICES, STACKS, Trace, empty_table
from deepprof.live.wire.checking import count_records
from deepprof.live.wire.cutting import cut_with_gaps
from deepprof.live.wire.heads import make_end
from deepprof.v1.records_pb2 import Batch, End, Gap

PAUSE_NS = 1_000_000  # between the end of one repetition and the start of the next
# Columns that share one numbering; rows of two repetitions must not be joined by it.
NUMBERINGS = (("correlation", "external_id"), ("span_id", "parent_id"), ("sequence",))
LINKED = ("device_events", "host_events", "collectives")


def cut_repeated(trace: Trace, times: int, records: int) -> Iterator[tuple[Batch | Gap, int]]:
    """Yield `trace`, `times` times, as batches of `records` rows with their counts.

    Each repetition is later in time and continues the record numbers. Where the trace was interrupted there is a gap.
    Raises `UsageError` where the last repetition would be beyond all times that a trace can hold.
    """
    period = measure_period(trace)
    if times > 1 and not fits(trace, period * (times - 1)):
        raise UsageError(f"{times:,} repetitions of {trace.path} reach beyond the year 2262; repeat it less often")
    first = 0
    for number in range(times):
        part = shift(trace, number * period) if number == 0 else _later(trace, number, period)
        for batch in cut_with_gaps(part, records=records):
            if isinstance(batch, Gap):
                yield Gap(first=first, reason=batch.reason), 0
                continue
            if number:
                del batch.names[:]
                batch.first_name = 0
            count = count_records(batch)
            batch.first, first = first, first + count
            if count or not number:
                yield batch, count


def _later(trace: Trace, number: int, period_ns: int) -> Trace:
    """Return the repetition `number`: later, with its own link numbers, and without devices and stacks, sent before."""
    moved = shift(trace, number * period_ns)
    tables = {table: _renumber(moved, table, number) for table in LINKED}
    return replace(moved, **tables, devices=empty_table(DEVICES), stacks=empty_table(STACKS))


def _renumber(trace: Trace, table: str, number: int) -> pl.DataFrame:
    """Return a table with its links renumbered to follow those of the repetitions before."""
    rows: pl.DataFrame = getattr(trace, table)
    for columns in NUMBERINGS:
        step = _count_links(trace, columns)
        present = [name for name in columns if name in rows.columns]
        if step * (number + 1) < 2**63:  # else they stay unchanged: a wrong link is better than a number that overflows
            rows = rows.with_columns((pl.col(name) + step * number).cast(rows.schema[name]) for name in present)
    return rows


def _count_links(trace: Trace, columns: tuple[str, ...]) -> int:
    """Return a number above all values of `columns` in the trace."""
    tables = [getattr(trace, table) for table in LINKED]
    found = [rows[name].max() for rows in tables for name in columns if name in rows.columns]
    return max((int(value) for value in found if isinstance(value, int)), default=0) + 1


def measure_period(trace: Trace) -> int:
    """Return the time from the start of one repetition to that of the next, in ns."""
    ends = extremes(trace)
    return PAUSE_NS if ends is None else ends[1] - ends[0] + PAUSE_NS


def end_repeated(trace: Trace, times: int) -> End:
    """Return the end of all repetitions: dropped and flagged records count once per repetition."""
    end = make_end(trace)
    counts = [{reason: count * times for reason, count in each.items()} for each in (end.dropped, end.flagged)]
    return End(dropped=counts[0], flagged=counts[1])
