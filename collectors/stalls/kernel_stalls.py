"""Stall reasons for the kernels of traces: found by name, as Nsight Compute and the trace write it."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from msgspec.structs import replace

from deepprof.collectors.errors import TraceError
from deepprof.collectors.names.short import shorten
from deepprof.collectors.reprs import shorten_path
from deepprof.collectors.stalls.stall_reasons import StallExport
from deepprof.collectors.trace import STALLS, Trace
from deepprof.plurals import counted

OTHER_NAMES = "profile the same program, and let ncu write whole names: --print-kernel-base demangled"


def give_stalls(traces: Sequence[Trace], export: StallExport) -> list[Trace]:
    """Return the traces with `Trace.stalls`, and a note on what of the export is not theirs.

    A kernel is found by its full name, else by its short one (demanglers write full ones differently): then it has the
    mean of all kernels of the export that have this short name and are not found by their full ones.
    Raises `TraceError` where no trace has any of its kernels.
    """
    found = [_find(trace, export) for trace in traces]
    if all(each.is_empty() for each in found):
        problem = f"no trace has any of its {counted(export.table['kernel'].n_unique(), 'kernel')}"
        raise TraceError(export.path, problem, OTHER_NAMES)
    return [
        replace(trace, stalls=rows.select(list(STALLS)), notes=(*trace.notes, *_take_notes(rows, export)))
        for trace, rows in zip(traces, found, strict=True)
    ]


def _find(trace: Trace, export: StallExport) -> pl.DataFrame:
    """Return the stall reasons of a trace's kernels, with the columns of `STALLS` and `used`, names of the export."""
    kernels = trace.device_events.filter(pl.col("activity") == "kernel").select("name_id").unique()
    named = kernels.with_columns(kernel=trace.names.gather(kernels["name_id"]))
    exact = named.join(export.table.with_columns(used=pl.concat_list("kernel")), on="kernel", how="inner")
    other = export.table.join(named, on="kernel", how="anti")
    rest = _add_short(named.join(export.table, on="kernel", how="anti"))
    short = rest.join(_merge_short(other), on="short", how="inner")
    columns = [*STALLS, "used"]
    return pl.concat([exact.select(columns), short.select(columns)]).sort("name_id", "reason")


def _add_short(named: pl.DataFrame) -> pl.DataFrame:
    """Return names of kernels with their `short` names."""
    return named.with_columns(short=pl.Series([shorten(name) for name in named["kernel"]], dtype=pl.String))


def _merge_short(table: pl.DataFrame) -> pl.DataFrame:
    """Return shares by short name: means over the kernels in `table` that have it, whose names are `used`."""
    short = _add_short(table.select("kernel").unique(maintain_order=True))
    shared = short.group_by("short").agg(used="kernel", many=pl.len())
    added = table.join(short, on="kernel").group_by("short", "reason").agg(pl.col("share_ratio").sum())
    return added.join(shared, on="short").with_columns(pl.col("share_ratio") / pl.col("many"))


def _take_notes(rows: pl.DataFrame, export: StallExport) -> list[str]:
    listed, name = export.table["kernel"].n_unique(), shorten_path(export.path)
    missing = listed - rows["used"].explode().drop_nulls().n_unique()
    notes = [f"{counted(missing, 'kernel')} of {listed:,} in {name} ran nowhere in this trace"] if missing else []
    if export.unreadable:
        notes.append(f"{counted(export.unreadable, 'stall metric')} in {name} had no number and were left out")
    return notes
