"""A recording of several processes as traces of one process each.

Every process numbers its streams, contexts and devices separately: kernels on "stream 7" of two processes have no
order, and belong in no common sequence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl
from msgspec.structs import replace

from deepprof.collectors.importers.flags import flag_events
from deepprof.collectors.time_range import ROW, SIDE_TABLES, join_again
from deepprof.collectors.trace import RECORD_TABLES, Accounting, Process, Trace

OWNER = "owner"


def split_all(traces: Sequence[Trace]) -> list[Trace]:
    """Return the traces with those of several processes split."""
    return [part for trace in traces for part in split_processes(trace)]


def split_processes(trace: Trace) -> list[Trace]:
    """Return one trace for every process that has work on a device; a trace of one process, or of none, as it is.

    Rows of other processes, and the dropped records, go to the first part, so that every record is counted once. A
    part's path ends in the id of its process.
    """
    if len(trace.processes) < 2:
        return [trace]
    owners = {table: _find_owners(trace, table) for table in RECORD_TABLES}
    return [_make_part(trace, number, process, owners) for number, process in enumerate(trace.processes)]


def _find_owners(trace: Trace, table: str) -> pl.Series:
    """Return for every row of a record table the number of the process to whose part it goes; 0 where none is named."""
    rows: pl.DataFrame = getattr(trace, table)
    if table == "device_events":
        numbers = {context: n for n, process in enumerate(trace.processes) for context in process.contexts}
        column = pl.col("context").cast(pl.Int64)
    elif "process" in rows.columns:
        numbers = {process.id: n for n, process in enumerate(trace.processes)}
        column = pl.col("process")
    else:
        return pl.zeros(rows.height, pl.Int64, eager=True).alias(OWNER)
    owner = column.replace_strict(numbers, default=0, return_dtype=pl.Int64).fill_null(0)
    return rows.select(owner.alias(OWNER)).to_series()


def _make_part(trace: Trace, number: int, process: Process, owners: Mapping[str, pl.Series]) -> Trace:
    """Return the trace of `process`, which has that `number`."""
    numbered = {table: getattr(trace, table).with_row_index(ROW).filter(owners[table] == number) for table in owners}
    sides = {side: join_again(getattr(trace, side), numbered[of]) for side, of in SIDE_TABLES.items()}
    tables = {table: rows.drop(ROW) for table, rows in numbered.items()}
    kept = sum(rows.height for rows in tables.values())
    dropped = trace.accounting.dropped if number == 0 else {}
    flagged = flag_events(tables["device_events"], tables["host_events"])
    return replace(
        trace,
        path=f"{trace.path}:{process.id}",
        accounting=Accounting(kept + sum(dropped.values()), kept, dropped, dict(flagged)),
        processes=(process,),
        **tables,
        **sides,
    )


def session_of(trace: Trace) -> str | None:
    """Return the file that a trace is a part of, whose parts share its clock; None if it is no such part."""
    suffix = f":{trace.processes[0].id}" if len(trace.processes) == 1 else ""
    return trace.path.removesuffix(suffix) if suffix and trace.path.endswith(suffix) else None
