"""The launches of a trace whose records do not name them: calls and events matched by their order.

Recorders that write no correlation still write the calls. A device begins work in the order of the calls; where there
are as many calls as events, and none begins after its event, each event has the call at its place.
"""

from __future__ import annotations

import polars as pl
from msgspec.structs import replace

from deepprof.collectors.trace import WORK_ACTIVITIES, Trace
from deepprof.metrics.names import rows_named
from deepprof.metrics.operators import is_stand_in
from deepprof.plurals import counted

LAUNCHES = r"(?i)launch|memcpy|memset"  # calls that put work on a device
MIN_EVENTS = 8  # fewer may be as many as the calls by chance


def link_in_order(trace: Trace) -> Trace:
    """Return the trace with the launch of every device event; as it is where any is known, or the numbers differ.

    Only traces of one device are linked. A note reports it.
    """
    events = (
        trace.device_events.with_row_index("row").filter(pl.col("activity").is_in(WORK_ACTIVITIES)).sort("start_ns")
    )
    if not _may_link(trace, events):
        return trace
    rows = trace.host_events.with_row_index("row").filter(
        pl.col("category") == "runtime", pl.col("end_ns").is_not_null()
    )
    calls = rows_named(rows, trace.names, LAUNCHES).sort("start_ns")
    if calls.height != events.height or (calls["start_ns"] > events["start_ns"]).any():
        return trace
    tables = (trace.device_events, trace.host_events)
    first = 1 + max(int(each["correlation"].max() or 0) for each in tables)  # type: ignore[arg-type]
    numbers = pl.int_range(first, first + calls.height, dtype=pl.UInt64, eager=True)
    note = f"no launches are recorded: {counted(events.height, 'device event')} matched to the calls in their order"
    return replace(
        trace,
        device_events=_number(trace.device_events, events["row"], numbers),
        host_events=_number(trace.host_events, calls["row"], numbers),
        notes=(*trace.notes, note),
    )


def _may_link(trace: Trace, events: pl.DataFrame) -> bool:
    """Return whether nothing in the trace states what launched its device's events."""
    known = events["correlation"].is_not_null().any()
    return not known and events.height >= MIN_EVENTS and events["device"].n_unique() == 1 and not is_stand_in(trace)


def _number(table: pl.DataFrame, rows: pl.Series, numbers: pl.Series) -> pl.DataFrame:
    """Return the table with new correlations in the given rows; what links other rows stays."""
    found = pl.DataFrame({"row": rows, "number": numbers})
    joined = table.with_row_index("row").join(found, on="row", how="left", maintain_order="left")
    return joined.with_columns(correlation=pl.coalesce("number", "correlation")).select(table.columns)
