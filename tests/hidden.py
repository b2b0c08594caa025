"""A trace as if no one had annotated it: what the miner finds alone is compared with what the ranges state."""

from __future__ import annotations

from msgspec.structs import replace

from deepprof.collectors.trace import Trace


def without_ranges(trace: Trace) -> Trace:
    """Return the trace without annotations, its accounts kept in order."""
    dropped = dict(trace.accounting.dropped) | {"hidden": trace.annotations.height}
    kept = trace.accounting.kept - trace.annotations.height
    return replace(
        trace, annotations=trace.annotations.clear(), accounting=replace(trace.accounting, kept=kept, dropped=dropped)
    )
