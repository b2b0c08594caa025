"""The file's own clock: times count from the first record on, because a double holds no unix time to the nanosecond."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from deepprof.collectors.trace import RECORD_TABLES, Trace


class PerfettoClock(Struct, frozen=True):
    """The clock of the traces (`unix` or `session`) and the time on it that is the file's zero, in nanoseconds.

    Ranks with different clocks have a zero each in `zeros_ns`: 50 years would be between them otherwise.
    """

    kind: str
    zero_ns: int
    zeros_ns: Mapping[int, int] = field(default_factory=dict)


def choose_clock(traces: Sequence[Trace]) -> PerfettoClock:
    """Return the clock on which the first record of all traces begins at 0."""
    kinds = sorted({trace.clock for trace in traces})
    zeros = {trace.rank or 0: _first_time(trace) for trace in traces}
    known = [zero for zero in zeros.values() if zero is not None]
    each = {rank: zero or 0 for rank, zero in zeros.items()} if len(kinds) > 1 else {}
    return PerfettoClock("/".join(kinds), min(known, default=0), each)


def _first_time(trace: Trace) -> int | None:
    """Return when the first record begins, None where there is none; tables are sorted by their first column."""
    tables = [getattr(trace, table) for table in RECORD_TABLES]
    return min((int(table.item(0, 0)) for table in tables if table.height), default=None)
