"""Tables for notebooks and spreadsheets: the per-iteration table, the events and the findings of a job."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Literal

import msgspec
import polars as pl

if TYPE_CHECKING:
    from typing import BinaryIO

    from deepprof.results.analysis_result import AnalysisResult

PIECE = 1 << 16  # rows that are text at a time

# `evidence` and `location` are JSON, because each rule has its own numbers.
FINDINGS = pl.Schema(
    dict.fromkeys(("rule", "severity", "title", "summary", "advice", "caused_by"), pl.String())
    | {"confidence": pl.Float64()}
    | dict.fromkeys(
        ("headroom_ns_per_iteration", "rank", "device", "stream", "first_iteration", "last_iteration"), pl.Int64()
    )
    | {"device": pl.UInt16()}
    | dict.fromkeys(("evidence", "location"), pl.String())
)


def table_of(analysis: AnalysisResult, what: str) -> pl.DataFrame:
    """Return the `iterations` of an analysis, its `events`, or a row per finding (`FINDINGS`)."""
    if what == "iterations":
        return analysis.iterations
    return analysis.events if what == "events" else _list_findings(analysis)


def _list_findings(analysis: AnalysisResult) -> pl.DataFrame:
    """Return a row per finding, in their order."""
    rows = []
    for finding in analysis.findings:
        first, last = finding.iterations or (None, None)
        texts = {key: msgspec.json.encode(getattr(finding, key)).decode() for key in ("evidence", "location")}
        own = {key: getattr(finding, key) for key in FINDINGS if hasattr(finding, key)}
        rows.append(own | texts | {"first_iteration": first, "last_iteration": last})
    return pl.DataFrame(rows, schema=FINDINGS)


def write_table(table: pl.DataFrame, file: BinaryIO, kind: Literal["csv", "parquet"]) -> None:
    """Write a table with its column names; CSV leaves nulls empty, and Parquet takes as much memory as the file.

    Raises what `file.write` raises: if polars wrote the file itself, a full disk would raise its own errors.
    """
    if kind == "csv":
        file.write(table.clear().write_csv().encode())  # the names
        for part in table.iter_slices(PIECE):
            file.write(part.write_csv(include_header=False).encode())
    else:
        whole = BytesIO()
        table.write_parquet(whole)
        file.write(whole.getbuffer())
